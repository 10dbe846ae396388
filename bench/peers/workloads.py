"""Workloads of the comparison, and the form in which each system gets them.

Common to all: bodies of 128 bytes, 16 topics × 8 queues (partitions, subjects) chosen at random, durability in the page
cache. The order matters: the last three fill the disk's write-back queue.
"""

from dataclasses import dataclass

TOPICS = 16
QUEUES = 8
SIZE = 128
THREADS = 16


@dataclass(frozen=True)
class PeerWorkload:
    name: str
    question: str
    rate: float = 0.0  # calls per second, planned ahead; 0: closed loop
    batched: bool = False
    topics: int = TOPICS
    queues: int = QUEUES  # of each topic
    # Prefix of topic names. Workloads that read whole topics, or need fresh ones, have their own topics.
    prefix: str = "bench-"
    consumers: bool = False  # all messages are also consumed and acknowledged
    drains: bool = False  # consumers alone, from topics that were filled before the clock starts


SINGLE = PeerWorkload("single", "16 threads, each waits for the answer to one message")
OPEN = PeerWorkload("open_10k", "10,000 single messages/s at Poisson times, 16 threads", rate=10_000)
CONSUMED = PeerWorkload(
    "consumers_on",
    "16 threads as in single, and everything is pulled and acknowledged meanwhile",
    prefix="both-",
    consumers=True,
)
SINGLE_256 = PeerWorkload("single_256", "as single, over 256 fresh topics", topics=256, prefix="wide-")
PULLED = PeerWorkload(
    "pull_ack", "filled topics are drained and acknowledged, 16 consumers of at most 32 messages per call",
    batched=True, prefix="full-", consumers=True, drains=True,
)  # fmt: skip
BATCHED = PeerWorkload("batched", "the system's own best case for many messages", batched=True)
BATCHED_256 = PeerWorkload("batched_256", "as batched, over 256 topics", batched=True, topics=256, prefix="wide-")
WORKLOADS = (SINGLE, OPEN, CONSUMED, SINGLE_256, PULLED, BATCHED, BATCHED_256)


@dataclass(frozen=True)
class Shape:
    """Parameters of a driver for one system."""

    loop: str = "sync"  # or pipelined
    threads: int = THREADS
    clients: int = 1  # client objects of the library, each with its own connections; threads share them evenly
    batch: int = 1
    consumers: int = 0  # consuming threads
    most: int = 0  # maximum messages per pull
    fill: int = 0  # messages stored before


@dataclass(frozen=True)
class Terms:
    """Parameters of one run that are equal for all systems."""

    seconds: float
    warmup_s: float
    # Replaces the shapes' value for sync loops. Each peer's documentation advises one client object, with which the
    # library batches the sends of all threads. One object per thread gives one connection per thread, as Penstock's
    # driver always has.
    clients: int | None = None

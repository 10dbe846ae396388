"""The questions that all systems are asked, and in which form each of them is asked.

Common to all: bodies of 128 bytes, 16 topics × 8 queues (partitions, subjects) chosen at random, durability in the page cache.
The order matters: the last three fill the disk's write-back queue.
"""

from dataclasses import dataclass

TOPICS = 16
QUEUES = 8
SIZE = 128
THREADS = 16


@dataclass(frozen=True)
class Workload:
    name: str
    question: str
    rate: float = 0.0  # calls a second, planned ahead; 0: closed loop
    batched: bool = False
    topics: int = TOPICS
    # Of the topics' names. What reads all that is there, or asks for fresh topics, has topics of its own.
    prefix: str = "bench-"
    consumers: bool = False  # everything is taken and acknowledged as well
    drains: bool = False  # consumers alone, from topics that were filled before the clock starts


SINGLE = Workload("single", "16 threads, each waits for the answer to one message")
OPEN = Workload("open_10k", "10,000 single messages a second at Poisson times, 16 threads", rate=10_000)
CONSUMED = Workload(
    "consumers_on",
    "16 threads as in single, and all is taken and acknowledged meanwhile",
    prefix="both-",
    consumers=True,
)
SINGLE_256 = Workload("single_256", "as single, over 256 fresh topics", topics=256, prefix="wide-")
PULLED = Workload(
    "pull_ack", "filled topics are drained and acknowledged, 16 consumers of at most 32 messages a call",
    batched=True, prefix="full-", consumers=True, drains=True,
)  # fmt: skip
BATCHED = Workload("batched", "the system's own best case for many messages", batched=True)
BATCHED_256 = Workload("batched_256", "as batched, over 256 topics", batched=True, topics=256, prefix="wide-")
WORKLOADS = (SINGLE, OPEN, CONSUMED, SINGLE_256, PULLED, BATCHED, BATCHED_256)


@dataclass(frozen=True)
class Shape:
    """How a driver asks one system."""

    loop: str = "sync"  # or pipelined
    threads: int = THREADS
    clients: int = 1  # objects of the client library, each with connections of its own; its threads share them evenly
    batch: int = 1
    consumers: int = 0  # threads that take
    most: int = 0  # messages a take
    fill: int = 0  # messages that are there before


@dataclass(frozen=True)
class Terms:
    """What one run asks of all systems alike."""

    seconds: float
    warmup_s: float
    # In place of the shapes' own, for sync loops. One object is what each peer's documentation advises, and it lets the library join the
    # sends of all threads; as many as threads are a connection a thread, as ours always has.
    clients: int | None = None

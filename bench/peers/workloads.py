"""The questions that all systems are asked, and in which form each of them is asked.

Common to all: bodies of 128 bytes, 16 topics × 8 queues (partitions, subjects) chosen at random, durability in the page cache.
The order matters: the batched one fills the disk's write-back queue, so it is last.
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


SINGLE = Workload("single", "16 threads, each waits for the answer to one message")
OPEN = Workload("open_10k", "10,000 single messages a second at Poisson times, 16 threads", rate=10_000)
BATCHED = Workload("batched", "the system's own best case for many messages", batched=True)
WORKLOADS = (SINGLE, OPEN, BATCHED)


@dataclass(frozen=True)
class Shape:
    """How a driver asks one system."""

    loop: str = "sync"  # or pipelined
    threads: int = THREADS
    clients: int = 1  # objects of the client library, each with connections of its own; its threads share them evenly
    batch: int = 1


@dataclass(frozen=True)
class Terms:
    """What one run asks of all systems alike."""

    seconds: float
    warmup_s: float
    # In place of the shapes' own, for sync loops. One object is what each peer's documentation advises, and it lets the library join the
    # sends of all threads; as many as threads are a connection a thread, as ours always has.
    clients: int | None = None

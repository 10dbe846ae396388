"""Workloads with replicas. As in bench/peers/workloads.py, but every message is on all in-sync nodes before its answer."""

from bench.peers.workloads import PeerWorkload, Shape

COPIED = PeerWorkload("copied", "16 threads, each waits until one message is on all in-sync nodes", prefix="copied-")
PACED = PeerWorkload("copied_2k", "2,000 such messages/s at Poisson times, 16 threads", rate=2_000, prefix="copied-")
WORKLOADS = (COPIED, PACED)

STEADY = PeerWorkload(
    "switch_over", "1,000 such messages/s to one queue, 8 threads, while its leader is lost",
    rate=1_000, topics=1, queues=1, prefix="copied-steady-",
)  # fmt: skip
STEADY_SHAPE = Shape(loop="steady", threads=8)
SHAPES = {COPIED.name: Shape(), PACED.name: Shape(), STEADY.name: STEADY_SHAPE}

"""Single-message calls, on disk.

Question: how many single-message calls per second are possible with each on disk before its answer?
Settings: as single_memory, with FSYNC (group commit). The data directory is in TMPDIR: point it at the disk to be
    measured.
Excluded: connecting, creating topics, consumers, TLS. A memory file system makes the figure worthless.
"""

from bench.settings import LoadSettings
from bench.workloads import Bar, Workload

WORKLOAD = Workload(
    "single_fsync",
    LoadSettings(durability="fsync"),
    (Bar("calls per second", lambda outcome: outcome.calls_per_s, least=30_000),),
)

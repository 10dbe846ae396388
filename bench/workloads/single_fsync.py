"""How fast are single-message calls of which each is on disk before its answer?

Settings: as single_memory, with FSYNC (group commit). The data directory is in TMPDIR: point it at the disk to be measured.
Excluded: connecting, creating topics, consumers, TLS. A memory file system makes the figure worthless.
"""

from bench.settings import Settings
from bench.workloads import Bar, Workload

WORKLOAD = Workload(
    "single_fsync",
    Settings(durability="fsync"),
    (Bar("calls a second", lambda outcome: outcome.calls_per_s, least=30_000),),
)

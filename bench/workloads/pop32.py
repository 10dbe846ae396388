"""Pulls of 32 by 16 consumers.

Question: how many messages per second do 16 consumers of one group pull and acknowledge by 32, and at what CPU?
Settings: 16 pull connections drain 16 topics × 8 queues that hold 4,000,000 messages of 128 bytes; each pull
    acknowledges the last 32.
Excluded: filling the topics; the disk, since what was just written is in the page cache. The generator takes its share
    of the cores.
"""

from bench.settings import LoadSettings
from bench.workloads import Bar, Workload

WORKLOAD = Workload(
    "pop32",
    LoadSettings(mode="pull", consumers=16, max_messages=32, fill=4_000_000, warmup_s=0.5),
    (
        Bar("deliveries per second", lambda outcome: outcome.deliveries_per_s, least=400_000),
        Bar("CPU µs per message, all", lambda outcome: outcome.cpu_us_per_message(), most=5.0),
    ),
)

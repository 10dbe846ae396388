"""Pulls of 1,000.

Question: how many messages per second does one consumer proxy deliver when each pull asks for 1,000 and acknowledges
    the last 1,000?
Settings: 4 pull connections of one group drain 16 topics × 8 queues that hold 5,000,000 messages of 128 bytes.
Excluded: filling the topics; the disk, since what was just written is in the page cache.
"""

from bench.settings import LoadSettings
from bench.workloads import Bar, Workload

WORKLOAD = Workload(
    "pull1000",
    LoadSettings(mode="pull", consumers=4, max_messages=1000, fill=5_000_000, warmup_s=0.5),
    (Bar("deliveries per second", lambda outcome: outcome.deliveries_per_s, least=1_000_000),),
)

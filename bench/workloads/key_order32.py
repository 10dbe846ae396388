"""Pulls of 32 in order by key.

Question: how many messages per second do 16 consumers of one group take in order by key, with 10,000 keys at random?
Settings: as pop32, with 2,000,000 messages and a group of order "key": no message is dispatched before the earlier ones
    of its key are settled.
Excluded: as pop32.
"""

from bench.settings import LoadSettings
from bench.workloads import Bar, Workload

WORKLOAD = Workload(
    "key_order32",
    LoadSettings(mode="pull", consumers=16, max_messages=32, keys=10_000, order="key", fill=2_000_000, warmup_s=0.5),
    (Bar("deliveries per second", lambda outcome: outcome.deliveries_per_s, least=150_000),),
)

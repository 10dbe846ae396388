"""How many messages a second do 16 consumers of one group take in order by key, when 10,000 keys follow each other by chance?

Settings: as pop32, with 2,000,000 messages and a group of order "key": no message is given before the earlier ones of its key are done.
Excluded: as there.
"""

from bench.settings import Settings
from bench.workloads import Bar, Workload

WORKLOAD = Workload(
    "key_order32",
    Settings(mode="pull", consumers=16, max_messages=32, keys=10_000, order="key", fill=2_000_000, warmup_s=0.5),
    (Bar("deliveries a second", lambda outcome: outcome.deliveries_per_s, least=150_000),),
)

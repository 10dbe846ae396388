"""Single-message calls with consumers.

Question: how many single-message calls per second remain when everything is pulled and acknowledged at the same time?
Settings: single_memory, and 4 pull connections of one group that take up to 1,000 messages and wait up to 100 ms for
    the first.
Excluded: connecting, creating topics, TLS. CPU is that of all processes, per sent message.
"""

from bench.settings import LoadSettings
from bench.workloads import Bar, Workload

WORKLOAD = Workload(
    "single_with_consumers",
    LoadSettings(mode="both", consumers=4),
    (
        Bar("calls per second", lambda outcome: outcome.calls_per_s, least=27_600),
        Bar("CPU µs per message, all", lambda outcome: outcome.cpu_us_per_message(), most=30.5),
        Bar(
            "delivered share of the sent",
            lambda outcome: outcome.deliveries_per_s / max(1.0, outcome.messages_per_s),
            least=0.95,
        ),
    ),
)

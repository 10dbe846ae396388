"""Metrics of the fallback buffer.

| name | type, unit | what to do about it |
|---|---|---|
| penstock_buffer_entries{store} | messages waiting | growing though the engine is well: the log names the topic |
| penstock_buffer_bytes{store} | bytes waiting | growing though the engine is well: the log names the topic |
| penstock_buffer_oldest_seconds{store} | age of the oldest entry | near --buffer-age-max-s: the buffer is about to refuse |
| penstock_buffer_stored_total | messages answered BUFFERED | - |
| penstock_buffer_refused_total | messages that found no room or no working store | make room, or bring the engine back |
| penstock_buffer_drained_total{store} | entries given to the engine | - |
| penstock_buffer_undeleted{store} | entries in the engine that the store cannot delete yet | /readyz says why; a restart repeats them |
| penstock_buffer_drain_aim{store} | entries per second aimed at | below --buffer-drain-per-s for long: the loop is busy |
| penstock_buffer_dead{store} | entries on the dead-letter list | `penstock buffer export` |
| penstock_buffer_damaged_total{store} | entries or ranges of bytes that could not be read | check the disk; the log names file and bytes |
| penstock_buffer_working{store} | 1: the store takes entries | 0: /readyz says why |
| penstock_buffer_weak{store} | 1: the store has weaknesses that an operator allowed | the log and `--buffer-redis-accept` |
| penstock_buffer_engine_suspected | 1: buffered topics go straight into the buffer | look at the engine |
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from producer_proxy.buffer.buffering import Buffering


class BufferMetrics:
    """A collector over the stores."""

    def __init__(self, buffering: Buffering) -> None:
        self._buffering = buffering

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        buffering = self._buffering
        if not buffering.stores or buffering.buffer is None:
            return
        gauges = {
            name: GaugeMetricFamily(f"penstock_buffer_{name}", text, labels=["store"])
            for name, text in (
                ("entries", "messages waiting"), ("bytes", "bytes waiting"), ("oldest_seconds", "age of the oldest entry"),
                ("dead", "entries on the dead-letter list"),
                ("undeleted", "entries that the engine has and the store could not delete"), ("working", "whether the store takes entries"),
                ("weak", "1: has weaknesses that an operator allowed"),
            )
        }  # fmt: skip
        drained = CounterMetricFamily("penstock_buffer_drained", "entries given to the engine", labels=["store"])
        pace = GaugeMetricFamily(
            "penstock_buffer_drain_aim", "entries per second that the drain aims at", labels=["store"]
        )
        damaged = CounterMetricFamily("penstock_buffer_damaged", "entries that could not be read", labels=["store"])
        for name, store in buffering.stores.items():
            stats = store.stats()
            age_s = 0.0 if stats.oldest_at_ms is None else max(0, store.now_ms() - stats.oldest_at_ms) / 1000
            values = (
                stats.entries, stats.bytes, age_s, stats.dead, stats.undeleted,
                stats.fault is None and stats.refusal is None,
                stats.warning is not None,
            )  # fmt: skip
            for gauge, value in zip(gauges.values(), values, strict=True):
                gauge.add_metric([name], value)
            drainer = buffering.drainers.get(name)
            drained.add_metric([name], drainer.drained if drainer else 0)
            if drainer:
                pace.add_metric([name], drainer.pace.per_s)
            damaged.add_metric([name], stats.damaged)
        yield from (*gauges.values(), drained, pace, damaged)
        buffer = buffering.buffer
        yield CounterMetricFamily("penstock_buffer_stored", "messages answered BUFFERED", value=buffer.stored)
        yield CounterMetricFamily("penstock_buffer_refused", "messages that no store took", value=buffer.refused)
        yield GaugeMetricFamily(
            "penstock_buffer_engine_suspected", "1: buffered topics are not tried", value=buffer.suspects_engine
        )

"""Figures of topics from the producer proxies: how long a send takes, and what is refused, by code."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from common.ops.page_reader import Address
from common.ops.topic_figures import BUCKETS, FIRST_BOUND_S, TOPIC_FIGURES_PATH
from console.database.series_history import SeriesKey
from console.watching.counter_rates import CounterRates, quantile
from console.watching.figures import REFUSED, Sample

TOPICS_MAX = 100
"""Topics of one proxy per look: those that were used last. The answer takes the proxy some 0.2 ms."""
WITHIN_S = 15
BOUNDS = [FIRST_BOUND_S * 2**number for number in range(BUCKETS - 1)] + [math.inf]


def sender_key(topic: str, application: str, code: int) -> SeriesKey:
    """The series of what one application was refused; "": callers without a valid credential, and too many others."""
    return SeriesKey(f"sender:{topic}/{application}", f"{REFUSED}{code}")


class TopicPages:
    """
    Args:
        read: reads a page of an address, as (address, path); raises OSError.

    Attributes:
        left_out: topics that were used within the last seconds and are not in the last sample.
    """

    def __init__(self, read: Callable[[Address, str], str]) -> None:
        self._read = read
        self._rates = CounterRates()
        self._looked: dict[Address, float] = {}
        self.left_out = 0

    def sample(self, addresses: Iterable[Address], at_s: float) -> Sample:
        """The figures now. A proxy that does not answer, or is of an earlier version, has none."""
        refused: dict[SeriesKey, float] = defaultdict(float)
        times: dict[str, list[float]] = {}
        self.left_out = 0
        for address in addresses:
            before_s = self._looked.pop(address, None)
            try:
                told = json.loads(self._read(address, f"{TOPIC_FIGURES_PATH}?within_s={WITHIN_S}&limit={TOPICS_MAX}"))
                topics: Mapping[str, Any] = told["topics"]
                self.left_out += int(told["left_out"])
                for topic, each in topics.items():
                    self._add(address, topic, each, (before_s, at_s), refused, times)
                self._looked[address] = at_s
            except (OSError, ValueError, KeyError, TypeError):
                continue
        self._rates.forget_old(at_s)
        return {**refused, **_quantiles(times)}

    def _add(
        self, address: Address, topic: str, told: Mapping[str, Any], at: tuple[float | None, float],
        refused: dict[SeriesKey, float], times: dict[str, list[float]],
    ) -> None:  # fmt: skip
        for code, count in told["refused"].items():
            refused[SeriesKey(f"topic:{topic}", f"{REFUSED}{int(code)}")] += self._rate(
                (address, topic, code), count, at
            )
        for application, codes in told.get("by_application", {}).items():  # a proxy of an earlier version has none
            for code, count in codes.items():
                rate = self._rate((address, topic, "by", application, code), count, at)
                refused[sender_key(topic, application, int(code))] += rate
        buckets = times.setdefault(topic, [0.0] * BUCKETS)
        for number, count in enumerate(told["buckets"][:BUCKETS]):
            buckets[number] += self._rate((address, topic, "time", number), count, at)

    def _rate(self, counter: tuple[object, ...], value: float, at: tuple[float | None, float]) -> float:
        """One that the proxy did not have at the look before has grown from 0."""
        before_s, at_s = at
        if before_s is not None and not self._rates.knows(counter):
            self._rates.rate(counter, 0.0, before_s)
        return self._rates.rate(counter, value, at_s) or 0.0


def _quantiles(times: Mapping[str, list[float]]) -> Sample:
    found: Sample = {}
    for topic, counts in times.items():
        total, ordered = 0.0, []
        for bound, count in zip(BOUNDS, counts, strict=True):
            total += count
            ordered.append((bound, total))
        for share, name in ((0.5, "send_p50"), (0.99, "send_p99")):
            if (value := quantile(share, ordered)) is not None:
                found[SeriesKey(f"topic:{topic}", name)] = value
    return found

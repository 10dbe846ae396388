"""Throughput by the number of topics.

Settings: single-message calls over 16 connections, MEMORY, over 16, 256 and 10,000 topics × 8 queues, 128 B and 2 KiB,
one instance for the sends alone and one with 4 consumers; the numbers of topics are interleaved. With consumers 16 and
256 only: a pull names at most 256 topics.
Excluded: creating topics, connecting, TLS.
"""

from collections.abc import Callable
from contextlib import ExitStack

from bench import instance
from bench.alone.turns import in_turns
from bench.figures import Figure
from bench.measure import settle
from bench.settings import LoadSettings

LEAST = {256: 0.95, 10_000: 0.85}
SIZES = (128, 2048)
PULL_TOPICS_MAX = 256


def run(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    return [figure for mode in ("send", "both") for size in SIZES for figure in compared(mode, size, seconds, say)]


def compared(mode: str, size: int, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    """Compare more topics with 16."""
    counts = [16, *(count for count in LEAST if mode == "send" or count <= PULL_TOPICS_MAX)]
    name = f"{size:,} B{', consumers on' if mode == 'both' else ''}"
    say(f"flat: {name}, {' / '.join(f'{count:,}' for count in counts)} topics")
    with instance.own() as own, ExitStack() as stack:
        loads = []
        for count in counts:
            settings = LoadSettings(
                mode=mode, size=size, topics=count, topic_pattern=f"t{count}-%d", consumers=4, seconds=seconds,
                group=f"readers-{count}", timeout_s=30.0,
            )  # fmt: skip
            target = stack.enter_context(own.prepared(settings))
            settle(settings, target)
            loads.append((settings, target))
        totals = in_turns(loads)
    found = [Figure(f"{name}: 16 topics", totals[0].calls_per_s, "calls/s")]
    for count, total in zip(counts[1:], totals[1:], strict=True):
        share = total.calls_per_s / totals[0].calls_per_s
        found.append(Figure(f"{name}: {count:,} topics against 16", share, "", least=LEAST[count]))
    return found

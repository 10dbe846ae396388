"""Start time with a log of 10 GiB, after `kill -9` and after a clean stop.

Settings: messages of 2 KiB over 16 topics × 8 queues in calls of 200, MEMORY, until the log has 10 GiB (times --scale).
Then three kills and three clean stops; the longest of each counts, from the start of the engine's process to the first
message that is stored through the producer proxy. Excluded: the supervisor's back-off. The page cache stays warm, as
after a crash of the process alone.
"""

import signal
from collections.abc import Callable
from dataclasses import replace

from bench import instance
from bench.alone.restarting import seconds_to_first_send
from bench.figures import Figure
from bench.measure import fill, settle
from bench.settings import LoadSettings

LOG_BYTES = 10 << 30
SIZE = 2048
TIMES = 3
ON_DISK = SIZE + 60  # a message with its share of headers


def run(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    settings = LoadSettings(size=SIZE, fill=max(1, int(LOG_BYTES * scale) // ON_DISK))
    with instance.own() as own, own.prepared(settings) as target:
        settle(replace(settings, size=128), target)
        say(f"restart: {settings.fill:,} messages of {SIZE} B")
        fill(settings, target)
        took: dict[signal.Signals, list[float]] = {signal.SIGKILL: [], signal.SIGTERM: []}
        for _ in range(TIMES):
            for number, each in took.items():
                each.append(seconds_to_first_send(own.now(), target, settings.topic_names()[0], number))
                say(f"restart: {number.name} {each[-1]:.2f} s")
        held = own.log_bytes / (1 << 30)
    return [
        Figure("log", held, "GiB"),
        Figure(f"kill -9 to first stored message, longest of {TIMES}", max(took[signal.SIGKILL]), "s", most=3),
        Figure(f"clean stop to first stored message, longest of {TIMES}", max(took[signal.SIGTERM]), "s"),
    ]

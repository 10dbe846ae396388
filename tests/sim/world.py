"""Simulated worlds: engines, links and a virtual clock in one process, without gevent, sockets, files or threads.

    world = World(seed=7)
    engine = world.engine("a")
    link = engine.connect(owner)
    world.run(for_ms=86_400_000)
    world.trace()

Each step is an event in the world's heap, at a time in milliseconds. Events of the same time run in the order in which
they were added. All randomness comes from the world's seed, by name: an actor that is left out changes no other one's
choices. One seed gives one trace.
"""

import hashlib
import json
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

from engine.config import LogConfig
from tests.sim.engine import Engine

START_MS = 1_700_000_000_000


class World:
    """Time, randomness and trace of one simulation.

    Attributes:
        lines: the trace in words, when it is wanted.
        paused_ms: time for which an engine's loop has been blocked in the present event.
    """

    def __init__(self, seed: int, keep_lines: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now_ms = START_MS
        self.engines: dict[str, Engine] = {}
        self.events = 0
        self.paused_ms = 0
        self.lines: list[str] | None = [] if keep_lines else None
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._added = 0
        self._trace = hashlib.sha256()

    def random_of(self, name: str) -> Random:
        """Randomness of its own for one part of the world."""
        return Random(f"{self.seed}/{name}")

    def engine(self, name: str, log: LogConfig | None = None, **settings: object) -> Engine:
        """A new engine, started. `settings`: see Engine."""
        engine = self.engines[name] = Engine(self, name, log or LogConfig(segment_bytes=1 << 20), **settings)  # type: ignore[arg-type]
        engine.start()
        return engine

    def at(self, at_ms: int, call: Callable[[], None]) -> None:
        """Schedule `call()` at a time of the world."""
        self._added += 1
        heappush(self._heap, (at_ms if at_ms > self.now_ms else self.now_ms, self._added, call))

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Schedule `call()` after a delay."""
        self.at(self.now_ms + delay_ms, call)

    def run(self, for_ms: int) -> None:
        """Run the events of this span of time."""
        until_ms = self.now_ms + for_ms
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            at_ms, _, call = heappop(heap)
            if at_ms > self.now_ms:  # else a call has blocked the loop
                self.now_ms = at_ms
            self.events += 1
            self.paused_ms = 0
            call()
        self.now_ms = max(self.now_ms, until_ms)

    def note(self, *fields: object) -> None:
        """Add an event to the trace."""
        line = repr((self.now_ms, *fields))
        self._trace.update(line.encode())
        if self.lines is not None:
            self.lines.append(readable(self.now_ms - START_MS, fields))

    def trace(self) -> str:
        """A digest of the trace."""
        return self._trace.hexdigest()


def readable(at_ms: int, fields: tuple[object, ...]) -> str:
    """One line of the trace for people."""
    shown = [field if isinstance(field, str) else json.dumps(field, default=_brief) for field in fields]
    return f"{at_ms / 1000:10.3f}  {' '.join(shown)}"


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:150]}… {len(text)} characters"

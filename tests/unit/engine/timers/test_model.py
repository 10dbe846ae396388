"""A random life of timers against a model of every one of them: kills and power cuts at any operation, clocks that step, full segments.

The model knows for each id what it was told and what it may expect. At the end the clock runs on until nothing is pending, and the log must
hold every message exactly as often as it should have come: once (a loop: once a round), never before its time, and never after its
cancelling was confirmed.
"""

import errno
import os
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.env.simulated import PowerCut, ProcessEnded
from engine.errors import EngineError, PartlyWrittenError
from engine.link.codes import NOT_CANCELLABLE, OK
from tests.unit.engine.timers.rig import Rig

EXAMPLES = int(os.environ.get("PENSTOCK_LIVES", "40"))

DELAYS = st.one_of(st.integers(-50, 400), st.sampled_from([4095, 4096, 70_000, 16_777_216, 20_000_000]))


@dataclass
class Known:
    """What the model knows of one message."""

    due_ms: int
    rounds: int = 1
    gap_ms: int = 0
    confirmed: bool = False
    """Stored durably, so that it must come."""
    cancelled: str = ""
    """"asked" when a power cut came before the answer, "" or "yes"."""
    seen_at_cancel: int = 0
    times: list[int] = field(default_factory=list)


class Life(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1 << 30))
    def begin(self, seed: int) -> None:
        self.random = Random(seed)
        self.rig = Rig(segment_bytes=16 << 10)
        self.known: dict[str, Known] = {}
        self.number = 0
        self.latest_ms = 0

    def attempt(self, action, cut_after: int) -> bool:
        """Do it, with the power cut after so many operations of the disk (0: not at all); False when it was."""
        env = self.rig.env
        env.power_cut_at = env.operations + cut_after if cut_after else 0
        try:
            action()
        except PowerCut:
            env.power_cut_at = 0
            self.rig.cut_power(Random(self.random.random()))
            return False
        env.power_cut_at = 0
        return True

    @rule(
        delay_ms=DELAYS,
        rounds=st.sampled_from([1, 1, 1, 2, 5]),
        gap_ms=st.integers(1, 300),
        window_ms=st.sampled_from([0, 600_000]),
        cut=st.sampled_from([0, 0, 0, 1, 2]),
    )
    def add(self, delay_ms: int, rounds: int, gap_ms: int, window_ms: int, cut: int) -> None:
        self.number += 1
        name = f"m{self.number}"
        known = self.known[name] = Known(max(0, self.rig.now_ms + delay_ms), rounds, gap_ms if rounds > 1 else 0)

        def action() -> None:
            checked = 0 if rounds > 1 else window_ms
            loop = {"gap_ms": known.gap_ms, "times": rounds - 1}
            assert self.rig.add(name, known.due_ms, id_window_ms=checked, **loop) == OK
            self.rig.sync()
            known.confirmed = True

        self.attempt(action, cut)

    @rule(pick=st.integers(0, 1 << 20), cut=st.sampled_from([0, 0, 0, 1, 2]))
    def cancel(self, pick: int, cut: int) -> None:
        if not self.known:
            return
        name = f"m{1 + pick % self.number}"
        known = self.known[name]

        def action() -> None:
            seen = Counter(self.rig.fired())[name]
            known.cancelled = known.cancelled or "asked"
            code = self.rig.cancel(name)
            self.rig.sync()
            if code == OK:
                known.cancelled, known.seen_at_cancel = "yes", seen
            else:
                assert code == NOT_CANCELLABLE
                assert (
                    known.cancelled == "yes"
                    or seen == known.rounds
                    or not known.confirmed
                    or known.cancelled == "asked"
                )
                if known.cancelled == "asked" and seen == known.rounds:
                    known.cancelled = ""

        self.attempt(action, cut)

    @rule(
        ms=st.one_of(st.integers(0, 500), st.sampled_from([4096, 80_000])),
        cut=st.sampled_from([0, 0, 0, 1, 2, 3, 5, 9]),
    )
    def time_passes(self, ms: int, cut: int) -> None:
        self.attempt(lambda: self.rig.advance(ms), cut)

    @rule(hours=st.sampled_from([-1, 1]))
    def clock_steps(self, hours: int) -> None:
        self.latest_ms = max(self.latest_ms, self.rig.now_ms)
        self.rig.env.clock_ms += hours * 3_600_000
        self.rig.run()

    @rule(count=st.integers(1, 12), cut=st.sampled_from([0, 0, 4, 9]))
    def others_send(self, count: int, cut: int) -> None:
        self.attempt(lambda: [self.rig.fill() for _ in range(count)], cut)

    @rule(
        operation=st.sampled_from(["read", "store_read", "store", "write", "create", "allocate", "open", "sync"]),
        error=st.sampled_from([errno.EIO, errno.ENOSPC, errno.EMFILE]),
        ms=st.integers(0, 600),
    )
    def calls_fail(self, operation: str, error: int, ms: int) -> None:
        """As the node does: an error is tried again later, and one that leaves doubts ends the process."""
        env = self.rig.env
        env.fail(operation, error)
        ended = False
        try:
            self.rig.advance(ms)
        except (ProcessEnded, PartlyWrittenError):
            ended = True
        except (OSError, EngineError):
            pass
        env.heal()
        if ended:
            self.rig.kill()

    @rule()
    def killed(self) -> None:
        self.rig.kill()

    @rule()
    def power_cut(self) -> None:
        self.rig.cut_power(Random(self.random.random()))

    @rule()
    def restarted(self) -> None:
        self.rig.restart()

    @rule(cut=st.sampled_from([0, 0, 3, 6]))
    def checkpoint(self, cut: int) -> None:
        self.attempt(self.rig.log.checkpoint, cut)

    @rule(steps=st.integers(1, 30), cut=st.sampled_from([0, 0, 2, 5, 11]))
    def oldest_segment_goes(self, steps: int, cut: int) -> None:
        """Retention by size, so that it does not matter what time it is."""
        self.rig.log.retention._config = self.rig.config.__class__(
            **{**vars(self.rig.config), "log_bytes_max": 40 << 10}
        )

        def action() -> None:
            for _ in range(steps):
                self.rig.env.clock_ms += 1
                self.rig.log.retention.step(self.rig.timers)
                self.rig.timers.step()

        self.attempt(action, cut)

    @rule()
    def state_is_lost(self) -> None:
        self.rig.sync()
        self.rig.env.end_process()
        self.rig.env.stores.clear()
        self.rig.open()

    @invariant()
    def nothing_came_early(self) -> None:
        if not hasattr(self, "rig"):
            return
        seen: dict[str, list[int]] = {}
        for name, _, _, stored_at_ms in self.rig.stored():
            seen.setdefault(name, []).append(stored_at_ms)
        for name, times in seen.items():
            known = self.known[name]
            for number, at_ms in enumerate(sorted(times)):
                assert at_ms >= known.due_ms + number * known.gap_ms, name

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        for _ in range(5000):
            pause = self.rig.timers.step()
            if pause is None:
                break
            next_at = self.rig.timers.table.next_at()
            self.rig.env.clock_ms += max(pause, 1, 0 if next_at is None else next_at - self.rig.now_ms)
        self.nothing_came_early()
        counts = Counter(self.rig.fired())
        kept = {name for name in self.known if not self.gone(name)}
        for name in kept:
            known = self.known[name]
            if known.cancelled == "yes":
                assert counts[name] == known.seen_at_cancel, (name, known)
            elif known.cancelled or not known.confirmed:
                assert counts[name] <= known.rounds, (name, known)
            else:
                assert counts[name] == known.rounds, (name, known, counts[name])

    def gone(self, name: str) -> bool:
        """Whether retention may have taken delivered messages; how often it came cannot be told from the log then."""
        latest_ms = max(self.latest_ms, self.rig.now_ms)  # it may have come before the clock was set back
        return self.rig.log.retention.oldest_base > 0 and self.known[name].due_ms < latest_ms


LifeTest = Life.TestCase
LifeTest.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=30,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)

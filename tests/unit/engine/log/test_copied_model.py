"""Copied batches against a model: whatever copiers, zombies, restarts, power cuts and retention do, nothing is passed over."""

import logging
from random import Random

import pytest
from copier import OTHER, SOURCE, Copier, stored_offsets
from forms import forms, load
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from machine import Machine

from engine.env.simulated import SimulatedEnv
from engine.errors import SourceMovedError
from engine.link.codes import OK, SOURCE_MOVED

COPIERS = st.integers(0, 2)


class CopiedModel(RuleBasedStateMachine):
    """Three copiers of one source into queue 0; copier 2 is a zombie that never asks for the state.

    `copied`: source offsets of the present number that the log must have, in order; `synced`: how many of them a power
    cut may not take.
    """

    form = "twin"

    @initialize(segment=st.sampled_from([4096, 8192]))
    def begin(self, segment: int) -> None:
        self.m = Machine(load(self.form), SimulatedEnv(), "/data", segment_bytes=segment, log_bytes_max=6 * segment)
        self.copiers = [Copier(self.m) for _ in range(3)]
        self.copiers[0].accept()
        self.number, self.start = 1, 0
        for each in self.copiers:
            each.ask()
        self.m.durable()
        self.copied: list[int] = []
        self.synced = 0

    @rule(who=COPIERS, gap=st.integers(0, 3), count=st.integers(1, 4), size=st.integers(0, 500))
    def copy(self, who: int, gap: int, count: int, size: int) -> None:
        copier = self.copiers[who]
        first = copier.next + gap
        fits = copier.number == self.number and copier.next == self.next and copier.source == self.source
        result = copier.copy(*range(first, first + count), size=size)
        assert (result.code == OK) == fits, result
        if fits:
            self.copied += range(first, first + count)
        else:
            assert (result.code, result.number, result.next) == (SOURCE_MOVED, self.number, self.next)

    @rule(who=st.integers(0, 1))
    def ask(self, who: int) -> None:
        self.copiers[who].ask()
        self.copiers[who].source = self.source

    @rule(who=COPIERS, start=st.integers(0, 5), source=st.sampled_from([SOURCE, OTHER]))
    def accept(self, who: int, start: int, source) -> None:
        copier = self.copiers[who]
        is_present = copier.number == self.number
        copier.source = source
        try:
            copier.accept(start=start, replaces=copier.number)
        except SourceMovedError:
            assert not is_present
            return
        if is_present:
            self.number, self.start, self.copied, self.synced = self.number + 1, start, [], 0
            self.m.durable()  # or a power cut could bring back the earlier source
        assert copier.number == self.number

    @rule(queue=st.integers(0, 1), size=st.integers(1, 600))
    def append(self, queue: int, size: int) -> None:
        self.m.append(1, queue, bytes(size))

    @rule()
    def sync(self) -> None:
        assert self.m.durable()
        self.synced = len(self.copied)

    @rule()
    def checkpoint(self) -> None:
        self.m.log.checkpoint()
        self.synced = len(self.copied)

    @rule()
    def retain(self) -> None:
        for _ in range(20):
            self.m.env.clock_ms += self.m.log.retention.step()

    @rule(how=st.sampled_from(["stop", "kill", "lost view", "lost indexes"]))
    def restart(self, how: str) -> None:
        if how == "kill":
            self.m.kill()
            return
        self.m.close()
        if how != "stop":
            self.m.env.stores.clear()
        for path in [path for path in self.m.env.files if path.endswith(".idx") and how == "lost indexes"]:
            del self.m.env.files[path]
        self.m.open()
        self.synced = len(self.copied)

    @rule(seed=st.one_of(st.none(), st.integers(0, 1 << 16)))
    def power_cut(self, seed: int | None) -> None:
        self.m.crash(None if seed is None else Random(seed))
        following = self.m.log.copied.state(1, 0).next
        kept = [offset for offset in self.copied if offset < following]
        assert len(kept) >= self.synced
        if self.m.log.damage:
            # What lies after the damage is copied again; a new queue keeps the model simple.
            assert set(kept) <= set(self.readable) | set(range(self.gone))
            self.begin(4096)
            return
        self.copied, self.synced = kept, len(kept)

    @property
    def source(self):
        return self.m.log.copied.sources(1, 0)[-1].source

    @property
    def next(self) -> int:
        return self.copied[-1] + 1 if self.copied else self.start

    @property
    def readable(self) -> list[int]:
        """Source offsets of the present number that can be read."""
        first = self.m.log.copied.sources(1, 0)[-1].first
        begin = self.m.log.bounds(1, 0)[0]
        return [each for each in stored_offsets(self.m)[max(0, first - begin) :] if each is not None]

    @property
    def gone(self) -> int:
        """Below this source offset retention has deleted records."""
        found = self.readable
        return found[0] if found else self.next

    @invariant()
    def state_and_records_agree(self) -> None:
        if hasattr(self, "m"):
            state = self.m.log.copied.state(1, 0)
            assert (state.number, state.next) == (self.number, self.next)
            found = self.readable
            assert found == self.copied[len(self.copied) - len(found) :]
            if self.m.log.bounds(1, 0)[0] <= self.m.log.copied.sources(1, 0)[-1].first:
                assert found == self.copied

    def teardown(self) -> None:
        if hasattr(self, "m"):
            self.m.close()


@pytest.mark.parametrize("form", forms())
def test_each_record_of_the_source_is_stored_once_and_in_order(form, caplog):
    caplog.set_level(logging.CRITICAL)
    model = type(f"Model{form}", (CopiedModel,), {"form": form})
    bounds = settings(max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(model, settings=bounds)


def test_the_model_can_fail(caplog, monkeypatch):
    """A log whose next offset stays behind must be caught, or the test above proves nothing."""
    caplog.set_level(logging.CRITICAL)
    copied = load("twin").log.LogWriter.__init__.__globals__["CopiedQueues"]
    monkeypatch.setattr(copied, "_take", lambda self, batch, offset: self.state(1, 0))
    model = type("ModelBroken", (CopiedModel,), {"form": "twin"})
    bounds = settings(max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
    with pytest.raises(AssertionError):
        run_state_machine_as_test(model, settings=bounds)

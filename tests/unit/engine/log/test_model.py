"""The log against a dictionary, through any order of appends, reads, syncs, stops, kills and power cuts."""

import logging
from random import Random

import pytest
from forms import forms, load
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from machine import NOW, Machine

from engine.env.simulated import SimulatedEnv
from engine.errors import CorruptionError

QUEUES = [(1, 0), (1, 1), (2, 0)]


class LogModel(RuleBasedStateMachine):
    """`written` is what must be readable now, `confirmed` how much of each queue a power cut may not take."""

    form = "twin"

    @initialize(segment=st.sampled_from([4096, 8192]), short=st.sampled_from([1 << 30, 100]))
    def begin(self, segment: int, short: int) -> None:
        env = SimulatedEnv()
        env.write_bytes_max = short
        self.m = Machine(load(self.form), env, "/data", segment_bytes=segment)
        self.m.durable()
        self.written: dict[tuple[int, int], list[bytes]] = {key: [] for key in QUEUES}
        self.confirmed = dict.fromkeys(QUEUES, 0)
        self.progress: dict[bytes, bytes] = {}
        # What progress was at the last confirmation and after each change since: a power cut may leave any of them.
        self.progress_since: list[dict[bytes, bytes]] = [{}]
        self.counter = 0

    @rule(
        batches=st.lists(
            st.tuples(st.sampled_from(QUEUES), st.lists(st.integers(1, 400), min_size=1, max_size=4)),
            min_size=1,
            max_size=6,
        )
    )
    def append(self, batches) -> None:
        frame, expected = b"", []
        for key, sizes in batches:
            bodies = [self._body(size) for size in sizes]
            frame += self.m.batch(*key, bodies)
            expected.append((0, len(self.written[key])))
            self.written[key] += bodies
        assert self.m.log.append(frame, len(batches), NOW + self.counter) == expected

    @rule(key=st.sampled_from([b"a", b"b", b"ab"]), value=st.binary(max_size=8))
    def put_progress(self, key: bytes, value: bytes) -> None:
        self.m.log.put_progress([(key, value)])
        self.progress[key] = value
        if not value:
            del self.progress[key]
        self.progress_since.append(dict(self.progress))

    @rule()
    def sync(self) -> None:
        assert self.m.durable()
        self._confirm()

    @rule()
    def checkpoint(self) -> None:
        self.m.log.checkpoint()
        self._confirm()

    @rule()
    def stop_and_start(self) -> None:
        self.m.reopen()
        self._confirm()

    @rule()
    def kill(self) -> None:
        self.m.kill()

    @rule(lose_state=st.booleans())
    def stop_and_lose_what_can_be_rebuilt(self, lose_state: bool) -> None:
        self.m.close()
        for path in [path for path in self.m.env.files if path.endswith(".idx")]:
            del self.m.env.files[path]
        if lose_state:
            self.m.env.stores.clear()
        self.m.open()
        self._confirm()

    @rule()
    def power_cut(self) -> None:
        self.m.crash()
        for key in QUEUES:
            end = self.m.log.bounds(*key)[1]
            assert end >= self.confirmed[key]
            del self.written[key][end:]
        found = dict(self.m.log.progress())
        assert found in self.progress_since
        self.progress = found
        self._confirm()

    @rule(seed=st.integers(0, 1 << 16))
    def power_cut_that_tears(self, seed: int) -> None:
        self.m.durable()
        self._confirm()
        self.m.append(1, 0, self._body(700), self._body(900))
        self.m.crash(Random(seed))
        end = self.m.log.bounds(1, 0)[1]
        if end > len(self.written[1, 0]):
            self.written[1, 0] += [next(iter(self.m.form.format.split_records(p.records))) for o in range(2)
                                   for p in self.m.log.read(1, 0, end - 2 + o, 1, 1)]  # fmt: skip
        self._confirm()

    @rule(key=st.sampled_from(QUEUES), where=st.floats(0, 1), records=st.integers(1, 50), size=st.integers(0, 5000))
    def read_anywhere(self, key, where: float, records: int, size: int) -> None:
        offset = int(where * len(self.written[key]))
        assert self.m.bodies(*key, offset, records, size) == self.written[key][offset:]

    @invariant()
    def bounds_agree(self) -> None:
        if hasattr(self, "m"):
            for key in QUEUES:
                assert self.m.log.bounds(*key) == (0, len(self.written[key]))
            assert dict(self.m.log.progress()) == self.progress

    def teardown(self) -> None:
        if hasattr(self, "m"):
            for key in QUEUES:
                assert self.m.bodies(*key) == self.written[key]
            assert self.m.log.damage == []

    def _body(self, size: int) -> bytes:
        self.counter += 1
        return (b"%d," % self.counter * size)[:size]

    def _confirm(self) -> None:
        self.confirmed = {key: len(bodies) for key, bodies in self.written.items()}
        self.progress_since = [dict(self.progress)]


@pytest.mark.parametrize("form", forms())
def test_the_log_agrees_with_a_dictionary(form, caplog):
    caplog.set_level(logging.CRITICAL)
    model = type(f"Model{form}", (LogModel,), {"form": form})
    bounds = settings(max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(model, settings=bounds)


def test_the_model_can_fail(caplog):
    """A log that forgets a confirmed batch must be caught, or the test above proves nothing."""
    caplog.set_level(logging.CRITICAL)

    class Forgetful(LogModel):
        @rule()
        def sync(self) -> None:
            self._confirm()

        @rule()
        def sync_then_cut(self) -> None:
            self.m.append(1, 0, b"lost")
            self.written[1, 0].append(b"lost")
            self.sync()
            self.power_cut()

    bounds = settings(max_examples=50, deadline=None, database=None, phases=[Phase.generate], print_blob=False)
    with pytest.raises((AssertionError, CorruptionError)):
        run_state_machine_as_test(Forgetful, settings=bounds)

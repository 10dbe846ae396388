"""Zeros written ahead of the end, for logs that somebody waits for."""

from itertools import pairwise

import pytest
from forms import forms, load
from machine import Machine

from engine.env.simulated import SimulatedEnv
from engine.log.write.prefill import PREFILL_BYTES, WRITE_BYTES

MIB = 1 << 20


@pytest.fixture(params=forms())
def machine(request):
    made = Machine(load(request.param), SimulatedEnv(), "/data", segment_bytes=4 * MIB)
    yield made
    made.close()


@pytest.fixture
def zeros(machine, monkeypatch):
    """(at, size) of every piece written ahead."""
    written = []
    file_class = type(machine.log.segments.active.file)
    write_at = file_class.write_at

    def write(self, data, at):
        if self.path.endswith(".seg") and not bytes(data).strip(b"\0"):
            written.append((at, len(data)))
        return write_at(self, data, at)

    monkeypatch.setattr(file_class, "write_at", write)
    return written


def test_a_log_that_nobody_waits_for_is_written_once(machine, zeros):
    for _ in range(300):
        machine.append(1, 0, b"x" * 8000)
    assert zeros == []


def test_zeros_are_ahead_of_the_end_whenever_somebody_waits_and_never_over_a_record(machine, zeros):
    held = []
    while len(held) < 1300:  # three segments
        held.append(b"%d," % len(held) * 1500)
        machine.append(1, 0, held[-1])
        assert machine.durable()
    assert machine.bodies(1, 0) == held
    machine.crash()
    assert machine.bodies(1, 0) == held
    assert all(size <= PREFILL_BYTES for _, size in zeros)
    assert sum(size for _, size in zeros) <= 4 * 4 * MIB


def test_zeros_follow_one_another_without_a_gap(machine, zeros):
    for _ in range(300):
        machine.append(1, 0, b"x" * 8000)
        assert machine.durable()
    for (at, size), (following, _) in pairwise(zeros):
        assert following == at + size
    assert [size for _, size in zeros[1:4]] == [WRITE_BYTES] * 3


def test_a_disk_that_refuses_them_does_not_refuse_the_sync(machine, monkeypatch):
    machine.append(1, 0, b"kept")
    file = machine.log.segments.active.file

    def refuse(data, at):
        raise OSError(28, "no room")

    monkeypatch.setattr(file, "write_at", refuse, raising=False)
    assert machine.durable()

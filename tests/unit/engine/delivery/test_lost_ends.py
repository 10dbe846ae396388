"""Offsets of a queue whose last batch was destroyed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "log"))

from forms import forms, load
from machine import Machine

from engine.delivery import progress
from engine.delivery.lost_ends import raise_lost_ends
from engine.env.simulated import SimulatedEnv
from engine.errors import CorruptionError


@pytest.fixture(params=forms())
def machine(request: pytest.FixtureRequest) -> Machine:
    """A queue of five messages that a group has done, with the last one's bytes destroyed, before another queue's."""
    made = Machine(load(request.param), SimulatedEnv(), "/data", segment_bytes=1 << 16)
    for number in range(4):
        made.append(1, 0, b"%d" % number)
    at = made.log.end_position
    made.append(1, 0, b"4")
    made.append(1, 1, b"of another queue")
    done = progress.encode(progress.Progress(0, 5, []))
    made.log.put_progress([(progress.key("group", 1, 0), done)])
    made.env.end_process()
    made.log = None
    made.destroyed_at, made.destroyed = at, bytes(made.env.files[f"/data/log/{0:020d}.seg"].seen[at : at + 48])
    made.damage(f"/data/log/{0:020d}.seg", at, b"\xff" * 48)
    made.open()
    return made


def test_a_queue_whose_last_batch_is_destroyed_continues_above_what_groups_have_reached(machine):
    assert machine.log.headers_lost
    raise_lost_ends(machine.log)
    assert machine.append(1, 0, b"new") == 5
    assert machine.append(1, 1, b"of another queue, too") == 1


def test_the_raised_end_survives_restarts_sealed_segments_and_the_loss_of_the_view(machine):
    raise_lost_ends(machine.log)
    while len(machine.log.segments.sealed.bases) < 2:
        machine.append(1, 1, bytes(5000))
    machine.log.checkpoint()
    machine.reopen()
    assert not machine.log.headers_lost
    machine.close()
    machine.env.stores.clear()
    machine.open()
    assert machine.append(1, 0, b"new") == 5


def test_a_raised_queue_ends_there_at_once_so_that_what_is_lost_is_stepped_over(machine):
    raise_lost_ends(machine.log)
    assert machine.log.bounds(1, 0) == (0, 5)
    with pytest.raises(CorruptionError, match="lost up to 5"):
        machine.log.read(1, 0, 4, 10, 1 << 20)


def test_messages_after_a_raised_end_keep_their_offsets_when_their_segment_is_sealed(machine):
    raise_lost_ends(machine.log)
    machine.append(1, 0, b"new")
    while len(machine.log.segments.sealed.bases) < 2:
        machine.append(1, 1, bytes(5000))
    assert machine.append(1, 0, b"newer") == 6
    machine.close()
    machine.open()
    assert machine.append(1, 0, b"newest") == 7
    assert machine.bodies(1, 0, 5) == [b"new", b"newer", b"newest"]


def test_a_raised_end_holds_after_a_start_that_does_not_meet_the_damage(machine):
    machine.log.raise_ends([(1, 1, 9)])
    machine.env.end_process()
    machine.log = None
    machine.damage(f"/data/log/{0:020d}.seg", machine.destroyed_at, machine.destroyed)
    machine.open()
    assert not machine.log.damage
    assert machine.append(1, 1, b"new") == 9


def test_a_start_that_ends_before_it_has_raised_the_ends_leaves_that_to_the_next_one(machine):
    """The first start writes the index file of the full segment, which hides the damage."""
    while len(machine.log.segments.sealed.bases) < 1:
        machine.append(1, 1, bytes(5000))
    machine.env.end_process()
    machine.log = None
    machine.env.unlink(f"/data/log/{0:020d}.idx")
    machine.env.stores.clear()
    machine.open()
    assert machine.log.headers_lost
    for _ in range(2):
        machine.env.end_process()
        machine.log = None
        machine.open()
        assert machine.log.headers_lost
    raise_lost_ends(machine.log)
    machine.log.checkpoint()
    machine.reopen()
    assert not machine.log.headers_lost
    assert machine.append(1, 0, b"new") == 5


def test_ends_are_raised_again_when_the_view_and_the_record_of_the_raised_end_are_both_lost(machine):
    at = machine.log.end_position
    raise_lost_ends(machine.log)
    while len(machine.log.segments.sealed.bases) < 1:
        machine.append(1, 1, bytes(5000))
    machine.close()
    machine.env.stores.clear()
    machine.damage(f"/data/log/{0:020d}.seg", at + 60, b"\xff")
    machine.open()
    assert machine.log.headers_lost
    raise_lost_ends(machine.log)
    assert machine.append(1, 0, b"new") == 5


def damaged_body(machine: Machine) -> None:
    """Append the only batch of a queue, destroy its body, and start again."""
    at = machine.log.end_position
    machine.append(1, 2, b"its only message")
    machine.append(1, 1, b"of another queue")
    machine.env.end_process()
    machine.log = None
    machine.damage(f"/data/log/{0:020d}.seg", at + 48, b"\xff" * 16)
    machine.open()


@pytest.mark.parametrize("is_topic_new", [False, True])
def test_a_queue_without_groups_continues_after_a_batch_whose_header_is_sound(machine, is_topic_new):
    if not is_topic_new:
        machine.log.checkpoint()
    damaged_body(machine)
    raise_lost_ends(machine.log)
    while len(machine.log.segments.sealed.bases) < 1:
        machine.append(1, 1, bytes(5000))
    machine.close()
    machine.env.stores.clear()
    machine.open()
    assert machine.append(1, 2, b"new") == 1


def test_ends_hold_when_the_record_of_the_first_one_begins_a_segment(machine):
    done = progress.encode(progress.Progress(0, 1, []))
    machine.log.put_progress([(progress.key("group", 1, 2), done)])
    machine.log.checkpoint()
    damaged_body(machine)
    room = machine.log.segments.active.next_base - machine.log.end_position
    machine.append(1, 1, bytes(room - 48 - 5 - 16))
    machine.kill()
    raise_lost_ends(machine.log)
    assert machine.log.segments.sealed.bases, "the record began a segment"
    while len(machine.log.segments.sealed.bases) < 2:
        machine.append(1, 1, bytes(5000))
    machine.reopen()
    assert [machine.append(1, queue, b"new") for queue in (0, 2)] == [5, 1]


@pytest.mark.parametrize("form", forms())
def test_messages_that_a_power_cut_took_from_the_end_of_a_full_segment_leave_their_offsets(form):
    """Their bytes are zero again, as if they had never been used, and the record of progress after them was kept."""
    machine = Machine(load(form), SimulatedEnv(), "/data", segment_bytes=1 << 16)
    machine.append(1, 0, b"0")
    at = machine.log.end_position
    machine.append(1, 0, b"1")
    size = machine.log.end_position - at
    machine.append(1, 1, bytes(machine.log.segments.active.next_base - machine.log.end_position))
    assert machine.log.segments.sealed.bases, "the queue's last message is the last one of its segment"
    machine.log.put_progress([(progress.key("group", 1, 0), progress.encode(progress.Progress(0, 2, [])))])
    machine.env.end_process()
    machine.log = None
    machine.damage(f"/data/log/{0:020d}.seg", at, bytes(size))
    machine.env.unlink(f"/data/log/{0:020d}.idx")
    machine.env.stores.clear()
    machine.open()
    assert [(each.position, each.bytes_lost) for each in machine.log.damage] == [(at, size)]
    raise_lost_ends(machine.log)
    assert machine.append(1, 0, b"new") == 2


def test_no_other_topic_gets_the_id_of_one_whose_record_is_destroyed(machine):
    at = machine.log.end_position
    (lost,) = machine.log.create_topics([("lost", 1)])
    machine.append(lost.id, 0, b"of a topic that is lost")
    machine.env.end_process()
    machine.log = None
    machine.damage(f"/data/log/{0:020d}.seg", at, b"\xff" * 48)
    machine.open()
    assert machine.log.topic("lost") is None
    (other,) = machine.log.create_topics([("other", 1)])
    assert other.id > lost.id


def test_nothing_is_raised_without_such_damage(machine):
    raise_lost_ends(machine.log)
    end = machine.log.end_position
    raise_lost_ends(machine.log)
    assert machine.log.end_position == end

"""Definitions that are lost, late or unreadable, and clocks that are set: nothing is deleted because of them."""

import errno
import logging

import pytest
from machine import Machine

from engine.env.simulated import SimulatedEnv, SimulatedFile
from engine.log.read.retentions import OWN, Retention
from engine.log.upkeep.log_time import RESTART_MS

HOUR = 3_600_000
LONG = Retention(age_ms=1000 * HOUR)


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL)


class Definitions:
    """What the configuration says of topics; a topic that is not there has no definition that can be read."""

    is_known = True

    def __init__(self, **found: Retention) -> None:
        self.found, self.generation = found, 1

    def of(self, topic: str) -> Retention | None:
        return self.found.get(topic)

    def change(self, **found: Retention) -> None:
        self.found, self.generation = found, self.generation + 1


class Node:
    """A log with three full segments of topic "first", whose messages are an hour old, and definitions of its topics."""

    def __init__(self, form, **found: Retention) -> None:
        self.policy = Definitions(**found)
        self.m = Machine(form, SimulatedEnv(), "/data", retention_ms=HOUR)
        self.use_policy()
        for _ in range(60):
            self.store()
        self.end = self.m.log.bounds(1, 0)[1]

    def store(self) -> None:
        """Append one message at the wall clock's time."""
        self.m.log.append(self.m.batch(1, 0, [bytes(500)]), 1, self.m.env.now_ms())

    def use_policy(self) -> None:
        self.m.log.start_offsets.policy = self.policy

    def run(self, hours: float = 0.01) -> None:
        """Let time pass."""
        until = self.m.env.clock_ms + hours * HOUR
        while self.m.env.clock_ms < until:
            self.m.env.clock_ms += self.m.log.retention.step()

    def skip(self, hours: float) -> None:
        """Let time pass in which nothing runs but the clocks are compared."""
        self.m.env.clock_ms += round(hours * HOUR)
        self.run()

    def restart(self, **loss: bool) -> None:
        if loss.get("state"):
            self.m.close()
            self.m.env.stores.clear()
            self.m.open()
        else:
            self.m.reopen()
        self.use_policy()

    @property
    def deleted(self) -> bool:
        return self.m.log.bounds(1, 0)[0] > 0


def test_messages_outlive_the_loss_of_their_topics_definition(form):
    node = Node(form, first=LONG, second=LONG)
    node.run()
    node.policy.change()
    node.skip(900)
    assert not node.deleted
    node.policy.change(first=LONG, second=LONG)
    node.skip(50)
    assert not node.deleted
    node.skip(60)
    assert node.deleted


@pytest.mark.parametrize("state", [False, True])
def test_messages_outlive_a_restart_without_their_topics_definition(form, state):
    node = Node(form, first=LONG, second=LONG)
    node.run()
    node.policy.change()
    node.restart(state=state)
    node.skip(900)
    assert not node.deleted
    assert node.m.log.retentions.of(1) == Retention(1000 * HOUR, 0, OWN)
    assert node.m.log.retention.held == ""


def test_a_topic_of_which_nothing_is_known_keeps_its_messages_and_says_so(form):
    node = Node(form, second=Retention())
    node.skip(900)
    assert not node.deleted
    assert node.m.log.retention.held.startswith("topic=first: no definition can be found or read")
    node.policy.change(first=Retention(), second=Retention())
    node.run()
    assert node.deleted
    assert node.m.log.retention.held == ""


def test_the_last_known_retention_counts_while_the_definition_is_missing(form):
    node = Node(form, first=Retention(age_ms=5 * HOUR), second=Retention())
    node.run()
    node.policy.change(second=Retention())
    node.skip(3)
    assert not node.deleted
    node.skip(3)
    assert node.deleted


def test_a_topic_that_lost_its_entry_keeps_its_retention_under_a_familys_shorter_one(form):
    node = Node(form, first=LONG, second=Retention())
    node.run()
    node.policy.change(first=Retention(age_ms=HOUR, rank=2, family="fi"), second=Retention())
    node.skip(900)
    assert not node.deleted
    # The entry was deleted on purpose: the family's retention counts.
    node.policy.change(first=Retention(age_ms=HOUR, rank=OWN, family="fi"), second=Retention())
    node.run()
    assert node.deleted


def test_a_familys_retention_is_kept_once_for_all_of_its_topics(form):
    node = Node(form)
    topics = node.m.log.create_topics([(f"many-{number}", 1) for number in range(300)])
    family = Retention(age_ms=7 * HOUR, rank=5, family="many-")
    node.policy.change(**{topic.name: family for topic in topics})
    node.run()
    kept = dict(node.m.log.progress(b"\0retention "))
    assert list(kept) == [b"\0retention fmany-"]
    node.policy.change()
    assert node.m.log.retentions.of(topics[250].id) == family
    node.policy.change(**{topic.name: Retention(rank=5, family="many-") for topic in topics})
    node.run()
    assert not dict(node.m.log.progress(b"\0retention "))


def test_topics_without_a_retention_of_their_own_leave_no_record(form):
    node = Node(form, first=Retention(), second=Retention())
    end = node.m.log.end_position
    node.run()
    assert node.m.log.end_position == end


def test_a_retention_that_changes_on_purpose_counts_and_is_kept(form):
    node = Node(form, first=LONG, second=Retention())
    node.run()
    node.policy.change(first=Retention(), second=Retention())
    node.run()
    assert not dict(node.m.log.progress(b"\0retention "))
    node.skip(2)
    assert node.deleted


def test_kept_retentions_outlive_their_segment(form):
    node = Node(form, first=Retention(age_ms=5 * HOUR), second=LONG)
    node.run()
    node.skip(6)
    assert node.deleted
    node.policy.change()
    node.restart(state=True)
    assert node.m.log.retentions.of(2) == Retention(1000 * HOUR, 0, OWN)


def test_a_clock_that_steps_far_ahead_deletes_and_hides_nothing(form):
    node = Node(form, first=Retention(age_ms=10 * HOUR), second=Retention())
    node.run()
    node.m.env.wall_shift_ms += 1000 * HOUR
    node.run(3)
    assert node.m.log.bounds(1, 0) == (0, node.end)
    assert "3,600,000 s ahead" in node.m.log.retention.held
    assert node.m.log.retention.clock_ahead_ms == 1000 * HOUR
    node.m.env.wall_shift_ms -= 1000 * HOUR
    node.run()
    assert node.m.log.retention.held == "" and not node.deleted
    node.run(8)
    assert node.deleted


def test_a_step_ahead_stays_uncounted_over_a_restart_although_later_messages_are_stamped_with_it(form):
    node = Node(form, first=Retention(age_ms=10 * HOUR), second=Retention())
    node.run()
    node.m.env.wall_shift_ms += 1000 * HOUR
    node.run(1)
    node.m.log.append(node.m.batch(2, 0, [b"stamped ahead"]), 1, node.m.env.now_ms())
    node.restart()
    node.run(3)
    assert not node.deleted
    assert node.m.log.retention.clock_ahead_ms == 1000 * HOUR


def test_a_step_ahead_counts_after_it_has_been_there_for_its_own_size(form):
    node = Node(form, first=Retention(age_ms=10 * HOUR), second=Retention())
    node.run()
    node.m.env.wall_shift_ms += 6 * HOUR
    node.run(5)
    assert not node.deleted
    node.store()
    node.restart()
    node.run(1.2)
    assert node.deleted


def test_an_operator_accepts_a_clock(form):
    node = Node(form, first=Retention(age_ms=10 * HOUR), second=Retention())
    node.m.env.wall_shift_ms += 1000 * HOUR
    node.run()
    assert not node.deleted
    node.m.log.retention.accept_clock()
    node.run()
    assert node.deleted


def test_a_clock_that_is_far_ahead_of_the_newest_record_at_a_start_does_not_count_yet(form):
    node = Node(form, first=Retention(age_ms=10 * HOUR), second=Retention())
    node.m.close()
    node.m.env.wall_shift_ms += 100 * HOUR
    node.m.open()
    node.use_policy()
    node.run(1)
    assert not node.deleted
    assert node.m.log.retention.clock_ahead_ms == 100 * HOUR - RESTART_MS


def test_a_clock_that_steps_back_deletes_nothing_and_goes_on(form):
    node = Node(form, first=Retention(age_ms=10 * HOUR), second=Retention())
    node.run()
    node.m.env.wall_shift_ms -= 3 * HOUR
    node.run(11)
    assert not node.deleted
    node.run(3)
    assert node.deleted


def test_a_clock_that_is_back_for_a_while_hides_no_message_early(form):
    """Messages of that while seemed an hour too old, and with them all before them."""
    node = Node(form, first=Retention(age_ms=HOUR // 2), second=Retention())
    node.run()
    node.m.env.wall_shift_ms -= HOUR
    node.store()
    node.m.env.wall_shift_ms += HOUR
    assert node.m.log.offset_at_time(1, 0, node.m.env.now_ms() - HOUR // 2) == 0


def test_a_step_back_from_a_time_that_was_not_believed_counts_at_once(form):
    node = Node(form, first=Retention(age_ms=HOUR // 2), second=Retention())
    node.run()
    node.m.env.wall_shift_ms += 100 * HOUR
    node.run()
    node.store()
    node.m.env.wall_shift_ms -= 100 * HOUR
    node.run()
    node.store()
    (piece,) = node.m.log.read(1, 0, node.end + 1, 1, 1000)
    assert piece.stored_at_ms == node.m.env.now_ms()


def test_a_segment_that_was_made_under_a_time_that_was_not_believed_is_no_bound_after_a_start(form):
    node = Node(form, first=Retention(age_ms=HOUR // 2), second=Retention())
    node.run()
    node.m.env.wall_shift_ms += 100 * HOUR
    node.run()
    for _ in range(30):
        node.store()
    node.m.env.wall_shift_ms -= 100 * HOUR
    node.run()
    node.store()
    node.restart()
    node.store()
    (piece,) = node.m.log.read(1, 0, node.end + 31, 1, 1000)
    assert piece.stored_at_ms == node.m.env.now_ms()


def test_a_step_that_is_met_between_two_comparisons_of_the_clocks_is_no_bound(form):
    """Both are done once per second, and a millisecond may lie between their readings of the clock."""
    node = Node(form, first=Retention(age_ms=HOUR // 2), second=Retention())
    node.run()
    node.m.env.clock_ms += 1_000
    node.m.log.log_time.check()
    node.m.env.wall_shift_ms += 100 * HOUR
    node.m.env.clock_ms += 999
    node.m.log.log_time.check()
    node.m.env.wall_shift_ms -= 100 * HOUR
    node.store()
    (piece,) = node.m.log.read(1, 0, node.end, 1, 1000)
    assert piece.stored_at_ms == node.m.env.now_ms()


def test_an_operator_accepts_a_clock_that_is_far_behind_the_newest_message(form, caplog):
    node = Node(form, first=Retention(age_ms=HOUR // 2), second=Retention())
    node.run()
    node.m.env.wall_shift_ms -= 100 * HOUR
    with caplog.at_level(logging.WARNING):
        node.run()
    assert "s behind the newest message" in caplog.text
    node.m.log.retention.accept_clock()
    node.store()
    (piece,) = node.m.log.read(1, 0, node.end, 1, 1000)
    assert piece.stored_at_ms == node.m.env.now_ms()


def test_readers_of_many_segments_do_not_close_the_one_that_is_being_relocated(form, monkeypatch):
    closed = set()
    read_at = SimulatedFile.read_at

    def read_open(self, size, at):
        if self in closed:
            raise OSError(errno.EBADF, "closed")
        return read_at(self, size, at)

    monkeypatch.setattr(SimulatedFile, "close", lambda self: closed.add(self))
    monkeypatch.setattr(SimulatedFile, "read_at", read_open)
    m = Machine(form, SimulatedEnv(), "/data", retention_ms=1, sealed_open_max=2)
    for number in range(120):
        m.log.put_progress([(b"g%d" % number, b"v" * 20)])
    for _ in range(60):
        m.log.append(m.batch(1, 0, [bytes(2000)]), 1, m.env.now_ms())
    m.env.clock_ms += 1000
    for _ in range(300):
        m.env.clock_ms += m.log.retention.step()
        for base in sorted(m.log.segments.sealed.bases)[-4:]:
            m.log.segments.sealed.get(base)  # others read elsewhere
    assert m.log.retention.deleted_segments > 10
    assert len(dict(m.log.progress(b"g"))) == 120

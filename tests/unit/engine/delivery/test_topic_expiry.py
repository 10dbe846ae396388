"""Topics that nobody uses: which are forgotten, what keeps one, and what those see who use one again."""

from unittest.mock import Mock

import pytest

from engine.delivery import progress
from engine.delivery.creations import TOPIC
from engine.delivery.lost_turns import LostTurns
from engine.delivery.topic_expiry import TopicExpiry
from engine.delivery.upkeep import HOUR_MS, GroupUpkeep
from engine.errors import DiskFullError
from engine.link.codes import OK, STALE_RECEIPT
from engine.link.pull import AT_TIME, EARLIEST, LATEST
from tests.unit.engine.delivery._world import FORMS, World, offsets

DAY = 24


class EveryTopic:
    """A family that defines all topics."""

    def __init__(self) -> None:
        self.window_ms = 600_000
        self.others: set[str] = set()

    def id_window_ms(self, topic):
        return None if topic in self.others else self.window_ms


class Delayed:
    """Topics with delayed messages, as the timers would say it."""

    def __init__(self) -> None:
        self.topics: set[int] = set()
        self.is_certain, self.is_readable = True, True
        self.on_step = lambda: None
        self.searches = self.open = 0

    def search_topics(self, wanted):
        self.searches += 1
        self.open += 1
        self.steps = 0
        return self if self.is_readable else None

    @property
    def found(self):
        return self.topics

    def step(self):
        self.steps += 1
        self.on_step()
        return self.steps >= 3

    def catch_up(self):
        pass

    def close(self):
        self.open -= 1


class Limits:
    """Every topic counts for its application."""

    def most(self, kind, application):
        return 100

    def is_counted(self, kind, name):
        return kind == TOPIC


class Expiring(World):
    """A world in which three days without a use forget a topic. The topic with the highest id is `last`."""

    def restart(self):
        self.limits = Limits()
        super().restart()
        self.families = getattr(self, "families", None) or EveryTopic()
        self.delayed = getattr(self, "delayed", None) or Delayed()
        delivery = self.delivery
        turns = LostTurns(self.log, delivery.groups, delivery.on_woken)
        self.upkeep = GroupUpkeep(
            self.log, self.policies, delivery.groups, delivery.unload, delivery.creations, 0, turns
        )
        self.expiry = TopicExpiry(
            self.log, self.policies, self.families, delivery.topic_changes, delivery.creations, self.delayed,
            lambda: self.wall_ms, lambda: self.upkeep.hours, 3 * DAY,
        )  # fmt: skip
        self.upkeep.step(self.now_ms)

    def run_hours(self, hours, busy=()):
        """Groups that are busy with another topic stay in memory."""
        for _ in range(hours):
            self.turn(HOUR_MS)
            for group in busy:
                self.give(group=group, topics=(("last", 1),))
            self.delivery.write_progress()
            for _ in range(5):
                self.upkeep.step(self.now_ms)
            for _ in range(60):
                self.expiry.step(self.now_ms)

    def emptied(self, name="orders", queues=1, count=2):
        """A topic whose messages are consumed by group g and deleted; all after it is only time."""
        topic_id = self.topic(name, queues)
        self.topic("last")
        self.store(topic_id, count)
        pieces = self.give(topics=((name, queues),))
        self.pull(acks=[piece.ack() for piece in pieces], most=0)
        self.delivery.write_progress()
        self.log.retain(topic_id, 0, count)
        return topic_id

    def stored(self, *prefixes):
        return [key for key, _ in self.log.progress() if key.startswith(prefixes)]


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def world(request):
    return Expiring(request.param, wait_ms_max=1000 * HOUR_MS)


def test_an_empty_topic_of_a_family_is_forgotten_after_its_days_with_all_that_is_kept_of_it(world):
    old = world.emptied()
    world.run_hours(4 * DAY - 1)  # found unused after the first day
    assert world.log.topic("orders") is not None
    world.run_hours(1)
    assert (world.log.topic("orders"), world.log.topic_by_id(old), world.expiry.expired) == (None, None, 1)
    world.run_hours(1)
    assert world.stored(b"g", b"\0unused", b"\0grown") == []
    assert world.log.topic("last") is not None


def test_what_comes_back_under_the_name_is_another_topic_and_its_first_message_is_delivered(world):
    old = world.emptied()
    world.run_hours(6 * DAY)
    new = world.topic()
    assert new > old
    world.store(new, 2)
    assert offsets(world.give()) == [0, 1]


@pytest.mark.parametrize("busy", [(), ("g",)])
def test_a_pull_that_named_the_topic_before_creates_it_again(world, busy):
    topic_id = world.emptied()
    world.give(topics=(("orders", 1), ("last", 1)))
    world.run_hours(6 * DAY, busy)
    assert world.log.topic("orders") is None
    assert list(world.delivery.groups) == list(busy)
    assert (topic_id, 0) not in {key for key, cursors in world.delivery._by_queue.items() if cursors}
    assert world.give(topics=(("orders", 1), ("last", 1))) == []
    new = world.log.topic("orders")
    assert new is not None
    world.store(new.id, 1)
    assert offsets(world.give(topics=(("orders", 1), ("last", 1)))) == [0]


def test_progress_that_was_about_to_be_written_is_not_written_for_a_forgotten_topic(world, monkeypatch):
    topic_id = world.emptied()
    world.store(topic_id, 1)
    (piece,) = world.give()
    world.pull(acks=[piece.ack()], most=0)
    world.log.retain(topic_id, 0, 3)
    monkeypatch.setattr(world.delivery, "write_progress", lambda: None)
    world.run_hours(6 * DAY, busy=("g",))
    monkeypatch.undo()
    assert world.log.topic("orders") is None
    world.delivery.write_progress()
    assert world.stored(b"g") == []


def test_a_lease_on_messages_that_retention_has_deleted_keeps_the_topic_until_it_ends(world):
    topic_id = world.emptied()
    world.store(topic_id, 1)
    world.give(invisible_ms=6 * DAY * HOUR_MS)
    world.log.retain(topic_id, 0, 3)
    world.run_hours(5 * DAY, busy=("g",))
    assert world.log.topic("orders") is not None


def test_a_loaded_group_without_progress_that_would_start_late_keeps_the_topic(world):
    world.emptied()
    world.give(group="new")
    world.policies.set(start=LATEST)
    for key in world.stored(b"g"):
        world.log.put_progress([(key, b"")])
    world.run_hours(6 * DAY, busy=("new",))
    assert world.log.topic("orders") is not None


@pytest.mark.parametrize("use", ["pull", "look-up", "message"])
def test_a_use_begins_the_time_again(world, use):
    topic_id = world.emptied()
    for number in range(6):
        world.run_hours(2 * DAY)
        if use == "pull":
            world.give()
        elif use == "look-up":
            world.delivery.creations.topic_uses.note([topic_id])
        else:
            world.store(topic_id, 1)
            world.log.retain(topic_id, 0, 3 + number)
    assert world.log.topic("orders") is not None
    world.run_hours(6 * DAY)
    assert world.log.topic("orders") is None


def test_a_message_keeps_the_topic(world):
    topic_id = world.emptied()
    world.run_hours(2 * DAY)
    world.store(topic_id, 1)
    world.run_hours(10 * DAY)
    assert world.log.topic("orders").id == topic_id
    assert offsets(world.give()) == [2]


def test_a_waiting_pull_keeps_the_topic(world):
    topic_id = world.emptied()
    answers = []
    world.pull(wait_ms=900 * HOUR_MS, answers=answers)
    world.run_hours(8 * DAY)
    world.store(topic_id, 1)
    assert [offsets(pieces) for _, pieces in answers] == [[2]]


def test_a_topic_that_no_family_defines_stays(world):
    world.families.others.add("orders")
    world.emptied()
    world.run_hours(8 * DAY)
    assert world.log.topic("orders") is not None and world.stored(b"\0unused") == world.stored(b"\0unused\0\0\0\2")


def test_a_topic_that_a_definition_of_its_own_has_made_stays(world):
    world.log.create_topics([("orders@100", 1), ("last", 1)])
    world.run_hours(8 * DAY)
    assert world.log.topic("orders") is not None


def test_a_delayed_message_keeps_the_topic_and_counts_as_a_use(world):
    topic_id = world.emptied()
    world.delayed.topics.add(topic_id)
    world.run_hours(6 * DAY)
    assert world.log.topic("orders") is not None
    world.delayed.topics.clear()
    world.run_hours(DAY)
    assert world.log.topic("orders") is not None and list(world.expiry.unused(3 * DAY)) == []
    world.run_hours(4 * DAY)
    assert world.log.topic("orders") is None and world.delayed.open == 0


@pytest.mark.parametrize("fault", ["is_certain", "is_readable"])
def test_delayed_messages_that_cannot_be_read_keep_all_topics(world, fault):
    world.emptied()
    setattr(world.delayed, fault, False)
    world.run_hours(8 * DAY)
    assert world.log.topic("orders") is not None
    setattr(world.delayed, fault, True)
    world.run_hours(2 * DAY)
    assert world.log.topic("orders") is None


def test_the_table_of_delayed_messages_is_searched_only_for_topics_that_are_due(world):
    world.topic()
    world.topic("last")
    world.run_hours(3 * DAY)
    assert world.delayed.searches == 0
    world.run_hours(2 * DAY)
    assert world.delayed.searches == 1


@pytest.mark.parametrize(
    ("start", "at_ms", "is_forgotten"),
    [(EARLIEST, 0, True), (LATEST, 0, False), (AT_TIME, 5, True), (AT_TIME, 1 << 60, False)],
)
@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_group_that_would_miss_messages_of_a_topic_that_comes_back_keeps_it(
    world, start, at_ms, is_forgotten, is_loaded
):
    world.emptied()
    world.policies.set(start=start, start_at_ms=at_ms)
    if not is_loaded:
        world.restart()
    world.run_hours(6 * DAY)
    assert (world.log.topic("orders") is None) == is_forgotten


def test_a_group_whose_definition_is_not_known_keeps_its_topics(world):
    world.emptied()
    world.restart()
    world.policies.set(unread="not read yet")
    world.run_hours(6 * DAY)
    assert world.log.topic("orders") is not None


def test_a_group_that_begins_at_its_definition_gets_the_first_message_of_a_topic_that_comes_back(world):
    world.policies.set(start=AT_TIME, start_at_ms=world.wall_ms)
    world.emptied()
    world.run_hours(6 * DAY)
    world.store(world.topic(), 3)
    world.turn(HOUR_MS)
    assert offsets(world.give(start=AT_TIME)) == [0, 1, 2]


@pytest.mark.parametrize("step_ms", [0, -30 * DAY * HOUR_MS])
def test_a_receipt_of_the_forgotten_topic_settles_nothing_in_the_next_one(world, step_ms):
    world.topic()
    world.topic("last")
    world.store(1, 2)
    pieces = world.give(invisible_ms=1)
    world.delivery.write_progress()
    world.log.retain(1, 0, 2)
    world.turn(HOUR_MS)
    world.run_hours(6 * DAY)
    assert world.log.topic("orders") is None
    assert world.pull(acks=[pieces[0].ack()], most=0)[0] != [OK]
    world.wall_ms += step_ms
    world.store(world.topic(), 2)
    world.wall_ms -= step_ms
    again = world.give(invisible_ms=1)
    world.turn(10_000)
    world.delivery.write_progress()
    world.restart()
    assert world.pull(acks=[pieces[0].ack()], most=0)[0] == [STALE_RECEIPT]
    assert offsets(world.give()) == offsets(again) == [0, 1]


def test_the_topic_counts_no_more_for_its_application(world):
    world.give(topics=(("orders", 1), ("last", 1)), application="a")
    assert world.delivery.creations.count(TOPIC, "a") == 2
    world.run_hours(6 * DAY)
    assert world.log.topic("orders") is None
    assert world.delivery.creations.count(TOPIC, "a") == 1


def test_an_id_window_that_is_longer_than_the_days_keeps_the_topic_as_long(world):
    world.families.window_ms = 10 * DAY * HOUR_MS
    world.emptied()
    world.run_hours(10 * DAY)
    assert world.log.topic("orders") is not None
    world.run_hours(3 * DAY)
    assert world.log.topic("orders") is None


def test_progress_of_a_group_that_is_not_loaded_goes_with_the_topic(world):
    world.emptied()
    world.restart()
    assert world.stored(b"g") != []
    world.run_hours(6 * DAY)
    assert world.stored(b"g") == []


def test_a_wall_clock_that_steps_far_ahead_forgets_nothing(world):
    world.emptied()
    world.run_hours(DAY)
    world.wall_ms += 3650 * DAY * HOUR_MS
    world.run_hours(DAY)
    assert world.log.topic("orders") is not None


def test_hours_of_earlier_processes_count(world):
    world.emptied()
    world.run_hours(2 * DAY)
    world.restart()
    world.run_hours(3 * DAY)
    assert world.log.topic("orders") is None


def test_nothing_is_forgotten_and_nothing_is_noted_when_it_is_off(world):
    world.emptied()
    world.expiry.expire_hours = 0
    world.run_hours(8 * DAY)
    assert world.log.topic("orders") is not None and world.stored(b"\0unused") == []


def test_a_use_between_the_search_and_its_end_keeps_the_topic(world):
    topic_id = world.emptied()
    world.run_hours(3 * DAY)
    world.delayed.on_step = lambda: world.store(topic_id, 1)
    world.run_hours(2 * DAY)
    assert world.log.topic("orders") is not None
    world.delayed.on_step = lambda: None
    assert offsets(world.give())[:1] == [2]


def test_the_dry_run_lists_what_would_be_forgotten(world):
    world.emptied()
    world.run_hours(2 * DAY)
    assert [topic.name for topic in world.expiry.unused(0)] == ["orders"]
    assert [topic.name for topic in world.expiry.unused(DAY)] == ["orders"]
    assert list(world.expiry.unused(2 * DAY)) == []
    world.give()
    assert list(world.expiry.unused(0)) == []


def test_a_full_disk_ends_the_days_round_and_nothing_else(world, monkeypatch):
    world.emptied()
    world.run_hours(3 * DAY)
    put = world.log.put_progress
    monkeypatch.setattr(world.log, "put_progress", Mock(side_effect=DiskFullError("the disk is full")))
    monkeypatch.setattr(world.upkeep, "_hours", world.upkeep.hours + DAY)
    for _ in range(20):
        world.expiry.step(world.now_ms)
    assert world.log.topic("orders") is not None
    monkeypatch.setattr(world.log, "put_progress", put)
    world.run_hours(2 * DAY)
    assert world.log.topic("orders") is None and world.delayed.open == 0


def test_a_full_disk_while_a_topic_is_forgotten_leaves_no_group_with_cursors_in_it(world, monkeypatch):
    topic_id = world.emptied()
    for group in ("a", "b"):
        world.give(group=group)
    world.run_hours(2, busy=("a", "b"))
    put = world.log.put_progress

    def refuse_groups(entries):
        if any(key[:1] == b"g" for key, _ in entries):
            raise DiskFullError("the disk is full")
        put(entries)

    monkeypatch.setattr(world.log, "put_progress", refuse_groups)
    world.run_hours(6 * DAY, busy=("a", "b"))
    monkeypatch.undo()
    assert world.log.topic("orders") is None
    assert list(world.delivery.groups) == ["a", "b"]
    assert all(topic_id not in group.topics for group in world.delivery.groups.values())
    world.store(world.topic(), 1)
    assert [offsets(world.give(group=group)) for group in ("a", "b", "g")] == [[0], [0], [0]]
    world.run_hours(2)
    assert {progress.split_key(raw)[1] for raw in world.stored(b"g")} <= {world.log.topic("orders").id}


def test_a_topic_with_many_queues_is_forgotten_without_cursors_for_each(world):
    topic_id = world.emptied(queues=100)
    world.give(topics=(("orders", 100),))
    world.run_hours(6 * DAY)
    assert world.log.topic("orders") is None
    assert world.delivery.topic_changes.sparse == {}
    assert world.delivery._by_queue.keys().isdisjoint({(topic_id, queue) for queue in range(100)})
    new = world.topic(queues=100)
    assert world.give(topics=(("orders", 100),)) == []
    world.store(new, 1, queue=77)
    (piece,) = world.give(topics=(("orders", 100),))
    assert (piece.queue, offsets([piece])) == (77, [0])


def test_a_round_writes_one_line_with_the_counts(world, caplog):
    caplog.set_level("INFO")
    kept = world.emptied("kept")
    for number in range(5):
        world.topic(f"m.{number}")
    world.topic("highest")
    world.delayed.topics.add(kept)
    world.run_hours(6 * DAY)
    lines = [record.getMessage() for record in caplog.records if "forgotten" in record.getMessage()]
    assert [line for line in lines if line.startswith("topics=")] == [
        "topics=7: forgotten, unused for 72 hours or more: last, m.0, m.1, …; 1 are kept: they are needed"
    ]
    assert world.expiry.expired == 7

"""Dead letters looked through, sent again, thrown away: each once, and none lost on the way."""

import pytest

from common.contract import Message
from common.keyhash import queue_of
from engine.delivery import redrive
from engine.delivery.redrive import DeadLetterSelection, DeadLetterStore, ScatteredError
from engine.errors import DiskFullError, NotStoredError
from engine.link.acknowledgement import REJECT
from engine.link.codes import OK
from engine.log.format import pack_record, whole_records
from tests.unit.engine.delivery._world import FORMS, World, offsets
from tests.unit.engine.delivery.thrift_bytes import decoded, encoded

DEAD = [("_dlq.g", 1)]
GROUP, ALL = "g", DeadLetterSelection()


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def world(request):
    made = World(request.param)
    made.orders = made.topic("orders", 2)
    made.letters = DeadLetterStore(made.log, made.delivery)
    return made


def bury(world, count, queue=0, reason=b"", topic="orders") -> None:
    records = [
        pack_record(encoded(Message(topic=topic, body=b"%d" % n, key="k", id=f"{topic}-{n}"))) for n in range(count)
    ]
    world.log.store(world.log.topic(topic).id, queue, records, world.wall_ms)
    world.turn(1)
    pieces = world.give(topics=[(topic, 2)], most=10_000)
    codes, _ = world.pull(acks=[piece.ack(verdict=REJECT, reason=reason) for piece in pieces], most=0)
    assert set(codes) == {OK}
    for _ in range(count // 256 + 1):
        world.turn(20)


def walk(step, group=GROUP, choice=ALL) -> list[redrive.DeadLetter]:
    """Call until the end, as the command does."""
    found, after, end = [], 0, 1
    while after < end:
        scan = step(group, choice, after)
        found += scan.letters
        after, end = scan.next_offset, scan.end
    return found


def redrive_all(world, choice=ALL, to=None) -> list[redrive.DeadLetter]:
    found = walk(
        lambda group, choice, after: world.letters.redrive(group, choice, to, after, world.now_ms), choice=choice
    )
    world.turn(20)
    return found


def bodies(world, topic="orders", group="other"):
    pieces = world.give(topics=[(topic, 2)], group=group, most=10_000, most_bytes=1 << 20)
    records = [record for piece in pieces for record in whole_records(piece.records)]
    return [(piece.queue, len(piece.offsets)) for piece in pieces], [decoded(record[5:]) for record in records]


def test_dead_letters_are_listed_with_where_they_came_from(world):
    bury(world, 3, reason=b"no stock")
    (first, *_) = found = walk(world.letters.look)
    assert [letter.offset for letter in found] == [0, 1, 2]
    assert (first.record.origin["reason"], first.record.origin["topic"], first.record.id) == (
        "no stock",
        "orders",
        "orders-0",
    )


def test_a_redriven_dead_letter_is_the_message_again_in_its_queue_and_gone_from_the_dead_letters(world):
    bury(world, 3, queue=1)
    bodies(world)
    assert len(redrive_all(world)) == 3
    queues, messages = bodies(world)
    assert queues == [(1, 3)]
    assert [(m.topic, m.body, m.key, m.id, m.properties) for m in messages] == [
        ("orders", b"%d" % n, "k", f"orders-{n}", None) for n in range(3)
    ]
    assert walk(world.letters.look) == []
    assert world.give(topics=DEAD) == []


def test_after_growths_a_redriven_message_of_a_key_goes_to_the_queue_that_the_key_has_today(world):
    own, other = queue_of(b"k", 2), 1 - queue_of(b"k", 2)
    bury(world, 2, queue=own)
    bury(world, 1, queue=other)  # by another rule than the key's: it stays there
    world.log.create_topics([("orders", 5)])
    assert len(redrive_all(world)) == 3
    ends = {queue: world.log.bounds(world.orders, queue)[1] for queue in range(5)}
    today = queue_of(b"k", 5)
    assert today not in (0, 1)
    assert (ends.pop(today), ends.pop(own), ends.pop(other), set(ends.values())) == (2, 2, 2, {0})


def test_redrive_to_another_topic_goes_by_the_key(world):
    bury(world, 3)
    (other,) = world.log.create_topics([("repairs", 8)])
    redrive_all(world, to=other)
    pieces = world.give(topics=[("repairs", 8)], most=100)
    assert len({piece.queue for piece in pieces}) == 1
    assert [m.topic for m in bodies(world, "repairs")[1]] == ["repairs"] * 3


@pytest.mark.parametrize(
    ("choice", "taken"),
    [
        (DeadLetterSelection(reason="stock"), {"orders"}),
        (DeadLetterSelection(topic="bills"), {"bills"}),
        (DeadLetterSelection(cause="attempts"), set()),
        (DeadLetterSelection(cause="rejected"), {"orders", "bills"}),
        (DeadLetterSelection(until_ms=0), set()),
        (DeadLetterSelection(since_ms=0), {"orders", "bills"}),
    ],
)
def test_only_what_the_choice_names_is_taken_and_the_rest_stays(world, choice, taken):
    world.log.create_topics([("bills", 2)])
    bury(world, 2, reason=b"no stock left")
    bury(world, 2, reason=b"too late", topic="bills")
    assert {letter.record.origin["topic"] for letter in redrive_all(world, choice)} == taken
    left = walk(world.letters.look)
    assert {letter.record.origin["topic"] for letter in left} == {"orders", "bills"} - taken
    again = world.give(topics=DEAD, most=100)
    assert len(offsets(again)) == len(left)
    assert {piece.attempt for piece in again} <= {1}


def test_one_dead_letter_is_redriven_by_its_offset_and_the_others_stay(world):
    bury(world, 3)
    assert [letter.offset for letter in redrive_all(world, DeadLetterSelection(offsets=frozenset({1})))] == [1]
    assert [letter.offset for letter in walk(world.letters.look)] == [0, 2]


def test_purged_dead_letters_are_gone_also_after_a_restart(world):
    bury(world, 1_200)
    assert len(walk(world.letters.purge)) == 1_200
    world.delivery.write_progress()
    world.restart()
    assert walk(DeadLetterStore(world.log, world.delivery).look) == []


def test_what_a_consumer_holds_is_listed_but_neither_redriven_nor_purged(world):
    bury(world, 3)
    (piece,) = world.give(topics=DEAD, most=2)
    assert len(walk(world.letters.look)) == 3
    assert [letter.offset for letter in walk(world.letters.purge)] == [2]
    assert world.pull(topics=DEAD, acks=[piece.ack()], most=0)[0] == [OK]
    assert walk(world.letters.look) == []


def test_a_dead_letter_is_taken_out_only_when_its_copy_is_durable(world):
    bury(world, 2)
    world.log.is_durable_at_once = False
    redrive_all(world)
    assert world.letters.unsettled == {"g": 2}
    assert len(walk(world.letters.look)) == 2
    assert redrive_all(world) == []
    assert world.give(topics=DEAD) == []
    world.log.make_durable()
    assert (world.letters.unsettled, walk(world.letters.look)) == ({}, [])


def test_a_crash_in_the_middle_of_a_redrive_loses_nothing(world):
    bury(world, 600)
    world.letters.redrive("g", ALL, None, 0, world.now_ms)
    world.log.is_durable_at_once = False
    world.letters.redrive("g", ALL, None, 500, world.now_ms)
    world.delivery.write_progress()
    world.restart()
    world.log.is_durable_at_once = True
    world.letters = DeadLetterStore(world.log, world.delivery)
    assert [letter.offset for letter in redrive_all(world)] == list(range(500, 600))
    assert {m.id for m in bodies(world)[1]} == {f"orders-{n}" for n in range(600)}


@pytest.mark.parametrize("failure", [DiskFullError("no room"), NotStoredError("EIO"), OSError("EMFILE")])
def test_an_append_that_fails_stops_a_redrive_and_leaves_all_dead_letters(world, monkeypatch, failure):
    bury(world, 3)

    def refuse(*_):
        raise failure

    monkeypatch.setattr(world.log, "append", refuse)
    with pytest.raises(type(failure)):
        world.letters.redrive("g", ALL, None, 0, world.now_ms)
    monkeypatch.undo()
    assert len(redrive_all(world)) == 3


def test_what_came_from_a_topic_that_is_gone_stays(world):
    bury(world, 2)
    world.log._topics.pop("orders")
    assert redrive_all(world) == []
    assert len(walk(world.letters.look)) == 2


def test_scattered_choices_are_bounded(world, monkeypatch):
    monkeypatch.setattr(redrive, "READ_MAX", 10_000)
    bury(world, 2)
    with pytest.raises(ScatteredError):
        world.letters.purge("g", ALL, 0)


def test_a_group_without_dead_letters_has_none(world):
    assert world.letters.look("g", ALL, 0) == ([], 0, 0)
    assert world.letters.purge("g", ALL, 0) == ([], 0, 0)
    assert world.letters.redrive("g", ALL, None, 0, world.now_ms) == ([], 0, 0)


def test_a_purge_takes_only_what_was_counted_before_its_question(world):
    bury(world, 2)
    counted = world.letters.look(GROUP, ALL, 0)
    bury(world, 1, queue=1)
    chosen = DeadLetterSelection(before=counted.end)
    purged = walk(world.letters.purge, choice=chosen)
    assert [each.offset for each in purged] == [each.offset for each in counted.letters] == [0, 1]
    assert [each.offset for each in walk(world.letters.look)] == [2]

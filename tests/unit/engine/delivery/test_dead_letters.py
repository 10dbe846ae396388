"""Back-offs, last attempts, rejections, and what becomes of them: dead letters, each durable before its message is done."""

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.contract import Message
from common.dead_letters import dead_letter_topic, is_dead_letter_topic
from common.names import is_name
from common.retry import DelayList, Exponential
from engine.delivery import dead_letter
from engine.delivery.policy import KEY, NONE, QUEUE
from engine.link.acknowledgement import EXTEND, REJECT, RETRY
from engine.link.codes import INVALID, OK, STALE_RECEIPT
from engine.log.format import pack_record, whole_records
from tests.unit.engine.delivery._world import FORMS, WALL0, World, offsets
from tests.unit.engine.delivery.thrift_bytes import decoded, encoded

DEAD = [("_dlq.g", 1)]


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def form(request):
    return request.param


@pytest.fixture
def world(form):
    made = World(form)
    made.orders = made.topic()
    made.policies.set(attempts_max=3, retry=DelayList((1_000, 5_000)))
    return made


def dead_letters(world, **options) -> list[dead_letter.StoredMessage]:
    pieces = world.give(topics=DEAD, most=1_000, most_bytes=1 << 20, **options)
    return [dead_letter.parse(record) for piece in pieces for record in whole_records(piece.records)]


def origins(world, **options) -> list[dict[str, str]]:
    return [letter.origin for letter in dead_letters(world, **options)]


def fail(world, times: int, **options) -> None:
    """Let every message be handed out so often, and its lease range_ out each time."""
    for _ in range(times):
        assert world.give(invisible_ms=1_000, **options)
        world.turn(1_020)


def test_a_retry_without_a_delay_waits_as_the_groups_back_off_says(world):
    world.store(world.orders, 1)
    for attempt, delay_ms in ((1, 1_000), (2, 5_000)):
        (piece,) = world.give()
        assert piece.attempt == attempt
        world.pull(acks=[piece.ack(verdict=RETRY)], most=0)
        world.turn(delay_ms - 1)
        assert world.give() == []
        world.turn(21)
    assert world.give()[0].attempt == 3


def test_a_retry_with_a_delay_of_its_own_does_not_ask_the_back_off(world):
    world.store(world.orders, 1)
    world.pull(acks=[world.give()[0].ack(verdict=RETRY, delay_ms=40)], most=0)
    world.turn(60)
    assert world.give()[0].attempt == 2


def test_a_changed_policy_holds_from_the_next_verdict_on(world):
    world.store(world.orders, 1)
    (piece,) = world.give()
    world.policies.set(retry=Exponential(first_ms=100, jitter=1.0))
    world.pull(acks=[piece.ack(verdict=RETRY)], most=0)
    world.turn(60)
    assert world.give()[0].attempt == 2


def test_what_is_rejected_is_a_dead_letter_and_comes_to_nobody_again(world):
    world.store(world.orders, 3)
    (piece,) = world.give()
    codes, _ = world.pull(acks=[piece.ack(1, 1, REJECT, reason="it smells €".encode())], most=0)
    assert codes == [OK]
    (origin,) = origins(world)
    assert origin == {
        "group": "g",
        "cause": "rejected",
        "reason": "it smells €",
        "attempts": "1",
        "first_ms": str(WALL0),
        "last_ms": str(WALL0),
        "topic": "orders",
        "queue": "0",
        "offset": "1",
    }
    world.turn(20_000)
    assert offsets(world.give()) == [0, 2]


def test_a_lease_that_runs_out_for_the_last_time_is_buried_by_the_engine_itself(world):
    world.store(world.orders, 2)
    fail(world, 2)
    assert offsets([*world.give(invisible_ms=1_000), *world.give(invisible_ms=1_000)]) == [0, 1]
    world.turn(1_020)
    assert world.give() == []
    found = origins(world)
    assert [(each["cause"], each["attempts"], each["offset"]) for each in found] == [
        ("attempts", "3", "0"),
        ("attempts", "3", "1"),
    ]
    assert int(found[0]["last_ms"]) - int(found[0]["first_ms"]) == 2 * 1_020
    assert world.delivery.counts.dead_letters == 2


def test_a_retry_of_the_last_attempt_is_buried_at_once_with_its_reason(world):
    world.store(world.orders, 1)
    fail(world, 2)
    (piece,) = world.give()
    assert world.pull(acks=[piece.ack(verdict=RETRY, reason=b"still no stock")], most=0)[0] == [OK]
    (origin,) = origins(world)
    assert (origin["cause"], origin["reason"]) == ("attempts", "still no stock")


def test_a_last_attempt_can_still_be_acknowledged_or_extended(world):
    world.store(world.orders, 2)
    fail(world, 2)
    first, second = (world.give(invisible_ms=1_000)[0] for _ in range(2))
    assert world.pull(acks=[first.ack(), second.ack(verdict=EXTEND, delay_ms=10_000)], most=0)[0] == [OK, OK]
    world.turn(9_000)
    assert origins(world) == []
    world.turn(1_020)
    assert [each["offset"] for each in origins(world)] == ["1"]


@pytest.mark.parametrize("order", [NONE, KEY, QUEUE])
@pytest.mark.parametrize(("attempts_max", "deaths"), [(2, 2), (3, 3), (16, 16)])
def test_a_message_that_ends_its_consumer_takes_no_other_one_to_the_dead_letters(world, order, attempts_max, deaths):
    world.policies.set(attempts_max=attempts_max, order=order)
    world.store(world.orders, 100)
    world.topic("orders", 2)
    world.store(world.orders, 30, queue=1)
    topics, handled, died, quiet = [("orders", 2)], [], 0, 0
    while quiet < 3:
        pieces = world.give(topics=topics, most=100, invisible_ms=1_000)
        quiet = 0 if pieces else quiet + 1
        given = [(piece.queue, offset) for piece in pieces for offset in piece.offsets]
        if (0, 50) in given:
            died += 1  # nothing of its pull is acknowledged
        else:
            world.pull(acks=[piece.ack() for piece in pieces], most=0)
            handled += given
        if not handled or not pieces:
            world.turn(1_020)
    assert [(each["queue"], each["offset"]) for each in origins(world)] == [("0", "50")]
    assert (died, len(handled)) == (deaths, 129)


def test_messages_that_failed_are_pulled_in_smaller_numbers_and_the_last_time_alone(world):
    world.policies.set(attempts_max=5)
    world.store(world.orders, 40)
    sizes = []
    for _ in range(5):
        sizes.append(len(offsets(world.give(most=32, invisible_ms=1_000))))
        world.turn(1_020)
    assert sizes == [32, 16, 8, 4, 1]


def test_a_pull_that_has_too_many_messages_ends_before_one_that_failed_which_is_first_in_the_next_pull(world):
    world.topic("orders", 2)
    topics = [("orders", 2)]
    world.store(world.orders, 1, queue=1)
    for _ in range(2):
        assert offsets(world.give(topics=topics, invisible_ms=1_000)) == [0]
        world.turn(1_020)
    world.store(world.orders, 20)
    failed = world.give(topics=topics)
    while failed[0].queue == 0:  # the other queue's turn came first
        assert {piece.queue for piece in failed} == {0}
        failed = world.give(topics=topics)
    assert [(piece.queue, piece.attempt, piece.count) for piece in failed] == [(1, 3, 1)]


def test_a_pull_takes_as_many_new_messages_beside_failed_ones_as_failed_ones_alone(world):
    world.store(world.orders, 3)
    fail(world, 1)
    world.store(world.orders, 40)
    assert [(piece.attempt, piece.count) for piece in world.give(most=32)] == [(2, 3), (1, 13)]


@pytest.mark.parametrize("delay_ms", [12 * 3_600_000 + 1, 24 * 3_600_000, (1 << 31) - 1])
def test_a_retry_is_withheld_as_long_as_asked(world, delay_ms):
    world.store(world.orders, 1)
    (piece,) = world.give()
    assert world.pull(acks=[piece.ack(verdict=RETRY, delay_ms=delay_ms)], most=0)[0] == [OK]
    world.delivery.write_progress()
    world.restart()
    world.turn(delay_ms - 1)
    assert world.give() == []
    world.turn(280)
    assert [each.attempt for each in world.give()] == [2]


def test_an_extension_above_its_bound_is_refused_and_the_lease_stays(world):
    world.store(world.orders, 1)
    (piece,) = world.give(invisible_ms=1_000)
    too_long = piece.ack(verdict=EXTEND, delay_ms=12 * 3_600_000 + 1)
    assert world.pull(acks=[too_long], most=0)[0] == [INVALID]
    world.turn(1_020)
    assert [each.attempt for each in world.give()] == [2]


def test_receipts_of_a_buried_message_are_stale_until_it_is_done(world):
    world.store(world.orders, 1)
    world.log.is_durable_at_once = False
    (piece,) = world.give()
    verdicts = [piece.ack(verdict=REJECT), piece.ack(verdict=REJECT), piece.ack(verdict=RETRY), piece.ack()]
    assert world.pull(acks=verdicts, most=0)[0] == [OK, STALE_RECEIPT, STALE_RECEIPT, STALE_RECEIPT]
    world.log.make_durable()
    assert world.pull(acks=[piece.ack()], most=0)[0] == [OK]
    assert len(origins(world)) == 1


def test_a_message_is_done_only_when_its_dead_letter_is_durable(world):
    world.store(world.orders, 1)
    world.log.is_durable_at_once = False
    world.pull(acks=[world.give()[0].ack(verdict=REJECT)], most=0)
    (cursor,) = world.delivery.group("g").topics[world.orders]
    assert cursor.contiguous == 0
    world.turn(60_000)
    assert world.give() == []
    world.log.make_durable()
    assert cursor.contiguous == 1


def test_a_crash_before_the_dead_letter_is_durable_loses_nothing_and_repeats_its_origin_at_most(world):
    world.store(world.orders, 1)
    fail(world, 2)
    world.log.is_durable_at_once = False
    fail(world, 1)
    world.delivery.write_progress()
    world.log.is_durable_at_once = True
    world.restart()
    assert world.give() == []
    world.turn(world.policies.of("g").invisible_ms + 20)
    assert world.give() == []
    found = origins(world)
    assert [(each["topic"], each["queue"], each["offset"]) for each in found] == [("orders", "0", "0")] * 2


def test_after_a_restart_the_holder_of_a_last_attempt_has_a_lease_time_to_acknowledge_it(world):
    world.store(world.orders, 2)
    fail(world, 2)
    (piece,) = world.give()
    world.delivery.write_progress()
    world.turn(10)
    world.restart()
    assert world.pull(acks=[piece.ack(0, 1)])[0] == [OK]
    world.turn(world.policies.of("g").invisible_ms + 20)
    assert [each["offset"] for each in origins(world)] == ["1"]


def test_a_burial_waits_while_the_disk_is_full_and_goes_on_by_itself(world, monkeypatch):
    world.store(world.orders, 1)
    monkeypatch.setattr(world.log, "append", lambda *_: [(205, 0)])
    world.pull(acks=[world.give()[0].ack(verdict=REJECT)], most=0)
    world.turn(600)
    assert (origins(world), world.give()) == ([], [])
    monkeypatch.undo()
    world.turn(600)
    assert [each["offset"] for each in origins(world)] == ["0"]


def test_a_dead_letter_waits_while_the_view_cannot_be_read_and_is_not_forgotten(world, monkeypatch):
    create_topics = world.log.create_topics

    def refused(wanted):
        if is_dead_letter_topic(wanted[0][0]):
            raise OSError(errno.EIO, "Input/output error")
        return create_topics(wanted)

    world.store(world.orders, 1)
    monkeypatch.setattr(world.log, "create_topics", refused)
    world.pull(acks=[world.give()[0].ack(verdict=REJECT)], most=0)
    world.turn(600)
    assert world.give() == []
    monkeypatch.undo()
    world.turn(600)
    assert [each["offset"] for each in origins(world)] == ["0"]


def test_a_burial_waits_for_records_that_are_being_fetched(world, monkeypatch):
    world.store(world.orders, 1)
    (piece,) = world.give()
    monkeypatch.setattr(world.log, "read", lambda *_: [])
    world.pull(acks=[piece.ack(verdict=REJECT)], most=0)
    monkeypatch.undo()
    world.turn(600)
    assert [each["offset"] for each in origins(world)] == ["0"]


def test_what_retention_took_before_its_burial_is_told_and_given_up(world, caplog):
    world.store(world.orders, 2)
    world.log.append, append = lambda *_: [(205, 0)], world.log.append
    world.pull(acks=[world.give()[0].ack(verdict=REJECT)], most=0)
    world.log.retain(world.orders, 0, 1)
    world.log.append = append
    world.turn(600)
    assert "lost before dead-lettering" in caplog.text
    assert [each["offset"] for each in origins(world)] == ["1"]


def test_many_burials_are_worked_off_in_steps_and_wake_who_waits_for_them(world):
    world.store(world.orders, 1_000)
    pieces = world.give(most=1_000, invisible_ms=1_000)
    answers = []
    world.pull(topics=DEAD, wait_ms=30_000, most=1_000, answers=answers)
    world.pull(acks=[piece.ack(verdict=REJECT) for piece in pieces], most=0)
    assert world.delivery.counts.dead_letters == 256
    assert world.delivery.on_time(world.now_ms) <= world.now_ms
    world.turn(20)
    world.turn(20)
    assert world.delivery.counts.dead_letters == 1_000
    assert offsets(answers[0][1])[:2] == [0, 1]


def test_a_message_that_an_operator_moved_the_group_away_from_is_not_buried(world):
    world.store(world.orders, 1)
    world.log.append, append = lambda *_: [(205, 0)], world.log.append
    world.pull(acks=[world.give()[0].ack(verdict=REJECT)], most=0)
    group = world.delivery.group("g")
    world.delivery.move(group, group.topics[world.orders][0], 0, world.now_ms)
    world.log.append = append
    world.turn(600)
    assert origins(world) == []
    assert world.give()[0].attempt == 1


def test_a_dead_letter_has_endless_attempts_and_cannot_be_rejected(world):
    world.store(world.orders, 1)
    world.pull(acks=[world.give()[0].ack(verdict=REJECT)], most=0)
    fail(world, 10, topics=DEAD)
    (letter,) = world.give(topics=DEAD)
    assert letter.attempt == 11
    assert world.pull(acks=[letter.ack(verdict=REJECT)], most=0)[0] == [INVALID]
    assert world.pull(acks=[letter.ack()], most=0)[0] == [OK]
    world.turn(20_000)
    assert origins(world) == []


def test_a_poison_message_never_holds_its_queue(world):
    world.store(world.orders, 500)
    taken = []
    while pieces := world.give(most=7, invisible_ms=2_000):
        for piece in pieces:
            taken += [offset for offset in piece.offsets if offset % 100]
            world.pull(acks=[piece.ack(at, 1) for at, offset in enumerate(piece.offsets) if offset % 100], most=0)
        world.turn(100)
    for _ in range(4):
        world.turn(10_020)
        world.give()
    assert sorted(taken) == [offset for offset in range(500) if offset % 100]
    assert [each["offset"] for each in origins(world)] == ["0", "100", "200", "300", "400"]


# -- the bytes


def test_a_dead_letter_keeps_all_that_the_message_said_and_gives_it_back():
    message = Message(topic="orders", body=b"\0\xff", key="k", tag="t", properties={"a": "1"}, id="own", delay_ms=5)
    unknown = struct.pack(">bhi", 8, 99, 7)
    record = pack_record(encoded(message)[:-1] + unknown + b"\0")
    buried = dead_letter.wrap(dead_letter.parse(record), "_dlq.g", {"cause": "rejected", "offset": 7, "reason": None})
    read = dead_letter.parse(buried)
    shown = decoded(buried[5:])
    assert (shown.topic, shown.body, shown.key, shown.tag, shown.id) == ("_dlq.g", b"\0\xff", "k", "t", "own")
    assert shown.properties == {"a": "1", "dead_letter_cause": "rejected", "dead_letter_offset": "7"}
    assert (shown.delay_ms, read.origin) == (None, {"cause": "rejected", "offset": "7"})
    revived = dead_letter.unwrap(read, "orders")
    message.delay_ms = None
    assert decoded(revived[5:]) == message
    assert unknown in revived


def test_what_a_sender_wrote_under_a_dead_letters_names_is_not_its_origin():
    forged = {b"dead_letter_reason": b"forged", b"dead_letter_first_ms": b"1", b"plain": b"kept"}
    record = dead_letter.parse(b"\0\0\0\0\0")._replace(properties=forged)
    buried = dead_letter.parse(dead_letter.wrap(record, "_dlq.g", {"cause": "rejected", "reason": None}))
    assert buried.properties == {b"plain": b"kept", b"dead_letter_cause": b"rejected"}


def test_a_dead_letter_keeps_an_assigned_id_and_tells_it():
    record = dead_letter.parse(pack_record(encoded(Message(topic="orders", body=b"b")), bytes(range(16))))
    assert record.id == bytes(range(16)).hex()
    assert dead_letter.parse(dead_letter.wrap(record, "_dlq.g", {})).assigned_id == bytes(range(16))


@given(st.binary(max_size=60))
def test_whatever_was_stored_survives_burial_and_redrive(payload):
    record = dead_letter.parse(pack_record(payload + b"\0"))
    buried = dead_letter.parse(dead_letter.wrap(record, "_dlq.g", {"cause": "attempts"}))
    assert buried.origin["cause"] == "attempts"
    assert buried.topic == "_dlq.g"
    assert dead_letter.parse(dead_letter.unwrap(buried, "orders")).fields == record.fields


@given(st.text("abcXYZ019._-", min_size=1, max_size=249))
def test_every_group_has_a_dead_letter_topic_with_a_name_that_is_kept_for_it(group):
    name = dead_letter_topic(group)
    assert is_name(name)
    assert is_dead_letter_topic(name)


def test_long_groups_that_differ_at_the_end_have_different_dead_letter_topics():
    assert dead_letter_topic("g" * 248 + "a") != dead_letter_topic("g" * 248 + "b")

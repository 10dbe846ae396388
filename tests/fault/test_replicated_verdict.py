"""The verdict on a replicated load: a good run passes, and each planted fault is reported under its own name."""

import random

import pytest

from tests.fault.replicated.history import SentHistory
from tests.fault.replicated.plan import GROUPS, READERS, WORKERS, is_poison, is_wanted, origin, planned
from tests.fault.replicated.records import (
    DELIVERED,
    DONE,
    LOST_CALL,
    MAYBE_DONE,
    PULLED,
    SENT,
    PulledRecord,
    RecordReader,
    RecordWriter,
    SentRecord,
)
from tests.fault.replicated.verdict import ReplicatedVerdict, Stored, check_dead_letters, check_group, check_log

NUMBERS = 800
OK, REFUSED = 0, 203
SINGLE, DELAYED = 0, 8


class Run:
    """A run in which all is well: one stream of single messages and one of delayed ones; some calls were lost.

    Attributes:
        log: in order per queue.
        pulled: deliveries and acknowledgements by group.
        graves: names of the dead letters.
    """

    def __init__(self, folder, seed) -> None:
        chance = random.Random(seed)
        self.sent, self.log, self.pulled, self.graves = [], [], {group: [] for group in GROUPS}, []
        ends: dict = {}
        for number in range(NUMBERS):
            for stream in (SINGLE, DELAYED):
                code = chance.choices([OK, LOST_CALL, REFUSED], [8, 1, 1])[0]
                message = planned(stream, number)
                queue, offset, due_ms = ord((message.key or "-")[-1]) % 4, -1, 1_000 * number if message.delay_ms else 0
                if code == OK or (code == LOST_CALL and chance.random() < 0.5):
                    offset = ends[message.topic, queue] = ends.get((message.topic, queue), -1) + 1
                    self.store(message, Stored(message.topic, queue, offset, (stream, number)), due_ms)
                if code != OK or message.delay_ms:
                    offset = -1
                self.sent.append(SentRecord(stream, number, code, queue, offset, float(number), 0.001, due_ms))
        RecordWriter(folder / "sent", SENT).add(*self.sent)
        self.history = SentHistory(folder / "sent").read()

    def store(self, message, stored, due_ms) -> None:
        self.log.append(stored)
        if is_poison(message, stored.name[1]):
            self.graves.append(stored.name)
        for group in GROUPS:
            if is_wanted(group, message):
                delivery = PulledRecord(0, *stored.name, 1, stored.queue, stored.offset, due_ms + 5)
                self.pulled[group] += [delivery, delivery._replace(kind=DONE, at_ms=due_ms + 9)]

    def acknowledged(self, stream=SINGLE, **wanted):
        """A stored message whose answer was OK, by its index in the log."""
        codes = self.history.streams[stream].codes
        found = [
            index
            for index, each in enumerate(self.log)
            if each.name[0] == stream and codes[each.name[1]] == OK and _is(planned(*each.name), wanted)
        ]
        return found[len(found) // 2]

    def check(self) -> ReplicatedVerdict:
        verdict = ReplicatedVerdict()
        check_log(verdict, self.history, self.log)
        for group, pulled in self.pulled.items():
            check_group(verdict, self.history, group, pulled)
        check_dead_letters(verdict, self.history, self.graves)
        return verdict

    def broken(self) -> set:
        return set(self.check().broken())


def _is(message, wanted) -> bool:
    return all(getattr(message, name) == value for name, value in wanted.items())


@pytest.fixture(params=range(5))
def run(request, tmp_path):
    return Run(tmp_path, request.param)


def test_a_run_in_which_all_is_well_passes(run):
    verdict = run.check()
    assert verdict.broken() == {}
    assert verdict.acknowledged > 1200 and verdict.unknown > 80 and verdict.refused > 80 and verdict.fired > 600
    assert verdict.delivered == sum(map(len, run.pulled.values())) / 2 and not verdict.again


def test_an_acknowledged_message_that_the_log_lacks_is_lost(run):
    victim = run.log.pop(run.acknowledged())
    assert run.check().broken() == {"lost": (1, [victim.name])}


def test_a_delayed_message_that_never_fired_is_lost(run):
    victim = run.log.pop(run.acknowledged(stream=DELAYED))
    assert run.check().lost == [victim.name]


@pytest.mark.parametrize("stream", [SINGLE, DELAYED])
def test_a_message_that_is_stored_twice_is_doubled(run, stream):
    victim = run.log[run.acknowledged(stream=stream)]
    run.log.append(victim._replace(offset=10_000))
    assert run.check().doubled == [(*victim.name, 2)]


def test_an_unknown_message_that_is_stored_twice_is_doubled(run):
    codes = run.history.streams[DELAYED].codes
    victim = next(each for each in run.log if each.name[0] == DELAYED and codes[each.name[1]] == LOST_CALL)
    run.log.append(victim._replace(offset=10_000))
    assert run.check().broken() == {"doubled": (1, [(*victim.name, 2)])}


def test_messages_of_a_key_in_another_order_are_swapped(run):
    key = planned(SINGLE, 0).key
    one, other = [index for index, each in enumerate(run.log) if _follows(run, each, key)][3:5]
    run.log[one], run.log[other] = (
        run.log[one]._replace(name=run.log[other].name),
        run.log[other]._replace(name=run.log[one].name),
    )
    assert run.broken() == {"swapped", "misplaced"}


def _follows(run, each, key) -> bool:
    is_ok = run.history.streams[each.name[0]].codes[each.name[1]] == OK
    return is_ok and each.topic == "orders" and planned(*each.name).key == key


def test_a_message_at_another_place_than_its_answer_said_is_misplaced(run):
    index = run.acknowledged(key=None)
    run.log[index] = run.log[index]._replace(offset=10_000)
    assert run.broken() == {"misplaced"}


def test_a_refused_message_that_is_stored_is_invented(run):
    victim = next(each for each in run.sent if each.code == REFUSED and planned(*each[:2]).topic == "orders")
    run.log.append(Stored("orders", victim.queue, 10_000, (victim.stream, victim.number)))
    assert run.broken() == {"invented"}


@pytest.mark.parametrize("name", [None, (SINGLE, NUMBERS + 5), (3, 0)])
def test_a_message_that_was_never_sent_is_invented(run, name):
    run.log.append(Stored("orders", 0, 10_000, name))
    assert run.broken() == {"invented"}


def test_a_message_that_a_group_never_got_is_undelivered(run):
    victim = run.log[run.acknowledged(topic="payments")].name
    run.pulled[READERS] = [each for each in run.pulled[READERS] if (each.stream, each.number) != victim]
    assert run.check().broken() == {"undelivered": (1, [(READERS, *victim)])}


def test_a_message_that_a_group_never_acknowledged_is_unfinished(run):
    victim = run.log[run.acknowledged(topic="orders")].name
    run.pulled[READERS] = [
        each for each in run.pulled[READERS] if (each.stream, each.number) != victim or each.kind == DELIVERED
    ]
    assert run.check().broken() == {"unfinished": (1, [(READERS, *victim)])}


def test_an_acknowledgement_without_an_answer_may_have_been_taken(run):
    victim = run.log[run.acknowledged(topic="orders")].name
    run.pulled[READERS] = [
        each._replace(kind=MAYBE_DONE) if (each.stream, each.number) == victim and each.kind == DONE else each
        for each in run.pulled[READERS]
    ]
    assert run.broken() == set()


def test_a_delayed_message_that_comes_before_its_time_is_early(run):
    index = next(at for at, each in enumerate(run.pulled[READERS]) if each.stream == DELAYED and each.number > 9)
    due_ms = run.history.streams[DELAYED].due_ms[run.pulled[READERS][index].number]
    run.pulled[READERS][index] = run.pulled[READERS][index]._replace(at_ms=due_ms - 1)
    assert run.broken() == {"early"}


def test_a_delivery_after_its_acknowledgement_is_counted_with_its_age(run):
    done = run.pulled[READERS][-1]
    run.pulled[READERS].append(done._replace(kind=DELIVERED, attempt=2, at_ms=done.at_ms + 70))
    verdict = run.check()
    assert (verdict.broken(), verdict.again, verdict.oldest_again_ms) == ({}, 1, 70)


def test_poison_without_a_dead_letter_is_reported(run):
    codes = run.history.streams[SINGLE].codes
    missing = next(name for name in run.graves if codes[name[1]] == OK)
    run.graves.remove(missing)
    assert run.check().broken() == {"dead_letters": (1, [("none", *missing)])}


def test_a_dead_letter_of_a_sound_message_is_reported_and_second_ones_are_counted(run):
    sound = run.log[run.acknowledged(topic="orders")].name
    run.graves += [run.graves[0], sound]
    verdict = run.check()
    assert (verdict.dead_letters, verdict.graves_again) == ([("not poison", sound)], 1)


def test_a_body_names_its_message_and_an_altered_one_names_none():
    for stream, number in [(0, 0), (6, 99), (8, 12), (3, 1_000_003)]:
        body = planned(stream, number).body
        assert origin(body) == (stream, number)
        assert origin(body + b"!") is None and origin(body[:-1] + b"!") is None
    assert origin(b"") is origin(b"9.1|") is origin(b"1.x|") is None


def test_each_topic_and_each_kind_of_message_is_in_the_plan():
    messages = [(number, planned(stream, number)) for stream in range(9) for number in range(600)]
    assert {each.topic for _, each in messages} == {"orders", "payments", "jobs", "reminders"}
    for group in GROUPS:
        share = sum(is_wanted(group, each) for _, each in messages) / len(messages)
        assert 0.05 < share < 0.95, group
    assert any(is_poison(each, number) for number, each in messages if is_wanted(WORKERS, each))


def test_records_are_read_back_as_they_were_written_also_while_the_file_grows(tmp_path):
    writer, reader = RecordWriter(tmp_path / "pulled", PULLED), RecordReader(tmp_path / "pulled", PULLED)
    assert list(reader.new()) == []
    one, two = PulledRecord(0, 8, 70_000, 3, 2, 1 << 40, 1_700_000_000_000), PulledRecord(1, 0, 0, 1, 0, 0, 5)
    writer.add(one, two)
    assert list(reader.new()) == [one, two]
    with (tmp_path / "pulled").open("ab") as file:
        file.write(PULLED.pack(*two)[:5])
    assert list(reader.new()) == []

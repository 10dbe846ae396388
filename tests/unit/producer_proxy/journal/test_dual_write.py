"""Dual writes over two sides in memory and a journal on disk: what each side has, and when the caller gets the answer."""

import errno

import gevent
import pytest

from common.contract import Code, Message
from common.keyhash import queue_of
from producer_proxy.journal.divergence import divergence
from producer_proxy.journal.segment import JournalSegment
from producer_proxy.targets.base import ResolveError
from tests.unit.producer_proxy.journal.side import even, soon


def test_both_sides_get_a_message_under_one_id_and_in_the_queue_of_the_primary(desk):
    for number in range(12):
        (outcome,) = desk.submit(Message(topic="t", body=b"%d" % number))
        assert outcome[0] == Code.OK
    even(desk)
    assert len(desk.primary.ids()) == 12
    assert [(each.id, each.queue) for each in desk.secondary.stored["t"]] == [
        (each.id, each.queue) for each in desk.primary.stored["t"]
    ]


def test_the_answer_is_that_of_the_primary_while_the_secondary_hangs(desk):
    desk.secondary.is_hanging = True
    outcomes = desk.submit(Message(topic="t", key="k", id="a"))
    assert [each[0] for each in outcomes] == [Code.OK], "before the secondary has got anything"
    gevent.sleep(0)
    assert desk.secondary.ids() == []
    desk.secondary.release()
    even(desk)
    assert desk.secondary.ids() == ["a"]


@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.OVERLOADED, Code.TOO_LARGE])
def test_what_the_primary_has_not_stored_does_not_go_to_the_secondary(desk, code):
    desk.primary.code = code
    assert [each[0] for each in desk.submit(Message(topic="t", id="a"))] == [code]
    even(desk)
    assert desk.secondary.batches == []


def test_a_key_that_the_secondary_lacks_is_repaired_in_order_when_it_is_back(desk):
    first = desk.send(5)
    soon(lambda: desk.secondary.ids() == first, "the first copies")
    desk.secondary.code = Code.UNAVAILABLE
    later = desk.send(5, start=5)
    soon(lambda: desk.journaling.backlog.count == 5, "the backlog")
    desk.secondary.code = None
    more = desk.send(20, start=10)
    even(desk)
    assert desk.secondary.of_key(b"k") == first + later + more == desk.primary.ids()


def test_other_keys_go_on_while_one_is_diverted(desk):
    desk.topics.find(["t"])
    step, desk.pair.copies.repairer.step = desk.pair.copies.repairer.step, lambda before: 1.0
    desk.secondary.code = Code.UNAVAILABLE
    desk.send(1, key="a")
    soon(lambda: desk.journaling.backlog.count == 1, "the backlog")
    desk.secondary.code = None
    other = desk.send(3, key="b")
    held = desk.send(3, key="a", start=1)
    soon(lambda: desk.secondary.of_key(b"b") == other, "the other key")
    assert desk.secondary.of_key(b"a") == []
    desk.pair.copies.repairer.step = step
    desk.pair.copies._wake.set()
    even(desk)
    assert desk.secondary.of_key(b"a") == ["t-a-0", *held]


def test_messages_in_a_partition_for_which_the_secondary_has_no_queue_yet_wait_in_their_order_and_the_others_do_not(
    desk,
):
    desk.primary.queues, desk.primary.added = 8, 4  # in Kafka; the topic has 4 queues
    keys = {queue_of(key.encode(), 8): key for key in map(str, range(100))}
    desk.send(2, key=keys[6])
    other = desk.send(3, key=keys[1])
    later = desk.send(2, key=keys[6], start=2)
    soon(lambda: desk.secondary.ids() == other, "those in a queue of both")
    assert desk.journaling.backlog.count == 4 and not desk.journal.dead.count
    assert desk.submit(Message(topic="t", key=keys[1]))[0][0] == Code.OK
    desk.primary.added, desk.secondary.queues = 0, 8
    even(desk)
    assert desk.secondary.of_key(keys[6].encode())[-2:] == later
    assert {each.queue for each in desk.secondary.stored["t"]} == {1, 6}


def test_a_message_without_an_answer_is_asked_for_and_not_copied_twice(desk):
    desk.secondary.code, desk.secondary.stores_anyway = Code.TIMEOUT, True
    sent = desk.send(3)
    soon(lambda: desk.pair.copies.repairer.repaired == 3, "the answers about the ids")
    even(desk)
    assert desk.secondary.ids() == sent


def test_a_message_without_an_answer_that_did_not_arrive_is_copied_once_that_is_certain(desk):
    desk.secondary.code = Code.TIMEOUT
    sent = desk.send(3)
    soon(lambda: desk.journaling.backlog.count == 3, "the backlog")
    desk.secondary.code = None
    even(desk)
    assert desk.secondary.ids() == sent


@pytest.mark.parametrize("is_stored", [True, False])
def test_an_unknown_outcome_of_the_primary_is_settled_by_asking_it(desk, is_stored):
    desk.primary.code, desk.primary.stores_anyway = Code.TIMEOUT, is_stored
    assert [each[0] for each in desk.submit(Message(topic="t", id="a", key="k"))] == [Code.TIMEOUT]
    soon(lambda: desk.primary.questions, "a question to the primary")
    desk.primary.code = None
    later = desk.send(2)
    even(desk)
    assert desk.secondary.of_key(b"k") == (["a", *later] if is_stored else later) == desk.primary.ids()


def test_while_the_primary_cannot_be_asked_the_key_waits_and_afterwards_nothing_is_lost(desk):
    desk.primary.code, desk.primary.look_up = Code.TIMEOUT, int(Code.UNAVAILABLE)
    desk.primary.stores_anyway = True
    desk.submit(Message(topic="t", id="a", key="k"))
    soon(lambda: desk.primary.questions > 0, "a question")
    assert desk.secondary.ids() == [] and desk.journaling.backlog.count == 1
    desk.primary.look_up = int(Code.OK)
    even(desk)
    assert desk.secondary.ids() == ["a"]


def test_a_primary_without_look_up_gets_its_unknown_messages_copied_and_that_is_counted(desk):
    desk.primary.code, desk.primary.look_up = Code.TIMEOUT, int(Code.INVALID)
    desk.submit(Message(topic="t", id="a", key="k"))
    even(desk)
    assert desk.secondary.ids() == ["a"] and desk.pair.copies.repairer.unverified == 1


def test_a_message_that_the_secondary_will_never_take_is_listed_with_its_reason(desk):
    desk.secondary.code = Code.TOO_LARGE
    desk.send(1)
    soon(lambda: desk.pair.copies.repairer.refused == 1, "the refusal")
    desk.secondary.code = None
    later = desk.send(2, start=1)
    soon(lambda: desk.is_even, "both sides to be even")
    (refused,) = divergence(desk.directory, underway_ms=0).refused
    assert (refused.topic, refused.id) == ("t", "t-k-0")
    assert refused.reason == f"kafka:main refused it with code {int(Code.TOO_LARGE)}"
    assert desk.secondary.ids() == later


def test_more_than_fits_into_memory_waits_in_the_journal_and_keeps_its_order(desk, monkeypatch):
    monkeypatch.setattr("producer_proxy.journal.copying.WAITING_BYTES_MAX", 500)
    desk.secondary.is_hanging = True
    sent = [name for number in range(40) for name in desk.send(1, key=f"k{number % 4}", start=number)]
    assert desk.pair.copies.waiting_bytes <= 500 and desk.journaling.backlog.count > 0
    desk.secondary.release()
    even(desk)
    for number in range(4):
        key = b"k%d" % number
        assert desk.secondary.of_key(key) == [each for each in sent if f"-k{number}-" in each]


def test_a_topic_whose_sides_have_different_numbers_of_queues_is_refused_once_that_is_known(desk):
    desk.secondary.queues = 3
    desk.send(1)
    soon(lambda: desk.pair.copies.objection("t") is not None, "the comparison")
    with pytest.raises(ResolveError, match="topic=t: engine has 4 queues and kafka:main 3: a dual write needs as many"):
        desk.topics.find(["t"])
    assert desk.secondary.ids() == []
    desk.secondary.queues = 4
    even(desk)
    assert desk.secondary.ids() == ["t-k-0"]
    desk.topics.find(["t"])


def test_a_secondary_that_cannot_be_asked_about_a_topic_costs_the_caller_nothing(desk):
    desk.secondary.is_down = True
    assert [each[0] for each in desk.submit(Message(topic="t", id="a"))] == [Code.OK]
    soon(lambda: desk.journaling.backlog.count == 1, "the backlog")
    assert "kafka:main" in str(desk.pair.copies.health())
    desk.secondary.is_down = False
    even(desk)
    assert desk.secondary.ids() == ["a"] and desk.pair.copies.health() is True


def test_a_full_journal_is_told_and_what_it_misses_is_a_range_and_no_error_for_the_caller(make):
    desk = make(bytes_max=1_000, segment_bytes=4_096)
    desk.secondary.is_hanging = True
    sent = desk.send(30)
    assert desk.primary.ids() == sent, "all of them were OK"
    assert "full at 1000 bytes" in str(desk.journaling.health()["repair journal"])
    (missed, *_) = found = divergence(desk.directory, underway_ms=0).ranges or desk.journaling.intents.ranges.all
    assert missed.topic == "t" and missed.first is not None and missed.last == 29 and "full" in missed.reason
    assert sum(each.messages for each in found) + desk.journaling.backlog.count < 30
    soon(lambda: divergence(desk.directory).ranges, "the range on disk")
    desk.secondary.release()
    soon(lambda: desk.is_even, "both sides to be even")
    count = sum(each.messages for each in desk.journaling.intents.ranges.all)
    assert len(desk.secondary.ids()) == 30 - count


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_failing_disk_of_the_journal_is_told_and_recorded_and_over_when_the_disk_is_well(desk, monkeypatch, error):
    desk.send(2)
    even(desk)

    def fail(self, data):
        raise OSError(error, "the disk fails")

    monkeypatch.setattr(JournalSegment, "append", fail)
    assert [each[0] for each in desk.submit(Message(topic="t", id="a", key="k"))] == [Code.OK]
    assert "the disk fails" in str(desk.journaling.health()["repair journal"])
    (missed,) = desk.journaling.intents.ranges.all
    assert (missed.topic, missed.first, missed.last, missed.messages) == ("t", 2, 2, 1)
    monkeypatch.undo()
    desk.journal._retry_at = 0.0
    desk.send(1, start=2)
    even_but_ranges = lambda: desk.is_even and "t-k-2" in desk.secondary.ids()  # noqa: E731
    soon(even_but_ranges, "the copy after the fault")
    assert desk.journaling.health()["repair journal"] is True
    assert "a" not in desk.secondary.ids()


def test_without_a_journal_the_primary_alone_is_written_and_the_proxy_says_so(make):
    desk = make(has_journal=False)
    sent = desk.send(3)
    assert desk.primary.ids() == sent and desk.secondary.batches == []
    assert "start it with --journal DIR" in str(desk.journaling.health()["repair journal"])
    assert desk.journaling.intents.ranges.count == 3


def test_entries_of_a_topic_that_has_no_secondary_any_more_are_dropped(desk):
    desk.secondary.code = Code.UNAVAILABLE
    desk.send(3)
    soon(lambda: desk.journaling.backlog.count == 3, "the backlog")
    entry = desk.config.get("topic", "t")
    desk.config.put("topic", "t", {**entry.value, "secondary": ""}, entry.version)
    soon(lambda: not desk.journaling.backlog.count, "the backlog to be dropped")
    assert desk.journaling.left == 3 and desk.secondary.ids() == []


def test_ids_on_the_primary_only_are_listed_by_topic_and_queue(desk):
    desk.secondary.code = Code.UNAVAILABLE
    names = desk.send(3) + desk.send(2, topic="u")
    soon(lambda: desk.journaling.backlog.count == 5, "the backlog")

    def listed():
        return {each.topic: each for each in divergence(desk.directory, underway_ms=0).queues if each.queue is not None}

    soon(lambda: len(listed()) == 2, "the marks of the primary's answers")
    found = listed()
    assert found["t"].ids == tuple(names[:3]) and found["u"].ids == tuple(names[3:])
    assert found["t"].queue == desk.primary.stored["t"][0].queue
    assert divergence(desk.directory).queues == (), "younger than what may be underway"
    desk.secondary.code = None
    even(desk)

"""Entries of dual writes whose outcome at the primary is not known, and ids that several of them have."""

import gevent
import pytest

from common.contract import Code, Message, encode_struct
from producer_proxy.targets.base import UNCOUNTABLE, MessageSlice
from tests.unit.producer_proxy.journal.side import DualDesk, SideDestination, even, soon


def test_a_message_that_the_primary_gets_late_is_copied_though_it_was_missing_at_first(desk, monkeypatch):
    monkeypatch.setattr("producer_proxy.journal.repair.ASK_AGAIN_S", 0.01)
    monkeypatch.setattr("producer_proxy.journal.absence.ABSENT_SHARE", 0.01)  # five seconds
    desk.primary.code = Code.TIMEOUT
    desk.submit(Message(topic="t", id="a", key="k"))
    gevent.sleep(0)
    soon(lambda: desk.primary.questions > 2, "answers that it is missing, some after the message has settled")
    desk.primary.code = None
    slices = [MessageSlice(SideDestination("t", 4), b"k", None, encode_struct(Message(topic="t", id="a", key="k")))]
    desk.primary.submit(1, slices, lambda outcomes: None)
    even(desk)
    assert desk.secondary.ids() == ["a"]


def test_many_entries_that_the_primary_does_not_have_are_found_missing_together(desk, monkeypatch):
    monkeypatch.setattr("producer_proxy.journal.repair.ASK_AGAIN_S", 0.05)
    monkeypatch.setattr(desk.primary, "settled_after_s", 0.7)
    asked, stored_copies = [], desk.primary.stored_copies

    def search(messages, shown_ids, since_ms, deadline_s):
        asked.append(list(shown_ids))
        gevent.sleep(0.05)  # as Kafka
        return stored_copies(messages, shown_ids, since_ms, deadline_s)

    monkeypatch.setattr(desk.primary, "stored_copies", search)
    desk.primary.look_up, desk.primary.code = Code.UNAVAILABLE, Code.TIMEOUT
    for number in range(1000):
        desk.submit(Message(topic="t", key=f"k{number % 5}", id=f"a{number % 60}"))
    soon(lambda: desk.journaling.backlog.count == 1000, "the backlog")
    gevent.sleep(0.8)  # until all are old enough
    asked.clear()
    desk.primary.look_up, desk.primary.code = Code.OK, None
    desk.send(1, key="k0")
    soon(lambda: not desk.journaling.backlog.count, "the backlog to be empty", 120)
    assert len(asked) <= 12
    assert max(map(len, asked)) <= 60, "an id is asked once per question"
    even(desk)
    assert desk.secondary.ids() == desk.primary.ids() == ["t-k0-0"]


def assert_the_same_number_of_each_id(desk):
    assert sorted(desk.secondary.ids()) == sorted(desk.primary.ids())
    assert desk.secondary.of_key(b"k") == desk.primary.of_key(b"k")


@pytest.mark.parametrize("stored_first", [False, True])
def test_a_message_that_is_sent_again_after_an_unknown_outcome_is_on_both_sides_as_often(desk, stored_first):
    desk.primary.code, desk.primary.stores_anyway = Code.TIMEOUT, stored_first
    desk.submit(Message(topic="t", key="k", id="a"))
    desk.primary.code = None
    (outcome,) = desk.submit(Message(topic="t", key="k", id="a"))
    assert outcome[0] == Code.OK
    desk.send(1)
    even(desk)
    assert desk.primary.ids().count("a") == 1 + stored_first
    assert_the_same_number_of_each_id(desk)


def test_a_first_send_that_the_primary_stores_after_the_second_one_is_copied_too(desk, monkeypatch):
    monkeypatch.setattr("producer_proxy.journal.repair.ASK_AGAIN_S", 0.01)
    monkeypatch.setattr(desk.primary, "settled_after_s", 1.0)
    counts = []
    count_copies = desk.primary.count_copies
    monkeypatch.setattr(desk.primary, "count_copies", lambda *asked: counts.append(count_copies(*asked)) or counts[-1])
    message = Message(topic="t", key="k", id="a")
    desk.primary.code = Code.TIMEOUT
    desk.submit(message)
    desk.primary.code = None
    desk.submit(message)
    soon(lambda: counts[-2:] == [[1], [1]], "the primary to be counted more than once")
    slices = [MessageSlice(SideDestination("t", 4), b"k", None, encode_struct(message))]
    desk.primary.submit(1, slices, lambda outcomes: None)  # Kafka's client has held it
    even(desk)
    assert desk.primary.ids() == ["a", "a"]
    assert_the_same_number_of_each_id(desk)


def test_many_sends_of_one_id_that_is_on_both_sides_as_often_leave_the_journal_together(desk, monkeypatch):
    monkeypatch.setattr("producer_proxy.journal.repair.ASK_AGAIN_S", 0.01)
    monkeypatch.setattr(desk.primary, "settled_after_s", 0.2)
    counts, count_copies = [], desk.primary.count_copies
    monkeypatch.setattr(desk.primary, "count_copies", lambda *asked: counts.append(count_copies(*asked)) or counts[-1])
    desk.primary.look_up, desk.primary.code = Code.UNAVAILABLE, Code.TIMEOUT
    for _ in range(15):
        desk.submit(Message(topic="t", key="k", id="a"))
    desk.primary.code = None
    desk.submit(Message(topic="t", key="k", id="a"))
    gevent.sleep(0.3)  # until all are old enough
    desk.primary.look_up = Code.OK
    even(desk)
    assert len(counts) <= 3
    assert desk.primary.ids() == desk.secondary.ids() == ["a"]


def test_a_copy_waits_while_a_side_is_away_that_has_to_tell_how_often_it_has_the_id(desk, monkeypatch):
    monkeypatch.setattr("producer_proxy.journal.repair.ASK_AGAIN_S", 0.01)
    monkeypatch.setattr(desk.primary, "settled_after_s", 0.0)
    desk.primary.code, desk.primary.stores_anyway = Code.TIMEOUT, True
    desk.submit(Message(topic="t", key="k", id="a"))
    desk.primary.code = None
    desk.submit(Message(topic="t", key="k", id="a"))
    counts, count_copies = [], desk.primary.count_copies
    monkeypatch.setattr(desk.primary, "count_copies", lambda members, *_: counts.append(1) or [None] * len(members))
    soon(lambda: len(counts) > 20, "many counts without an answer")
    assert desk.secondary.ids() == ["a"]
    monkeypatch.setattr(desk.primary, "count_copies", count_copies)
    even(desk)
    assert_the_same_number_of_each_id(desk)


def test_a_side_that_cannot_count_its_copies_is_asked_a_few_times_alone(desk, monkeypatch):
    monkeypatch.setattr("producer_proxy.journal.repair.ASK_AGAIN_S", 0.01)
    monkeypatch.setattr(desk.primary, "settled_after_s", 0.0)
    monkeypatch.setattr(desk.primary, "count_copies", lambda members, *_: [UNCOUNTABLE] * len(members))
    desk.primary.code = Code.TIMEOUT
    desk.submit(Message(topic="t", key="k", id="a"))
    desk.primary.code = None
    desk.submit(Message(topic="t", key="k", id="a"))
    even(desk)
    assert desk.primary.ids() == desk.secondary.ids() == ["a"]


@pytest.mark.parametrize("stored_first", [False, True])
def test_so_it_is_after_a_killed_process(tmp_path, stored_first):
    desk = DualDesk(tmp_path / "journal")
    desk.primary.code, desk.primary.stores_anyway = Code.TIMEOUT, stored_first
    desk.submit(Message(topic="t", key="k", id="a"))
    desk.kill()
    desk.primary.code = None
    desk.start()
    desk.submit(Message(topic="t", key="k", id="a"))
    desk.send(1)
    even(desk)
    assert_the_same_number_of_each_id(desk)
    desk.stop()


def test_a_copy_that_another_proxy_has_made_of_the_same_id_does_not_count_for_that_of_a_killed_one(tmp_path):
    desk = DualDesk(tmp_path / "journal")
    desk.secondary.is_hanging = True
    desk.submit(Message(topic="t", key="k", id="a"))
    desk.kill()
    desk.secondary._held.clear()
    desk.secondary.release()
    (first,) = desk.primary.stored["t"]
    desk.primary.stored["t"].append(first)  # sent again through another proxy, which has copied it
    desk.secondary.stored["t"] = [first]
    desk.start()
    desk.topics.find(["t"])
    even(desk)
    assert desk.secondary.ids() == desk.primary.ids() == ["a", "a"]
    desk.stop()

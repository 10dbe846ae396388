"""The journal's entry in the configuration, and the report that nothing of fenced topics is on one side only."""

from dataclasses import replace

import gevent
import pytest

from common.config.definitions import Fence, TopicDefinition
from common.config.errors import StoreUnavailable
from common.config.store import COPIED, JOURNAL, SENT
from common.contract import Code, Message
from migration.journals import note_compared, ranges_to_compare
from producer_proxy.journal import journaling as journaling_module
from producer_proxy.journal import missed
from producer_proxy.journal.contents import IDS_MAX
from producer_proxy.journal.copied import CopiedReport
from producer_proxy.targets.base import ResolveError
from tests.services.fake_broker import wait_until
from tests.unit.producer_proxy.journal.side import DualDesk

PROCESS = "producer_proxy@127.0.0.1:1/desk"


class RegisteredDesk(DualDesk):
    """A desk whose journal is entered into the configuration."""

    def start(self) -> None:
        super().start()
        self.journaling.over(self.view, self.config, PROCESS)
        self.journaling.start(self.targets)  # once more, since it knows the configuration now

    def entries(self):
        return [found.value for _, found in self.config.entries("journal")]

    def told(self, topic="t"):
        (entry,) = self.entries()
        return entry.get("topics", {}).get(topic)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.setattr(journaling_module, "LOOK_S", 0.01)
    monkeypatch.setattr(journaling_module, "TELL_S", 0.05)
    return RegisteredDesk(tmp_path)


def test_a_journal_is_in_the_configuration_from_its_first_use_until_an_orderly_end_with_nothing_in_it(desk):
    assert desk.entries() == []
    desk.send(1)
    assert [each["process"] for each in desk.entries()] == [PROCESS]
    wait_until(lambda: desk.is_even)
    desk.stop()
    assert desk.entries() == []


def test_the_entry_of_a_killed_proxy_stays_and_its_next_start_takes_it_over(desk):
    desk.send(1)
    desk.kill()
    (before,) = [name for name, _ in desk.config.entries("journal")]
    desk.start()
    wait_until(lambda: desk.entries()[0]["process"] == PROCESS)
    assert [name for name, _ in desk.config.entries("journal")] == [before]
    desk.stop()


def test_ids_that_wait_are_told_by_topic_with_their_number_and_outlive_an_orderly_end(desk):
    desk.secondary.code = Code.UNAVAILABLE
    names = desk.send(IDS_MAX + 5)
    desk.send(1, topic="u")
    wait_until(lambda: (desk.told() or {}).get("messages") == len(names) and len(desk.told()["ids"]) == IDS_MAX)
    assert [shown for _, shown in desk.told()["ids"]] == names[:IDS_MAX]
    assert {queue for queue, _ in desk.told()["ids"]} <= {0, 1, 2, 3}
    wait_until(lambda: desk.told("u") is not None)
    desk.stop()
    assert desk.told()["messages"] == len(names), "it stopped in order with messages in its journal"
    desk.start()
    desk.secondary.code = None
    wait_until(lambda: desk.told() is None)
    desk.stop()
    assert desk.entries() == []


def test_how_much_waits_is_told_seldom_and_that_another_topic_waits_at_once(desk, monkeypatch):
    monkeypatch.setattr(journaling_module, "TELL_S", 3_600.0)
    looks, look_at = [], desk.journaling._look_at
    monkeypatch.setattr(desk.journaling, "_look_at", lambda topic: (looks.append(topic), look_at(topic)))
    desk.secondary.code = Code.UNAVAILABLE
    desk.send(1)
    wait_until(lambda: desk.told() is not None)
    desk.send(3)
    wait_until(lambda: desk.journaling.backlog.count == 4)
    before = len(looks)
    wait_until(lambda: len(looks) >= before + 3)
    assert desk.told()["messages"] == 1
    desk.send(1, topic="u")
    wait_until(lambda: desk.told("u") is not None)
    assert desk.told()["messages"] == 4
    desk.secondary.code = None
    wait_until(lambda: desk.told() is None and desk.told("u") is None)
    desk.stop()


def test_a_telling_that_the_configuration_does_not_take_is_tried_again_at_the_next_look(desk, monkeypatch):
    monkeypatch.setattr(journaling_module, "TELL_S", 3_600.0)
    desk.send(1)
    wait_until(lambda: desk.is_even)
    put, refused = desk.config.put, []

    def away_at_first(*arguments):
        if len(refused) < 2:
            refused.append(arguments)
            raise StoreUnavailable("configuration: not available")
        return put(*arguments)

    monkeypatch.setattr(desk.config, "put", away_at_first)
    desk.secondary.code = Code.UNAVAILABLE
    desk.send(1)
    wait_until(lambda: desk.told() is not None)
    assert len(refused) == 2
    desk.secondary.code = None
    desk.stop()


def test_ranges_that_an_operator_has_compared_are_forgotten_and_those_that_have_grown_since_are_not(desk):
    desk.send(1)
    ranges = desk.journaling.intents.ranges
    for topic in ("t", "u"):
        ranges.add(topic, 0, 1, 1, "the journal is full")
    wait_until(lambda: len(desk.entries()[0].get("ranges", ())) == 2)
    found = ranges_to_compare(desk.config, ["t", "u"], None, None)
    ranges.add("u", 0, 2, 1, "the journal is full")
    ranges._ranges["u", 0] = ranges._ranges["u", 0]._replace(to_ms=ranges._ranges["u", 0].to_ms + 1)
    assert note_compared(desk.config, found) == 2
    wait_until(lambda: [each["topic"] for each in desk.entries()[0].get("ranges", ())] == ["u"])
    assert [each.topic for each in missed.read(desk.journal.directory / "missed")[1]] == ["u"], "the file says so"
    assert "compared" not in desk.entries()[0]
    note_compared(desk.config, ranges_to_compare(desk.config, ["t", "u"], None, None))
    wait_until(lambda: "ranges" not in desk.entries()[0])
    desk.stop()


def test_without_the_configuration_the_first_message_is_refused_and_nothing_is_stored(desk, monkeypatch):
    def away(*_):
        raise StoreUnavailable("configuration: not available")

    monkeypatch.setattr(desk.config, "put", away)
    with pytest.raises(ResolveError, match=r"the repair journal cannot be entered into the configuration: .*nothing"):
        desk.submit(Message(topic="t", id="a"))
    assert desk.primary.stored == {}
    monkeypatch.undo()
    desk.send(1)
    wait_until(lambda: desk.is_even)
    desk.stop()


class Reported:
    """A CopiedReport over a desk."""

    def __init__(self, desk) -> None:
        self.desk, self.sent, self.repeats = desk, 0, 0
        self.report = CopiedReport(
            desk.journaling, lambda: {SENT: self.sent}, desk.view.topic, lambda: desk.view.version["topic"], self.repeat
        )

    def repeat(self) -> None:
        self.repeats += 1

    def follow(self) -> int:
        """The version that is to be reported."""
        self.report.follow()
        return self.desk.view.version["topic"]

    @property
    def copied(self):
        return self.report.numbers()[COPIED]


def set_fence(desk, topic, fence):
    found = desk.config.get("topic", topic)
    definition = replace(TopicDefinition.from_value(topic, found.value), fence=fence)
    desk.config.put("topic", topic, definition.to_value(), found.version)
    wait_until(lambda: desk.view.topic(topic).fence == fence)


def test_a_version_is_reported_as_copied_once_sends_have_ended_and_nothing_of_fenced_topics_waits(desk):
    reported = Reported(desk)
    desk.secondary.code = Code.UNAVAILABLE
    desk.send(3)
    set_fence(desk, "t", Fence("shop", "shop.1", 5_000))
    wanted = reported.follow()
    reported.sent = wanted
    gevent.sleep(0.1)
    assert reported.copied < wanted, "messages of a fenced topic wait"
    desk.secondary.code = None
    wait_until(lambda: reported.copied == wanted and reported.repeats == 1)
    assert reported.report.numbers()[JOURNAL] == 1
    desk.stop()


@pytest.mark.parametrize("side", ["primary", "secondary"])
def test_a_message_that_a_side_has_not_answered_holds_the_report(desk, side):
    reported = Reported(desk)
    getattr(desk, side).is_hanging = True
    desk.send(1)
    set_fence(desk, "t", Fence("shop", "shop.1", 5_000))
    wanted = reported.sent = reported.follow()
    gevent.sleep(0.1)
    assert reported.copied < wanted
    getattr(desk, side).release()
    wait_until(lambda: reported.copied == wanted)
    desk.stop()


def test_what_waits_of_a_topic_without_a_fence_does_not_hold_the_report(desk):
    reported = Reported(desk)
    desk.secondary.code = Code.UNAVAILABLE
    desk.send(3, topic="u")
    set_fence(desk, "t", Fence("shop", "shop.1", 5_000))
    assert reported.follow() > reported.copied == 0
    reported.sent = desk.view.version["topic"]
    wait_until(lambda: reported.copied == reported.sent)
    desk.secondary.code = None
    desk.stop()


def test_a_proxy_without_a_journal_says_so(tmp_path):
    desk = DualDesk(tmp_path, has_journal=False)
    assert Reported(desk).report.numbers()[JOURNAL] == 0
    desk.stop()

"""Dual writes whose process dies: at each write of the journal, and at random between and inside of outages of both sides."""

import random

import gevent
import pytest

from common.contract import Code, Message
from producer_proxy.journal import repair
from producer_proxy.journal.divergence import divergence
from producer_proxy.journal.journal import RepairJournal
from producer_proxy.journal.segment import JournalSegment
from tests.unit.producer_proxy.journal.side import DualDesk, even, soon

SEEDS = range(6)
STEPS = 60
WRITES = ("append", "mark_stored", "mark_done", "delete")


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch):
    monkeypatch.setattr(repair, "ASK_AGAIN_S", 0.01)
    monkeypatch.setattr("producer_proxy.journal.journal.MARK_S", 0.005)


class ProcessDied(BaseException):
    """The process ends here."""


class DyingDisk:
    """Counts the journal's writes, and ends the process at one of them: before it, or when half of it is written."""

    def __init__(self, monkeypatch) -> None:
        self.at: int | None = None
        self.is_half = False
        self.count = 0
        self.is_dead = False
        for name in WRITES:
            monkeypatch.setattr(JournalSegment, name, self._dying(name, getattr(JournalSegment, name)))

    def _dying(self, name, work):
        def attempt(segment, *arguments):
            if self.is_dead:
                raise ProcessDied if name == "append" else OSError(5, "the process is dead")
            self.count += 1
            if self.count - 1 != self.at:
                return work(segment, *arguments)
            self.is_dead = True
            if self.is_half and name == "append":
                work(segment, arguments[0][: len(arguments[0]) // 2])
            raise OSError(5, "the process dies") if name != "append" else ProcessDied

        return attempt


def run_script(desk):
    """Messages through outages of the secondary and of the primary; ids by what their caller was told."""
    told: dict[str, int] = {}

    def send(name, key):
        desk.submit(
            Message(topic="t", id=name, key=key), on_outcomes=lambda outcomes: told.__setitem__(name, outcomes[0][0])
        )

    for number in range(14):
        desk.secondary.code = Code.UNAVAILABLE if 4 <= number < 8 else Code.TIMEOUT if number == 9 else None
        desk.secondary.stores_anyway = number == 9
        desk.primary.code = Code.TIMEOUT if number in (6, 11) else None
        desk.primary.stores_anyway = number == 6
        send(f"m{number}", "ab"[number % 2])
        gevent.sleep(0.004)
    return told


def assert_the_same_on_both_sides(desk):
    assert set(desk.secondary.ids()) == set(desk.primary.ids())
    assert len(set(desk.secondary.ids())) == len(desk.secondary.ids()), "a copy was doubled"
    for key in (b"a", b"b"):
        assert desk.secondary.of_key(key) == desk.primary.of_key(key)


@pytest.mark.parametrize("is_half", [False, True])
def test_a_process_that_dies_at_any_write_of_its_journal_leaves_nothing_unrepaired(tmp_path, monkeypatch, is_half):
    disk = DyingDisk(monkeypatch)
    disk.is_half = is_half
    at, was_dead = 0, True
    while was_dead:
        disk.at, disk.count, disk.is_dead = at, 0, False
        desk = DualDesk(tmp_path / f"at-{at}")
        try:
            run_script(desk)
        except ProcessDied:
            pass
        was_dead = disk.is_dead
        desk.kill()
        disk.at, disk.is_dead = None, False
        desk.primary.code = desk.secondary.code = None
        desk.start()
        desk.topics.find(["t"])
        even(desk)
        assert_the_same_on_both_sides(desk)
        desk.stop()
        at += 1
    assert at > 14, "every message has an intent at least"


class Model:
    """What callers were told, over any number of processes."""

    def __init__(self, desk: DualDesk, chance: random.Random) -> None:
        self.desk, self.chance, self.told, self.keys = desk, chance, {}, {}
        self.sent = 0

    def send(self) -> None:
        self.submit(f"m{self.sent}", self.chance.choice("ab"))
        self.sent += 1

    def submit(self, name, key) -> None:
        def on_outcomes(outcomes) -> None:
            self.told[name] = outcomes[0][0]

        self.keys[name] = key
        self.desk.submit(Message(topic="t", id=name, key=key), on_outcomes=on_outcomes)

    def change_side(self) -> None:
        side = self.chance.choice((self.desk.primary, self.desk.secondary))
        side.code = self.chance.choice((None, None, Code.UNAVAILABLE, Code.TIMEOUT, Code.OVERLOADED))
        side.stores_anyway = side.code == Code.TIMEOUT and self.chance.random() < 0.5

    def kill(self) -> None:
        self.desk.kill()
        self.desk.start()
        self.desk.topics.find(["t"])

    def rest(self) -> None:
        gevent.sleep(self.chance.choice((0, 0.002, 0.02)))

    def step(self) -> None:
        self.chance.choices((self.send, self.change_side, self.kill, self.rest), (10, 3, 1, 4))[0]()

    def finish(self) -> None:
        for side in (self.desk.primary, self.desk.secondary):
            side.code, side.stores_anyway = None, False
        even(self.desk)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_order_of_sends_outages_and_kills_ends_with_the_same_messages_in_the_same_order_per_key(tmp_path, seed):
    model = Model(DualDesk(tmp_path / "journal"), random.Random(seed))
    model.desk.topics.find(["t"])
    for _ in range(STEPS):
        model.step()
    model.finish()
    told_ok = {name for name, code in model.told.items() if code == Code.OK}
    assert told_ok <= set(model.desk.primary.ids()) and len(model.told) == model.sent
    assert_the_same_on_both_sides(model.desk)
    model.desk.stop()


class ImpatientModel(Model):
    """Its callers send again, under the same id, what was not answered OK."""

    def send(self) -> None:
        open_ = [name for name, code in self.told.items() if code != Code.OK]
        if not open_ or self.chance.random() < 0.3:
            return super().send()
        name = self.chance.choice(open_)
        return self.submit(name, self.keys[name])


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_callers_that_send_again_double_a_message_on_both_sides_or_on_none(tmp_path, seed):
    model = ImpatientModel(DualDesk(tmp_path / "journal"), random.Random(seed))
    model.desk.topics.find(["t"])
    for _ in range(STEPS):
        model.step()
    model.finish()
    assert sorted(model.desk.secondary.ids()) == sorted(model.desk.primary.ids())
    model.desk.stop()


def test_a_torn_end_is_passed_over_and_what_lies_before_it_is_repaired(tmp_path):
    desk = DualDesk(tmp_path / "journal")
    desk.secondary.code = Code.UNAVAILABLE
    desk.send(3)
    soon(lambda: desk.journaling.backlog.count == 3, "the backlog")
    desk.kill()
    (segment,) = (tmp_path / "journal").glob("*.buf")
    segment.write_bytes(segment.read_bytes()[:-5])
    desk.secondary.code = None
    desk.start()
    desk.topics.find(["t"])
    even(desk)
    assert desk.secondary.ids() == ["t-k-0", "t-k-1"] and desk.journal.damaged == 0
    desk.stop()


def test_after_another_boot_the_time_since_the_last_intent_is_a_range_to_compare(tmp_path):
    desk = DualDesk(tmp_path / "journal")
    desk.secondary.code = Code.UNAVAILABLE
    desk.send(1)
    before_ms = desk.now_ms()
    desk.kill()
    (tmp_path / "journal" / "run").write_text("another boot")
    desk.start()
    (missed,) = desk.journal.missed.all
    assert (missed.topic, missed.queue, missed.messages) == ("*", -1, 0)
    assert before_ms - 20_000 <= missed.from_ms <= before_ms - 14_000 and missed.to_ms >= before_ms
    desk.secondary.code = None
    desk.topics.find(["t"])
    soon(lambda: desk.is_even, "both sides to be even")
    desk.stop()
    assert not divergence(desk.directory).is_empty, "an operator has to compare"
    desk.start()
    assert desk.journal.missed.all == [missed], "an orderly end adds nothing"
    desk.journal.missed.forget([missed[:4]])
    assert divergence(desk.directory).is_empty, "the file says so"
    desk.stop()


def test_an_orderly_end_leaves_an_empty_journal_and_no_range(tmp_path):
    desk = DualDesk(tmp_path / "journal")
    sent = desk.send(5)
    desk.stop()
    assert desk.secondary.ids() == sent
    assert divergence(desk.directory, underway_ms=0).is_empty
    assert list(desk.directory.glob("*.buf")) == []
    made = RepairJournal(desk.directory, desk.now_ms)
    assert made.found == [] and made.missed.all == []
    made.close()

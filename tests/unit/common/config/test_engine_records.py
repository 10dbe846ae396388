"""Records of the broker groups' engines: which engine is refused, and by which sentence."""

import threading
from typing import NamedTuple

import pytest

from common.clock import FakeClock
from common.config.engine_records import KIND, EngineRecords
from common.config.memory_store import MemoryConfigStore
from tests.waiting import until


class Greeting(NamedTuple):
    broker_group: str = "g1"
    log_id: str = "aa"
    epoch: str = "e1"
    end_position: int = 1000
    durable_position: int = 900
    term: int = 0


@pytest.fixture
def store():
    return MemoryConfigStore()


@pytest.fixture
def records(store):
    return EngineRecords(store, FakeClock())


def test_the_first_engine_of_a_group_is_recorded_and_its_position_only_grows(store, records):
    assert records.admits("g1", Greeting()) is None
    assert records.read("g1")[:2] == ("aa", 900)
    assert records.admits("g1", Greeting(end_position=950, durable_position=800)) is None
    assert records.read("g1").position == 900
    records.note("g1", "aa", 2000)
    assert EngineRecords(store, FakeClock()).read("g1")[:3] == ("aa", 2000, "e1")


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (Greeting(broker_group="g2"), "answers the engine of broker group g2: correct the address"),
        (Greeting(log_id="bb"), "has log bb, but the messages are in log aa, 900 bytes"),
        (
            Greeting(end_position=899, durable_position=880),
            "log ends at 899, but 900 bytes of it were durable: it is an older copy",
        ),
    ],
)
def test_a_foreign_empty_or_older_engine_is_refused_until_it_is_accepted(store, records, found, sentence):
    records.admits("g1", Greeting())
    assert sentence in records.admits("g1", found) and sentence in records.refusals["g1"]
    assert records.read("g1")[:2] == ("aa", 900)
    if found.broker_group == "g1":
        EngineRecords(store, FakeClock()).accept("g1", found)
        assert records.admits("g1", found) is None and records.refusals == {}
        assert records.admits("g1", Greeting()) is None or found.log_id != "aa"


def test_an_only_engine_may_have_any_name_and_is_recorded_under_it(records):
    assert records.admits(None, Greeting(broker_group="main")) is None
    assert "another engine" in records.admits(None, Greeting(broker_group="main", log_id="bb"))


def test_an_engine_of_an_earlier_version_is_checked_by_its_log_alone(records):
    records.admits("g1", Greeting())
    assert records.admits("g1", Greeting(epoch="", end_position=0, durable_position=0)) is None
    assert records.admits("g1", Greeting(log_id="bb", epoch="", end_position=0)) is not None


def test_while_the_store_is_away_the_last_known_record_counts(store, records):
    records.admits("g1", Greeting())
    store.set_available(False)
    assert records.admits("g1", Greeting(log_id="bb")) is not None
    assert records.admits("g1", Greeting(end_position=5000, durable_position=5000)) is None
    assert records.admits("g9", Greeting(broker_group="g9")) is None


def test_a_record_that_cannot_be_read_refuses_no_engine_and_is_logged(store, records, caplog):
    store.put(KIND, "g1", {"log_id": "aa"}, 0)
    assert records.admits("g1", Greeting(log_id="bb")) is None
    assert "cannot be read" in caplog.text


def test_a_broker_with_replicas_may_have_less_than_another_one_had_as_the_controller_decides_about_it(records):
    records.admits("g1", Greeting())
    assert "older copy" in records.admits("g1", Greeting(end_position=899, durable_position=880))
    assert records.admits("g1", Greeting(end_position=899, durable_position=880, term=2)) is None
    assert "another engine" in records.admits("g1", Greeting(log_id="bb", term=2))


class StandingStore(MemoryConfigStore):
    """Its reads stand until `answers` is set, as ZooKeeper's do while it elects a leader."""

    def __init__(self):
        super().__init__()
        self.answers = threading.Event()
        self.answers.set()
        self.was_waited_for = False

    def get(self, kind, name):
        self.was_waited_for |= not self.answers.wait(5)
        return super().get(kind, name)


def test_the_next_master_of_a_known_log_does_not_wait_for_a_store_that_stands():
    store = StandingStore()
    records = EngineRecords(store, FakeClock())
    records.admits("g1", Greeting(term=1))
    store.answers.clear()
    assert records.admits("g1", Greeting(term=2, epoch="e2", end_position=2000, durable_position=2000)) is None
    assert not store.was_waited_for
    store.answers.set()
    until(lambda: records.read("g1")[:3] == ("aa", 2000, "e2"), "it is recorded when the store answers")


def test_an_engine_that_the_record_does_not_allow_waits_for_the_store():
    store = StandingStore()
    records = EngineRecords(store, FakeClock())
    records.admits("g1", Greeting(term=1))
    store.answers.clear()
    answers = []
    asking = [
        threading.Thread(target=lambda found=found: answers.append(records.admits("g1", found)))
        for found in (Greeting(log_id="bb", term=2), Greeting(end_position=899, durable_position=880))
    ]
    for each in asking:
        each.start()
    for each in asking:
        each.join(0.5)
    assert answers == []
    store.answers.set()
    for each in asking:
        each.join(5)
    assert len([each for each in answers if each]) == 2

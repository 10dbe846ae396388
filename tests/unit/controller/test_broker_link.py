"""A controller's link to a broker that this test plays: what counts as heard, and what is pushed."""

import threading

import pytest

from common.cluster.coordination import VersionedRecord
from common.cluster.memory_coordination import MemoryCoordination
from controller.broker_link import BrokerLink
from tests.services.fake_replica import KEY, FakeReplica
from tests.unit.controller.test_decision import SINGLE
from tests.waiting import until


@pytest.fixture
def broker():
    made = FakeReplica(MemoryCoordination(), "g", "a", 1)
    yield made
    made.stop()


@pytest.fixture
def changed():
    return threading.Event()


@pytest.fixture
def link(broker, changed):
    made = BrokerLink("g", "a", broker.address, KEY, changed.set)
    yield made
    made.close()


def test_each_report_is_heard_and_told(broker, link, changed):
    until(lambda: link.heard, "the first report")
    changed.clear()
    broker.tell(hears_master=True)
    until(lambda: link.heard.report.hears_master and changed.is_set(), "the change")


def test_a_report_is_kept_while_the_link_is_opened_again_and_forgotten_when_that_fails(broker, link, changed):
    until(lambda: link.heard, "the first report")
    before = broker.linked
    broker.break_links()
    assert link.heard is not None
    until(lambda: broker.linked > before, "another link")
    assert link.heard is not None
    broker.stop()
    until(lambda: link.heard is None, "the loss")
    assert changed.is_set()


def test_a_record_is_pushed_once_and_again_over_another_link(broker, link):
    record = VersionedRecord(SINGLE, 5)
    until(lambda: link.heard, "the first report")
    broker.refusal = "not now"  # so that its report stays behind
    link.push(record)
    link.push(record)
    link.push(VersionedRecord(SINGLE, 4))
    until(lambda: broker.offered == [5], "one offer")
    linked, at_s = broker.linked, link.heard.at_s
    broker.break_links()
    until(lambda: broker.linked > linked and link.heard.at_s > at_s, "a report over another link")
    broker.refusal = ""
    until(lambda: link.push(record) or broker.adopted, "the adoption")
    assert broker.offered == [5, 5]
    until(lambda: link.heard.report.version == 5, "the report of it")
    linked, at_s = broker.linked, link.heard.at_s
    broker.break_links()
    until(lambda: broker.linked > linked and link.heard.at_s > at_s, "a report over a third link")
    link.push(record)
    broker.tell(hears_master=True)
    until(lambda: link.heard.report.hears_master, "a later report")
    assert broker.offered == [5, 5], "it has it"


def test_a_link_that_is_closed_hears_nothing_more(broker, link):
    until(lambda: link.heard, "the first report")
    link.close()
    until(lambda: not broker.has_links, "its end")
    until(lambda: link.heard is None, "its end here")


@pytest.mark.parametrize("key", [b"x" * 32, KEY])
def test_a_broker_of_another_name_or_key_is_not_heard(broker, changed, key):
    link = BrokerLink("g", "b" if key == KEY else "a", broker.address, key, changed.set)
    until(changed.is_set, "an attempt")
    assert link.heard is None
    link.close()


@pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1:99999"])
def test_an_address_that_is_none_ends_no_thread(address, changed):
    link = BrokerLink("g", "a", address, KEY, changed.set)
    for _ in range(3):
        until(changed.is_set, "an attempt")
        changed.clear()
    link.close()

"""Planned switches from the console, with brokers that the test plays: made, refused, forestalled, and seen on the map."""

import threading
from dataclasses import replace
from functools import partial

import pytest

from common.admin import audit
from common.cluster.coordination import VersionedRecord
from common.cluster.file_coordination import FileCoordination
from common.cluster.group_record import GroupRecord, GroupState, LogPoint
from console.installation.broker_queries import BrokerQueries
from console.installation.latest import Latest
from console.installation.master_switches import MasterSwitches
from console.installation.replica_groups import replica_states
from tests.services.fake_replica import KEY, LOG, FakeReplica
from tests.unit.console.consoles import text_of
from tests.waiting import until

SYNC = GroupRecord(
    3, GroupState.SYNC_REPLICATION, "a", {"a": 1, "b": 2}, {}, {}, LOG, LogPoint(3, 50), "the test says so", 1795255200123
)  # fmt: skip


class Group:
    """Brokers a, b and c of group main; a leads, b is in sync."""

    def __init__(self, coordination: FileCoordination) -> None:
        self.coordination = coordination
        coordination.write("main", SYNC, 0)
        coordination.remember("main", VersionedRecord(SYNC, 1))
        self.brokers = [FakeReplica(coordination, "main", name, number) for number, name in enumerate("abc", 1)]
        for each in self.brokers:
            each.tell(version=1, log_id=LOG, log=LogPoint(3, 200))
        until(lambda: len(coordination.brokers("main")) == 3, "the registrations")

    @property
    def record(self) -> GroupRecord:
        return self.coordination.record("main").record


@pytest.fixture
def group(tmp_path):
    coordination = FileCoordination(tmp_path / "config" / "replication")
    made = Group(coordination)
    yield made
    for each in made.brokers:
        each.stop()
    coordination.close()


@pytest.fixture
def console(console, group, tmp_path):
    """The console of a configuration whose group has replicas."""
    url = (tmp_path / "config").as_uri()
    console.parts.configuration.url = url
    queries = BrokerQueries(console.parts.configuration.view, b"", [("127.0.0.1", 1), ("127.0.0.1", 2)])
    return console.with_parts(
        brokers=queries, switches=MasterSwitches(url, KEY),
        replica_states=Latest(partial(replica_states, url), 0.0, console.clock.monotonic_s),
    )  # fmt: skip


def switch(browser, to: str = "b", master: str = "a"):
    return browser.post("/broker-groups/main/switch", to=to, master=master)


def test_a_switch_makes_the_other_broker_master_and_is_on_the_map_and_in_both_journals(console, group):
    operator = console.as_role("operator", "otto")
    page = text_of(operator.get("/broker-groups/main"))
    assert "a master" in page and "b in sync" in page and "c following" in page and "the test says so" in page
    assert switch(operator).status_code == 303
    assert (group.record.master, group.record.epoch) == ("b", 4) and group.brokers[0].handed_over == [1]
    assert "b master" in text_of(console.as_role("viewer").get("/map/live"))
    assert "switched by an operator from broker a to b" in text_of(operator.get("/broker-groups/main"))
    (own,) = console.parts.log.latest("switch broker")
    assert (own["who"], own["old"], own["new"]) == ("otto", {"master": "a", "epoch": 3}, {"master": "b", "epoch": 4})
    (found,) = audit.latest(console.store, 10, kind="broker")
    assert (found["who"], found["names"]) == ("console:otto", ["main"])


def test_a_switch_that_would_lose_messages_or_that_the_master_does_not_make_is_refused(console, group):
    operator = console.as_role("operator")
    refused = switch(operator, to="c")
    assert refused.status_code == 409 and "is not in sync (in sync: a, b)" in text_of(refused)
    group.brokers[0].leads_on = "broker b does not get everything"
    refused = switch(operator)
    assert refused.status_code == 409 and "leads on: broker b does not get everything" in text_of(refused)
    assert switch(operator, to="").status_code == 422 and switch(operator, to="<b>").status_code == 409
    assert operator.post("/broker-groups/other/switch", to="b", master="a").status_code == 404
    assert group.record == SYNC


def test_the_second_of_two_operators_is_told_who_leads_now(console, group):
    assert switch(console.as_role("operator", "otto")).status_code == 303
    for each in group.brokers:
        each.tell(version=2)
    second = switch(console.as_role("operator", "olaf"))
    assert second.status_code == 409 and "broker b is the master now, not a" in text_of(second)
    assert group.record.epoch == 4


def test_a_warning_of_the_switch_is_shown(console, group, monkeypatch):
    monkeypatch.setattr("controller.operator_switch.ADOPTED_S_MAX", 0.3)
    group.brokers[1].refusal = "the disk is full"
    assert "has not adopted it yet" in text_of(switch(console.as_role("operator")))


def test_without_a_key_or_another_broker_in_sync_the_page_names_the_command(console, group):
    operator = console.as_role("operator")
    group.coordination.write("main", replace(SYNC, in_sync={"a": 1}, state=GroupState.SINGLE_MASTER), 1)
    assert "--force" in text_of(operator.get("/broker-groups/main"))
    console.with_parts(switches=MasterSwitches(console.parts.configuration.url, b""))
    page = text_of(console.browser(operator.session).get("/broker-groups/main"))
    assert "--controller-key" in page and "penstock broker switch main" in page


def test_while_one_page_asks_a_broker_that_hangs_the_others_get_the_state_before():
    answers, hangs, asked = iter(range(10)), threading.Event(), threading.Event()
    now = [0.0]

    def ask() -> int:
        found = next(answers)
        if found == 1:
            asked.set()
            assert hangs.wait(10)
        return found

    latest = Latest(ask, 1.0, lambda: now[0])
    assert (latest.get(), latest.get()) == (0, 0)
    now[0] = 2.0
    slow = threading.Thread(target=latest.get)
    slow.start()
    assert asked.wait(10) and latest.get() == 0
    hangs.set()
    slow.join()
    assert latest.get() == 1
    latest.forget()
    assert latest.get() == 2

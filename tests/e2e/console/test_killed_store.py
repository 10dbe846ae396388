"""Approvals whose configuration store, or whose console, is killed in between: no topic is half made or half changed, and
what was approved is applied by all processes in the end.
"""

import signal
import threading

import pytest

from common.config import open_store
from common.config.applying import laggards
from common.config.definitions import TopicDefinition
from tests.e2e.console.api_caller import SETUP, ApiCaller
from tests.services.zookeeper import ZooKeeper
from tests.waiting import until

NEW, CHANGED = 24, 16
WISH = {"peak_messages": 5_000, "retention_hours": 24, "body_bytes_max": 4_096, "description": "Killed", "team": "shop"}
MADE = {"queues": 8, "rate_messages": 7_500, "retention_ms": 86_400_000, "body_bytes_max": 4_096}
BEFORE = {"queues": 4, "rate_messages": 10, "retention_ms": 3_600_000, "body_bytes_max": 1_024}
AFTER = {"queues": 8, "rate_messages": 20, "retention_ms": 7_200_000, "body_bytes_max": 2_048}
APPLIED_S_MAX = 60.0


class Approvals:
    """Requests for new topics and for changes, approved one after the other by a thread."""

    def __init__(self, caller: ApiCaller, store) -> None:
        self.caller, self.done = caller, 0
        names = [f"old-{number:02d}" for number in range(CHANGED)]
        values = {name: TopicDefinition.from_value(name, BEFORE).to_value() for name in names}
        self.numbers: list[tuple[int, int]] = []
        changes = []
        for name, value in values.items():
            version = store.put("topic", name, value, 0)
            changes.append(caller.requests.add_change(SETUP, caller.team_id, name, "More", (value, version), AFTER))
        for number in range(NEW):
            status, made = caller.call("/api/v1/requests", {**WISH, "name": f"new-{number:02d}"})
            assert status == 200, made
            self.numbers.append((made["id"], 1))
            if changes:
                self.numbers.append((changes.pop(), 1))
        self._thread = threading.Thread(target=self._approve, daemon=True)
        self._thread.start()

    def _approve(self) -> None:
        for number, version in self.numbers:
            path = f"/api/v1/requests/{number}/approve"
            until(
                lambda path=path, seen=version: self.caller.call(path, {"version": seen})[0], "the console answers", 60
            )
            self.done += 1

    def join(self) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()


def wrong_topics(store) -> list[str]:
    """Topics whose settings are neither those before nor those after a change, nor those of a new one."""
    wrong = []
    for name, entry in store.entries("topic"):
        topic = TopicDefinition.from_value(name, entry.value)
        allowed = [MADE] if name.startswith("new-") else [BEFORE, AFTER]
        if {setting: getattr(topic, setting) for setting in MADE} not in allowed:
            wrong.append(f"{name}: {entry.value}")
    return wrong


def is_made(store, name: str, wanted: dict[str, int]) -> bool:
    entry = store.get("topic", name)
    topic = None if entry is None else TopicDefinition.from_value(name, entry.value)
    return topic is not None and all(getattr(topic, setting) == value for setting, value in wanted.items())


def check_whole(caller: ApiCaller, store, approvals: Approvals) -> None:
    """Everything that was decided is applied, whole, by every process; the others are as they were."""
    until(lambda: "approved" not in caller.states().values(), "approved requests are applied", APPLIED_S_MAX)
    assert wrong_topics(store) == []
    states = caller.states()
    for number, _ in approvals.numbers:
        request = caller.requests.get(number)
        wanted = MADE if request.base_version is None else AFTER
        assert is_made(store, request.name, wanted) == (states[number] == "applied"), (request.name, states[number])
    assert set(states.values()) <= {"applied", "requested"} and "applied" in states.values()
    version = store.version(("topic",))
    until(lambda: not laggards(store, {"topic": version["topic"]}), "all processes have applied it", APPLIED_S_MAX)


def test_zookeeper_is_killed_between_approvals(penstock_factory, tmp_path):
    with ZooKeeper(tmp_path) as zookeeper:
        url = f"zookeeper://{zookeeper.address}/killed?session_timeout_s=4&connect_timeout_s=1"
        penstock = penstock_factory("--config", url, environment={"PENSTOCK_CONSOLE": "1"})
        caller, store = ApiCaller(penstock), open_store(url)
        approvals = Approvals(caller, store)
        until(lambda: approvals.done >= 8, "some are approved", 30)
        zookeeper.stop()
        until(lambda: approvals.done >= 12, "some are approved without the store", 60)
        assert "approved" in caller.states().values(), "decided, and not known to be written"
        zookeeper.start()
        approvals.join()
        check_whole(caller, store, approvals)
        store.close()
        caller.close()
        penstock.stop()


@pytest.mark.slow  # the other one has the same checks
def test_the_console_is_killed_between_decision_and_write(penstock_factory):
    penstock = penstock_factory(environment={"PENSTOCK_CONSOLE": "1"})
    caller, store = ApiCaller(penstock), open_store(penstock.facts["config"])
    approvals = Approvals(caller, store)
    for least in (6, 20):
        until(lambda least=least: approvals.done >= least, "some are approved", 30)
        penstock.wait_replaced("console", penstock.kill("console", signal.SIGKILL))
    approvals.join()
    check_whole(caller, store, approvals)
    store.close()
    caller.close()

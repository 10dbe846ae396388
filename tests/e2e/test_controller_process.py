"""Controllers as processes, on files and on a real ZooKeeper, with brokers that this test plays."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from common.cluster.group_record import GroupState
from common.cluster.opening import open_coordination
from controller.group_controller import REPORT_S_MAX
from tests.services.fake_replica import KEY, LOG, REPORT_S, FakeReplica
from tests.services.zookeeper import RECONNECT_S, ZooKeeper
from tests.waiting import until

CHROOTS = itertools.count()
ELECTION_S = 20.0


class ControllerProcess:
    """`python -m controller`."""

    def __init__(self, url: str, directory, name: str) -> None:
        key = directory / "cluster.key"
        key.touch(0o600)
        key.write_bytes(KEY)
        self.log = directory / f"{name}.log"
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "controller", "--config", url, "--cluster-key", str(key), "--name", name]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--ready-fd", str(writing)], pass_fds=[writing], stdout=log, stderr=log
            )
        os.close(writing)
        with os.fdopen(reading) as ready:
            line = ready.readline()
        assert line, self.log.read_text()
        self.port = json.loads(line)["ops_port"]

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(20)

    def page(self, name: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{name}", timeout=5) as page:
                return page.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def metric(self, name: str) -> float | None:
        found = re.search(rf"^penstock_controller_{re.escape(name)} (\S+)$", self.page("metrics"), re.M)
        return float(found[1]) if found else None

    def ready(self) -> dict:
        return json.loads(self.page("readyz"))


class Setting:
    """A coordination with controllers and brokers, which end with the test."""

    def __init__(self, url: str, directory) -> None:
        self.url, self.directory = url, directory
        self.coordination = open_coordination(url)
        self._ended: list = []

    def controller(self, name: str) -> ControllerProcess:
        made = ControllerProcess(self.url, self.directory, name)
        self._ended.append(lambda: made.end(signal.SIGKILL))
        return made

    def broker(self, name: str, incarnation: int = 1, group: str = "g", greeting: str = "") -> FakeReplica:
        made = FakeReplica(self.coordination, group, name, incarnation, greeting=greeting)
        self._ended.append(made.stop)
        return made

    def in_sync(self) -> tuple[FakeReplica, FakeReplica]:
        """Brokers a and b in SYNC_REPLICATION, a is master."""
        a = self.broker("a")
        until(lambda: a.record and a.record.log_id == LOG, "the first records", ELECTION_S)
        b = self.broker("b")
        b.tell(hears_master=True)
        a.follow(b)
        self.wait(GroupState.SYNC_REPLICATION, "a")
        until(lambda: b.record and b.record.state is GroupState.SYNC_REPLICATION, "the slave to have it")
        return a, b

    def wait(self, state: GroupState, master: str, deadline_s: float = 10.0) -> None:
        def is_there() -> bool:
            found = self.coordination.record("g")
            return found is not None and (found.record.state, found.record.master) == (state, master)

        until(is_there, f"{state.value} with master {master}", deadline_s)

    def close(self) -> None:
        for end in reversed(self._ended):
            end()
        self.coordination.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture(params=["files", "zookeeper"])
def setting(request, tmp_path):
    url = f"file://{tmp_path}/config"
    if request.param == "zookeeper":
        server = request.getfixturevalue("server")
        url = f"zookeeper://{server.address}/controllers/{next(CHROOTS)}?session_timeout_s=4"
    made = Setting(url, tmp_path)
    yield made
    made.close()


@pytest.fixture
def files(tmp_path):
    made = Setting(f"file://{tmp_path}/config", tmp_path)
    yield made
    made.close()


def test_a_group_of_two_comes_into_sync_step_by_step_and_every_broker_gets_every_record(setting):
    controller = setting.controller("c1")
    a, b = setting.in_sync()
    newest = setting.coordination.record("g").version
    until(lambda: setting.coordination.history("g")[-1].version == newest, "the change in the history")
    history = setting.coordination.history("g")
    steps = ["SINGLE_MASTER", "ASYNC_REPLICATION", "SEMI_SYNC", "SYNC_REPLICATION"]
    assert list(dict.fromkeys(each.record.state.value for each in history)) == steps
    assert all(each.record.at_ms > 1_600_000_000_000 and each.record.reason for each in history)
    last = setting.coordination.record("g")
    until(lambda: a.adopted[-1] == b.adopted[-1] == (last.version, last.record), "both to have the newest")
    assert [version for version, _ in a.adopted] == list(range(1, last.version + 1))
    until(lambda: controller.metric('group_state{group="g"}') == 4, "the state among the metrics")
    assert controller.metric("elected") == 1 and controller.metric('group_linked{group="g"}') == 2
    assert controller.ready()["ready"]


def test_a_master_that_both_witnesses_have_lost_is_replaced(setting):
    setting.controller("c1")
    a, b = setting.in_sync()
    a.stop()
    b.tell(hears_master=False)
    until(lambda: b.record.master == "b", "the slave to be master")
    first = next(record for _, record in b.adopted if record.master == "b")
    assert (first.epoch, first.in_sync, first.before) == (2, {"b": 1}, {"a": 1})


def test_a_master_that_ends_its_links_and_takes_new_ones_is_not_lost(files):
    controller = files.controller("c1")
    a, b = files.in_sync()
    version = files.coordination.record("g").version
    b.tell(hears_master=False)
    for _ in range(10):
        linked = a.linked
        a.break_links()
        until(lambda linked=linked: a.linked > linked, "another link")
    controller.page("metrics")
    assert files.coordination.record("g").version == version and controller.process.poll() is None
    a.stop()
    until(lambda: b.record.master == "b", "the slave to be master")


def test_a_master_that_hangs_is_lost_when_its_reports_are_too_old(files):
    files.controller("c1")
    a, b = files.in_sync()
    a.is_silent.set()
    began = time.monotonic()
    b.tell(hears_master=False)
    until(lambda: b.record.master == "b", "the slave to be master")
    assert time.monotonic() - began > REPORT_S_MAX - REPORT_S
    first = next(record for _, record in b.adopted if record.master == "b")
    assert first.epoch == 2 and first.reason.startswith("broker a is lost")


def test_when_the_elected_controller_is_killed_another_one_decides(setting):
    first = setting.controller("c1")
    until(lambda: first.metric("elected"), "the first to be elected", ELECTION_S)
    second = setting.controller("c2")
    a, b = setting.in_sync()
    until(lambda: second.metric('group_linked{group="g"}') == 2, "the second one's own links")
    assert second.metric("elected") == 0 and second.metric('changes_total{group="g"}') == 0
    assert second.ready()["ready"] and "c1" in second.ready()["notes"]["election"]
    newest = setting.coordination.record("g").version
    until(lambda: setting.coordination.history("g")[-1].version == newest, "the history so far")
    first.end(signal.SIGKILL)
    a.follow(b, is_lost=True)
    until(lambda: a.record.state is GroupState.SINGLE_MASTER, "the second to decide", ELECTION_S)
    until(lambda: not a.record.before, "nothing more to be decided")
    until(lambda: second.metric("elected") == 1, "the metric")
    newest = setting.coordination.record("g").version
    until(lambda: setting.coordination.history("g")[-1].version == newest, "the change in the history")
    kept = [each.version for each in setting.coordination.history("g")]
    assert a.record.epoch == 2 and kept == list(range(1, newest + 1)), "it goes on under another controller"


def test_a_controller_that_ends_in_order_leaves_its_place_at_once(setting):
    first = setting.controller("c1")
    until(lambda: first.metric("elected"), "the first to be elected", ELECTION_S)
    second = setting.controller("c2")
    assert first.end() == 0
    until(lambda: second.metric("elected"), "the second to be elected", 3.0)


def test_while_zookeeper_is_away_links_are_kept_and_afterwards_it_decides(server, tmp_path):
    setting = Setting(f"zookeeper://{server.address}/controllers/{next(CHROOTS)}", tmp_path)
    try:
        controller = setting.controller("c1")
        a, b = setting.in_sync()
        server.stop()
        until(lambda: controller.metric("elected") == 0, "the loss of contact")
        a.follow(b, is_lost=True)
        until(lambda: "coordination" in controller.ready()["faults"], "the page to say so", 20.0)
        assert controller.metric('group_linked{group="g"}') == 2 and controller.process.poll() is None
        assert a.record.state is GroupState.SYNC_REPLICATION, "without a coordination nothing changes"
        server.start()
        until(lambda: a.record.state is GroupState.SINGLE_MASTER, "the decision after the outage", RECONNECT_S)
    finally:
        setting.close()


def test_a_broker_that_restarts_elsewhere_is_dialled_at_its_new_address(files):
    files.controller("c1")
    a, b = files.in_sync()
    b.stop()
    a.follow(b, is_lost=True)
    again = files.broker("b", 2)
    until(lambda: again.record and again.record.in_sync == {"a": 1}, "the old process to leave the set")
    again.tell(hears_master=True)
    a.follow(again)
    until(lambda: again.record.in_sync == {"a": 1, "b": 2}, "the new one to join")


def test_groups_are_independent_and_new_ones_are_found(files):
    controller = files.controller("c1")
    lone = files.broker("x", 5, "other/group")
    a, _ = files.in_sync()
    until(lambda: lone.record, "the other group's record")
    assert (lone.record.master, a.record.master) == ("x", "a")
    until(lambda: controller.metric("groups") == 2, "the metric")


def test_a_broker_that_refuses_its_record_or_has_another_name_is_named_in_the_log(files):
    controller = files.controller("c1")
    a = files.broker("a")
    a.refusal = "the disk is full"
    until(lambda: "broker=a: it refuses a record: the disk is full" in controller.log.read_text(), "the refusal")
    files.broker("b", greeting="z")
    until(lambda: "there answers broker z of group g" in controller.log.read_text(), "the other name")


def test_a_sentence_is_logged_once_and_shown_as_a_note(files):
    controller = files.controller("c1")
    a, b = files.in_sync()
    a.stop()
    b.stop()
    until(lambda: controller.ready()["notes"].get("group g"), "the sentence")
    until(lambda: controller.metric('group_stuck{group="g"}') == 1, "the metric")
    assert controller.ready()["ready"]
    sentence = controller.ready()["notes"]["group g"]
    assert controller.log.read_text().count(sentence) == 1


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"--name": ""}, 2, "--name"),
        ({"--cluster-key": "/nowhere"}, 2, "--cluster-key /nowhere"),
        ({"--controller-key": "/nowhere"}, 2, "--controller-key /nowhere"),
        ({"--config": "redis://x"}, 1, "coordination URL"),
        ({"--ops": "x"}, 2, "--ops"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(tmp_path, changes, code, said):
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_bytes(KEY)
    options = {"--config": f"file://{tmp_path}/c", "--cluster-key": str(key), "--name": "c1", **changes}
    command = [sys.executable, "-m", "controller", *itertools.chain.from_iterable(options.items())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr

"""Brokers change outside while a rich load runs: their addresses, names, keys, versions, disks and their entry in the
configuration. What was answered OK is there, and everything goes on by itself when the change is taken back.
"""

import errno
import json
import urllib.error
import urllib.request
from contextlib import closing

import pytest

from common.config import open_store
from common.contract import Code
from common.secret_file import ensure_key
from tests.e2e.test_full_disk import fill
from tests.fault.replicated.load import ReplicatedLoad
from tests.fault.replicated_group import GROUP, OwnProcess, ReplicatedGroup
from tests.fault.stock_clients import Sender
from tests.services.failing_disk import ALLOCATE, OPEN, SYNC, WRITE
from tests.services.small_disk import mounted
from tests.services.stepped_clock import SteppedClock
from tests.services.zookeeper import free_port
from tests.waiting import until

PROXIES = ("producer_proxy", "consumer_proxy")
RATE = 200.0
KEYS = ("cluster", "replica", "controller")
WAIT_S = 60.0
OTHER_VERSION = """\
import runpy, sys
import engine.link.frame
engine.link.frame.VERSION = 9
sys.argv = ["engine", *sys.argv[1:]]
runpy.run_module("engine", run_name="__main__", alter_sys=True)
"""


class Configured(ReplicatedGroup):
    """A group of two whose proxies find it by its entry in the configuration, with a key per role."""

    def __init__(self, folder, url, **options) -> None:
        super().__init__(folder, url, **options)
        keys = {name: str(ensure_key(folder / f"{name}.key")) for name in KEYS[1:]}
        self._keys = [part for name in KEYS[1:] for part in (f"--{name}-key", keys[name])]
        for name in self.brokers:
            self.processes[name].command += self._keys
        at = self.processes["c1"].command.index("--cluster-key")
        self.processes["c1"].command[at : at + 2] = ["--controller-key", keys["controller"]]
        for name in PROXIES:
            at = self.processes[name].command.index("--engine")
            del self.processes[name].command[at : at + 2]
        self.names(*self.addresses.values())

    def start(self) -> "Configured":
        super().start()
        self.run("topic", "create", "probe")
        return self

    def launch_namesake(self, broker, process) -> None:
        """Another process of that name, on an empty directory, which begins no group."""
        first = self.processes[broker]
        command = [each for each in first.command if each != "--first"]
        for option, value in (("--data", self.key.parent / process), ("--listen", f"127.0.0.1:{free_port()}")):
            command[command.index(option) + 1] = str(value)
        self.processes[process] = OwnProcess(command, self.key.parent / f"{process}.log")
        self.processes[process].start()

    def names(self, *addresses) -> None:
        """Have the configuration name these addresses, none: no group."""
        with closing(open_store(self.url)) as store:
            found = store.get("broker_group", GROUP)
            version = found.version if found else 0
            value = {"address": ",".join(addresses)}
            store.put("broker_group", GROUP, value, version) if addresses else store.delete(
                "broker_group", GROUP, version
            )

    def end_brokers(self, *more) -> None:
        for name in (*self.brokers, *more):
            self.processes[name].end()

    def start_all(self, *names) -> None:
        for name in names or self.brokers:
            self.processes[name].launch()
        for name in names or self.brokers:
            self.processes[name].wait_ready()

    def move(self, name) -> None:
        """Give a broker another address, from its next start on."""
        address = f"127.0.0.1:{free_port()}"
        command = self.processes[name].command
        command[command.index("--listen") + 1] = self.addresses[name] = address

    def readiness(self, name) -> str:
        """The faults and notes of a process's /readyz."""
        try:
            page = urllib.request.urlopen(
                f"http://127.0.0.1:{self.processes[name].facts['ops_port']}/readyz", timeout=10
            )
        except urllib.error.HTTPError as error:
            page = error
        return json.dumps(json.load(page))

    def refusal(self, who) -> str:
        """The sentence of a send to a topic beside the load that is refused; empty: it is stored."""
        with Sender(self.producer, who) as sender:
            result = sender.one("probe")
        return "" if result.code == Code.OK else f"{result.code}: {result.error}"

    def go_on(self, load) -> None:
        self.wait_in_sync(WAIT_S)
        until(lambda: not self.refusal(load.who), "sends are taken", WAIT_S)
        load.wait_more(100, WAIT_S)


@pytest.fixture
def load(group, tmp_path):
    made = ReplicatedLoad(group, tmp_path / "load", RATE).start()
    yield made
    made.end()


@pytest.fixture
def clock(tmp_path):
    return SteppedClock(tmp_path)


@pytest.fixture
def group(tmp_path, clock):
    environments = dict.fromkeys(PROXIES, clock.environment)
    with Configured(tmp_path / "group", f"file://{tmp_path}/config", environments=environments) as made:
        yield made


def test_all_brokers_restart_elsewhere_and_beside_others_of_their_name_and_proxies_follow(group, load, clock):
    group.go_on(load)
    _move_all(group, load)
    _remove_brokers_from_the_configuration(group, load)
    _meet_namesakes(group, load)
    load.finish().assert_clean()


def test_keys_versions_and_clocks_change_and_what_does_not_fit_is_refused_with_a_sentence(group, load, clock):
    group.go_on(load)
    _turn_all_keys(group, load)
    _become_another_version(group, load)
    _step_clocks_of_proxies(group, load, clock)
    group.go_on(load)
    load.finish().assert_clean()


def _move_all(group, load):
    """All restart at other addresses: brokers and controllers follow, proxies once the configuration names them."""
    group.end_brokers()
    for name in group.brokers:
        group.move(name)
    group.start_all()
    group.wait_in_sync(WAIT_S)
    told = until(lambda: group.refusal(load.who), "a refusal", WAIT_S)
    assert told.startswith(str(int(Code.UNAVAILABLE))), told
    group.names(*group.addresses.values())
    group.go_on(load)


def _remove_brokers_from_the_configuration(group, load):
    """The entry is for proxies alone: without the master's address they refuse, and the set stays as it is."""
    version, master, slave = group.version, group.master, group.slave
    group.names(group.addresses[master])
    load.wait_more(100, WAIT_S)
    for left in ([group.addresses[slave]], []):
        group.names(*left)
        until(lambda: group.refusal(load.who), "a refusal", WAIT_S)
        print(left, group.refusal(load.who), group.readiness("producer_proxy"))
        assert group.version == version, "brokers and controllers go by their registrations"
        group.names(*group.addresses.values())
        load.wait_more(100, WAIT_S)


def _meet_namesakes(group, load):
    """All restart, and a process on an empty directory has a member's name first."""
    slave = group.slave
    group.end_brokers()
    group.launch_namesake(slave, "second")
    group.names(*group.addresses.values(), _address(group.processes["second"]))
    group.start_all()
    until(lambda: "registered by that name" in group.processes[slave].told(), "the real one waits", WAIT_S)
    group.go_on(load)
    group.processes["second"].end()
    group.names(*group.addresses.values())
    until(lambda: group.coordination.brokers(GROUP).get(slave), "the real one has its name", WAIT_S)
    group.go_on(load)


def _address(process) -> str:
    return f"{process.facts['host']}:{process.facts['port']}"


def _turn_all_keys(group, load):
    """As docs/runbooks.md says; proxies that still have the old one are refused by a sentence."""
    group.end_brokers("c1")
    for name in KEYS:
        (group.key.parent / f"{name}.key").write_bytes(f"another secret of the {name}".encode())
    group.start_all("c1", *group.brokers)
    group.wait_in_sync(WAIT_S)
    until(lambda: group.refusal(load.who), "a refusal", WAIT_S)
    for name in PROXIES:
        until(
            lambda name=name: "not connected: AUTH: " in group.processes[name].told(),
            "a sentence about the key",
            WAIT_S,
        )
    print(group.refusal(load.who), group.readiness("producer_proxy"))
    for name in PROXIES:
        group.restart(name)
    group.go_on(load)


def _become_another_version(group, load):
    """A slave of another link version is refused with a sentence, also when all restart; the other one leads."""
    slave = group.slave
    process = group.processes[slave]
    before, at = [*process.command], process.command.index("-m")
    changed = [*before[:at], "-c", OTHER_VERSION, *before[at + 2 :]]
    for others in ((), (group.master,)):
        process.end()
        for each in others:
            group.processes[each].end()
        process.command = changed
        group.start_all(slave, *others)
        until(lambda: "version" in process.told(), "its sentence", WAIT_S)
        until(lambda: group.record.in_sync.keys() == {group.master} != {slave}, "the other leads alone", WAIT_S)
        load.wait_more(100, WAIT_S)
        process.end()
        process.command = before
        process.start()
        group.go_on(load)


def _step_clocks_of_proxies(group, load, clock):
    """Credentials are as old as the proxy's clock says, so an hour refuses all; a minute is nothing."""
    for seconds in (60, -60):
        clock.step(seconds * 1000)
        load.wait_more(100, WAIT_S)
    for seconds in (3600, -3600):
        clock.step(seconds * 1000)
        told = until(lambda: group.refusal(load.who), "a refusal", WAIT_S)
        print(seconds, told)
        clock.step(0)
        load.wait_more(100, WAIT_S)


SMALL = ("--segment-mib", "1", "--disk-reserve-mib", "8", "--disk-percents", "97,98,99")
ERRORS = {
    "writes": (WRITE, errno.EIO), "syncs": (SYNC, errno.EIO), "read-only": (WRITE | OPEN | ALLOCATE | SYNC, errno.EROFS),
}  # fmt: skip


@pytest.mark.slow
def test_a_slave_whose_disk_fails_or_is_read_only_costs_no_send_and_comes_back(tmp_path, slow_disk):
    environments = {"b": slow_disk.environment}
    with Configured(
        tmp_path / "group", f"file://{tmp_path}/config", environments=environments, engine_options=SMALL[:2]
    ) as group:
        load = ReplicatedLoad(group, tmp_path / "load", RATE).start()
        try:
            for name, (calls, error) in ERRORS.items():
                group.go_on(load)
                assert group.master == "a"
                process = group.processes["b"]
                with slow_disk.failing(calls, ".seg", error):
                    until(
                        lambda: slow_disk.failed and group.record.in_sync.keys() == {"a"}, f"{name}: it leaves", WAIT_S
                    )
                    load.wait_more(100, WAIT_S)
                    print(name, "runs" if process.is_running else "ended", process.told()[-300:])
                if not process.is_running:
                    process.start()
            group.go_on(load)
            load.finish().assert_clean()
            assert load.refused == []
        finally:
            load.end()


@pytest.mark.slow
def test_all_restart_on_full_disks_end_with_a_sentence_and_go_on_once_there_is_room(tmp_path):
    with mounted(tmp_path / "a", "128m") as first, mounted(tmp_path / "b", "128m") as second:
        data = {"a": first / "data", "b": second / "data"}
        with Configured(tmp_path / "group", f"file://{tmp_path}/config", data=data, engine_options=SMALL) as group:
            load = ReplicatedLoad(group, tmp_path / "load", RATE).start()
            try:
                group.go_on(load)
                for disk in (first, second):
                    fill(disk)
                until(lambda: load.refused, "sends are refused", WAIT_S)
                group.end_brokers()
                for process in map(group.processes.get, group.brokers):
                    process.launch()
                    until(lambda process=process: not process.is_running, "it ends", WAIT_S)
                    assert "No space left on device" in process.told() and "incarnation" in process.told()
                assert group.refusal(load.who).startswith(str(int(Code.UNAVAILABLE)))
                for disk in (first, second):
                    (disk / "ballast").unlink()
                group.start_all()
                group.go_on(load)
                load.finish().assert_clean()
            finally:
                load.end()

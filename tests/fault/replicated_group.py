"""A broker group with replicas as separate processes: brokers, controllers and both proxies, each wherever a test puts it.

    group = ReplicatedGroup(tmp_path, f"zookeeper://{zookeeper.address}/test").start()
    group.kill("a")

It has the methods of `RunningPenstock` that loads and verdicts use.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from common.cluster.group_record import GroupRecord, GroupState
from common.cluster.opening import open_coordination
from common.secret_file import ensure_key
from penstock.up.directory import ADMIN_KEY
from tests.e2e.running import COMMAND_S_MAX, PENSTOCK, Application
from tests.services.zookeeper import free_port
from tests.waiting import until

GROUP = "main"
PROXY_HOST = "app"
READY_S_MAX = 60.0
STOP_S_MAX = 20.0
STARTED_S_MAX = 60.0
SWITCH_S_MAX = 15.0
ASK_ENGINE = (("group", "lag"), ("timer", "list"))
"""Commands that are sent to the master."""


class Hosts(Protocol):
    """The hosts of processes: `Loopback`, or tests/services/network.py."""

    def address(self, host: str) -> str:
        """Of that host."""

    def inside(self, host: str) -> list[str]:
        """Return the front of a command line that runs the rest there."""


class Loopback:
    """All on this machine's loopback address."""

    def address(self, host: str) -> str:
        return "127.0.0.1"

    def inside(self, host: str) -> list[str]:
        return []


class OwnProcess:
    """A process of Penstock, which a test kills, stops, continues and starts again.

    Attributes:
        command: its command line at the next start.
        facts: the line that it wrote when it was ready.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.command, self.log = [*command], log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: int | None = None
        self.facts: dict[str, Any] = {}

    def launch(self) -> None:
        """Start it, and do not wait until it serves."""
        self._ready, writing = os.pipe()
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [*self.command, "--ready-fd", str(writing)], pass_fds=[writing], stdout=log, stderr=log,
                env=self._environment,
            )  # fmt: skip
        os.close(writing)

    def wait_ready(self) -> None:
        """Return when it serves."""
        assert self._ready is not None
        reading, self._ready = self._ready, None
        with os.fdopen(reading, "rb") as pipe:
            assert select.select([pipe], [], [], READY_S_MAX)[0], self.told()
            line = pipe.readline()
        assert line, self.told()
        self.facts = json.loads(line)

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal; it may end it."""
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, number: int = signal.SIGKILL) -> int:
        """Send a signal and wait for the end, if it runs; returns the exit code. One that is stopped is continued."""
        if self._ready is not None:
            os.close(self._ready)
            self._ready = None
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)
        return self._process.wait(STOP_S_MAX)

    def told(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""


def near(broker: str) -> str:
    """Name of the producer proxy on this broker's host."""
    return f"near_{broker}"


class ReplicatedGroup:
    """
    Args:
        url: of the configuration.
        hosts: a broker and a controller run on the host of their name, both proxies on PROXY_HOST.
        data: directories of brokers, where they are not `folder`/NAME.
        engine_options: of all brokers.
        environments: of processes, by their names.
        near_proxies: run another producer proxy on each broker's host, which knows this broker only.
    Attributes:
        processes: by name; "producer_proxy" and "consumer_proxy" are the proxies.
    """

    def __init__(
        self, folder: Path, url: str, hosts: Hosts | None = None, *, brokers: Sequence[str] = ("a", "b"),
        controllers: Sequence[str] = ("c1",), data: Mapping[str, Path] | None = None, engine_options: Sequence[str] = (),
        environments: Mapping[str, Mapping[str, str]] | None = None, near_proxies: bool = False,
    ) -> None:  # fmt: skip
        self._folder, self.url, self._hosts = folder, url, hosts or Loopback()
        self.brokers, self.controllers = tuple(brokers), tuple(controllers)
        self._environments = environments or {}
        self.data = {name: (data or {}).get(name, folder / name) for name in brokers}
        self.key = folder / "cluster.key"
        self.addresses = {name: f"{self._hosts.address(name)}:{free_port()}" for name in brokers}
        folder.mkdir(parents=True, exist_ok=True)
        self.key.touch(0o600)
        self.key.write_bytes(b"the secret of a test's cluster")
        self._admin_key = ensure_key(folder / ADMIN_KEY)
        self.coordination = open_coordination(url)
        self.processes: dict[str, OwnProcess] = {}
        for name in brokers:
            first = ("--first",) if name == self.brokers[0] else ()
            self._add(name, name, "engine", "--data", self.data[name], "--listen", self.addresses[name],
                      "--broker-group", GROUP, "--broker", name, "--admin-key", self._admin_key, *first, *engine_options)  # fmt: skip
        for name in controllers:
            self._add(name, name, "controller", "--name", name)
        for name in ("producer_proxy", "consumer_proxy"):
            self._add(name, PROXY_HOST, name, "--listen", f"{self._hosts.address(PROXY_HOST)}:{free_port()}",
                      "--engine", ",".join(self.addresses.values()))  # fmt: skip

        for name in brokers if near_proxies else ():
            self._add(near(name), name, "producer_proxy", "--listen", f"{self._hosts.address(name)}:{free_port()}",
                      "--engine", self.addresses[name])  # fmt: skip

    def _add(self, name: str, host: str, module: str, *options: str | Path) -> None:
        common = ("--config", self.url, "--cluster-key", self.key, "--ops", f"{self._hosts.address(host)}:0")
        command = [*self._hosts.inside(host), sys.executable, "-P", "-m", module, *map(str, (*common, *options))]
        self.processes[name] = OwnProcess(command, self._folder / f"{name}.log", self._environments.get(name))

    def start_namesake(self, broker: str, process: str) -> None:
        """Start another process, on an empty directory, that an operator has given the name of this broker."""
        address = f"{self._hosts.address(broker)}:{free_port()}"
        self._add(process, broker, "engine", "--data", self._folder / process, "--listen", address,
                  "--broker-group", GROUP, "--broker", broker, "--admin-key", self._admin_key)  # fmt: skip
        self.processes[process].start()

    def start(self) -> "ReplicatedGroup":
        """Start everything, the broker with `--first` before the others, and wait until all brokers are in sync."""
        first = self.brokers[0]
        for name in (*self.controllers, first):
            self.processes[name].launch()
        for name in (*self.controllers, first):
            self.processes[name].wait_ready()
        until(lambda: self.coordination.record(GROUP), "the first record of the group", STARTED_S_MAX)
        rest = [name for name in self.processes if name not in (*self.controllers, first)]
        for name in rest:
            self.processes[name].launch()
        for name in rest:
            self.processes[name].wait_ready()
        self.wait_in_sync()
        return self

    # -- the record

    @property
    def record(self) -> GroupRecord:
        """Of the group, as it is now."""
        found = self.coordination.record(GROUP)
        assert found is not None
        return found.record

    @property
    def version(self) -> int:
        """Of the record."""
        found = self.coordination.record(GROUP)
        assert found is not None
        return found.version

    @property
    def master(self) -> str:
        return self.record.master

    @property
    def slave(self) -> str:
        """The first in-sync slave."""
        record = self.record
        return next(name for name in record.in_sync if name != record.master)

    def wait_in_sync(self, deadline_s: float = STARTED_S_MAX) -> None:
        """Until all brokers are in the set, and no change is left to be made."""

        def is_whole() -> bool:
            record = self.record
            whole = record.state is GroupState.SYNC_REPLICATION and len(record.in_sync) == len(self.brokers)
            return whole and not record.joining and not record.before

        until(is_whole, f"{len(self.brokers)} brokers are in sync", deadline_s)

    def wait_master_other_than(self, name: str, deadline_s: float = 10.0) -> None:
        until(lambda: self.record.master != name, f"another broker than {name} is master", deadline_s)

    # -- as RunningPenstock

    @property
    def producer(self) -> tuple[str, int]:
        return self._address("producer_proxy")

    @property
    def consumer(self) -> tuple[str, int]:
        return self._address("consumer_proxy")

    def near_producer(self, broker: str) -> tuple[str, int]:
        """The producer proxy on this broker's host."""
        return self._address(near(broker))

    def _address(self, name: str) -> tuple[str, int]:
        facts = self.processes[name].facts
        return facts["host"], facts["port"]

    def call(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        """Run a command against the configuration; its exit code is the caller's to judge."""
        asks_engine = arguments[:2] in ASK_ENGINE
        engine = ["--engine", self.addresses[self.master]] if asks_engine else []
        line = [*PENSTOCK, *arguments, "--config", self.url, "--data", str(self._folder), *engine]
        return subprocess.run(line, capture_output=True, timeout=COMMAND_S_MAX, check=False)

    def run(self, *arguments: str) -> Any:
        """Run a command with `-o json`, which must succeed; returns the parsed answer (None when it printed nothing)."""
        done = self.call(*arguments, "-o", "json")
        assert done.returncode == 0, f"penstock {' '.join(arguments)}: {done.stderr.decode()}{done.stdout.decode()}"
        return json.loads(done.stdout) if done.stdout.strip() else None

    def application(
        self, name: str, send: Iterable[str] = (), pull: Iterable[str] = (), dead_letters: Iterable[str] = ()
    ) -> Application:
        """Create an application with these grants."""
        grants = [part for pattern in send for part in ("--send", pattern)]
        grants += [part for pattern in pull for part in ("--pull", pattern)]
        grants += [part for pattern in dead_letters for part in ("--dead-letters", pattern)]
        made = self.run("app", "create", name, *grants)
        return Application(made["app"], made["key_id"], made["secret"])

    def switch(self) -> None:
        """A planned switch, as an operator asks for it: again if the master leads on, as on a machine that is too busy."""
        until(self._switches, "a planned switch", SWITCH_S_MAX)

    def _switches(self) -> bool:
        done = self.call("broker", "switch", GROUP, "--cluster-key", str(self.key))
        assert done.returncode == 0 or b"leads on" in done.stderr, done.stderr.decode()
        return done.returncode == 0

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to one process."""
        self.processes[name].kill(number)

    def restart(self, name: str) -> None:
        """Start a process that has ended or is about to."""
        self.processes[name].end()
        self.processes[name].start()

    def logs(self) -> str:
        """Return the ends of the processes' logs, for a failure's message."""
        ends = [f"--- {name}\n{process.told()}" for name, process in self.processes.items()]
        changes = [f"{each.version} {each.record}" for each in self.coordination.history(GROUP)[-12:]]
        return "\n".join([*ends, "--- history", *changes])

    def end(self) -> None:
        """End all processes, whatever the test did."""
        for process in self.processes.values():
            process.end()
        self.coordination.close()

    def __enter__(self) -> "ReplicatedGroup":
        try:
            return self.start()
        except BaseException:
            print(self.logs())
            self.end()
            raise

    def __exit__(self, *_: object) -> None:
        self.end()

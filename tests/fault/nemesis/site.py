"""The site of a nemesis run: a broker group whose processes have hosts, disks and clocks of their own, under a rich load."""

import signal
import time
import urllib.request
from contextlib import ExitStack
from email.utils import parsedate_to_datetime
from pathlib import Path
from random import Random
from typing import Any

from common.cluster.coordination import VersionedRecord
from common.cluster.group_record import GroupRecord
from common.config.errors import ConfigError
from tests.fault.cuts import Roles
from tests.fault.nemesis.disks import ENGINE_OPTIONS, BrokerDisk
from tests.fault.replicated.load import ReplicatedLoad
from tests.fault.replicated_group import GROUP, PROXY_HOST, ReplicatedGroup
from tests.services.failing_disk import FailingDisk
from tests.services.network import Network
from tests.services.stepped_clock import SteppedClock
from tests.services.zookeeper import ZooKeeper
from tests.waiting import until

ZOO = "zoo"
CONTROLLERS = ("c1", "c2")
BROKERS = ("a", "b", "c")
KINDS = ("ext4", "xfs", "ext4")
RATE = 1700.0
"""Messages per second: 1,070 calls."""
SYNCED_STREAMS = (1, 4, 7)
"""Their messages survive a power cut of all brokers."""
RECOVERY_S = 90.0
REST_S = 4.0
"""When the group is not whole after this time, a slave rests after failed joins. Another controller knows of none."""


class Site:
    """
    Attributes:
        roles: hosts by their present roles, while all brokers are in sync.
        cut_s: (begin, end) of each power cut of all brokers, monotonic seconds.
        stepped_ms: (begin, end) of the time in which the master's clock was wrong, Unix milliseconds.
    """

    def __init__(self, folder: Path, brokers: int, seed: str) -> None:
        self.chance = Random(seed)
        self.brokers = BROKERS[:brokers]
        self.hosts = (*self.brokers, *CONTROLLERS, ZOO, PROXY_HOST)
        self._folder, self._stack = folder, ExitStack()
        self.cut_s: list[tuple[float, float]] = []
        self.stepped_ms: list[tuple[int, int]] = []
        self._changes: dict[int, VersionedRecord] = {}

    def start(self) -> "Site":
        enter, folder = self._stack.enter_context, self._folder
        self.disks = {name: BrokerDisk(kind, folder / f"disk-{name}") for name, kind in self._kinds().items()}
        for disk in self.disks.values():
            self._stack.callback(disk.unmount)
        self.clocks: dict[str, SteppedClock] = {}
        self.failing: dict[str, FailingDisk] = {}
        for name in self.brokers:
            (folder / f"clock-{name}").mkdir()
            self.clocks[name] = SteppedClock(folder / f"clock-{name}")
            self.failing[name] = FailingDisk(folder / f"clock-{name}")
        self.network = enter(Network(*self.hosts))
        self.zookeeper = enter(ZooKeeper(folder / "zoo", self.network.address(ZOO), self.network.inside(ZOO)))
        self.group = enter(
            ReplicatedGroup(
                folder / "group", f"zookeeper://{self.zookeeper.address}/nemesis", self.network,
                brokers=self.brokers, controllers=CONTROLLERS, engine_options=ENGINE_OPTIONS,
                data={name: disk.data for name, disk in self.disks.items()},
                environments={name: self._environment(name) for name in self.brokers},
            )
        )  # fmt: skip
        inside = self.network.inside(PROXY_HOST)
        self.load = ReplicatedLoad(self.group, folder / "load", RATE, inside, SYNCED_STREAMS)
        self._stack.callback(self.load.end)
        self.load.start()
        return self

    def _environment(self, name: str) -> dict[str, str]:
        clock, disk = self.clocks[name].environment, self.failing[name].environment
        return {**clock, **disk, "LD_PRELOAD": f"{clock['LD_PRELOAD']}:{disk['LD_PRELOAD']}"}

    def _kinds(self) -> dict[str, str]:
        return dict(zip(self.brokers, KINDS, strict=False))

    def __enter__(self) -> "Site":
        try:
            return self.start()
        except BaseException:
            self._stack.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- the group

    @property
    def roles(self) -> Roles:
        """Who is what now. Waits for a slave in the set: on a machine short of CPU one may leave it between two faults."""
        record = self.until_record(lambda record: len(record.in_sync) > 1, "a slave in the in-sync set")
        slaves = sorted(record.in_sync.keys() - {record.master})
        return Roles(record.master, self.chance.choice(slaves), CONTROLLERS, ZOO, self.hosts)

    def told(self) -> VersionedRecord | None:
        """The record; None while ZooKeeper does not answer."""
        try:
            return self.group.coordination.record(GROUP)
        except ConfigError:
            return None

    def until_record(self, condition: Any, what: str, deadline_s: float = 20.0) -> GroupRecord:
        """Return the first record that the condition holds for."""
        found = until(lambda: (told := self.told()) and condition(told.record) and told, what, deadline_s)
        return found.record

    def hold(self, low_s: float, high_s: float) -> None:
        """Let a fault last for a time by chance."""
        end_s = time.monotonic() + self.chance.uniform(low_s, high_s)
        until(lambda: time.monotonic() > end_s, "the time of the fault", high_s + 1)
        self.load.assert_alive()

    def start_again(self, *names: str) -> None:
        """Start processes that have ended."""
        for name in names:
            self.group.processes[name].end()
            self.group.processes[name].launch()
        for name in names:
            self.group.processes[name].wait_ready()

    def recover(self) -> str:
        """Wait until all brokers are in sync and sends go on; returns what was done for it."""
        done, began_s = "", time.monotonic()
        while not self._is_whole():
            assert time.monotonic() - began_s < RECOVERY_S, f"not in sync after {RECOVERY_S} s\n{self.group.logs()}"
            if time.monotonic() - began_s > REST_S and not done:
                elected = self.elected()
                if elected is not None:
                    done = f"; {elected} restarted"
                    self.group.processes[elected].end(signal.SIGTERM)
                    self.group.processes[elected].start()
            self.hold(0.05, 0.05)
        self.load.wait_more(100)
        self.note_changes()
        return f"in sync after {time.monotonic() - began_s:.1f} s{done}"

    def _is_whole(self) -> bool:
        told = self.told()
        record = told and told.record
        return bool(record and len(record.in_sync) == len(self.brokers) and not record.joining and not record.before)

    def note_changes(self) -> None:
        self._changes.update({each.version: each for each in self.group.coordination.history(GROUP)})

    @property
    def changes(self) -> list[VersionedRecord]:
        """All that were noted, in order."""
        return [self._changes[version] for version in sorted(self._changes)]

    # -- pages of processes

    def metric(self, process: str, name: str) -> float | None:
        """A metric without labels; None: the process does not answer."""
        try:
            text = urllib.request.urlopen(f"{self._ops(process)}/metrics", timeout=1).read().decode()
        except OSError:
            return None
        return next((float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} ")), None)

    def elected(self) -> str | None:
        """The controller that decides."""
        return next((each for each in CONTROLLERS if self.metric(each, "penstock_controller_elected")), None)

    def clock_ms(self, process: str) -> int:
        """Its wall clock minus this process's, by the date that its page is answered with."""
        with urllib.request.urlopen(f"{self._ops(process)}/healthz", timeout=5) as page:
            there = parsedate_to_datetime(page.headers["Date"])
        return round((there.timestamp() - time.time()) * 1000)

    def _ops(self, process: str) -> str:
        facts = self.group.processes[process].facts
        return f"http://{facts['host']}:{facts['ops_port']}"

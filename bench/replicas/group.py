"""The broker group of a running `penstock up --replicas N`: who leads, who follows, and how far."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.errors import RunError
from bench.instance import BenchInstance
from bench.pages import metrics_page
from common.cluster.group_record import GroupRecord, GroupState
from common.cluster.opening import open_coordination

GROUP = "main"
STEP_S = 0.05
IN_SYNC_TIMEOUT_S = 120.0
LOG_END = re.compile(r"^penstock_broker_log_end_position_bytes (\S+)$", re.MULTILINE)


class MeasuredGroup:
    """
    Args:
        instance: of one broker group. A broker has the name of its process.
    """

    def __init__(self, instance: BenchInstance) -> None:
        self.instance = instance
        self._coordination = open_coordination(instance.facts["config"])

    def close(self) -> None:
        self._coordination.close()

    @property
    def record(self) -> GroupRecord | None:
        found = self._coordination.record(GROUP)
        return found.record if found else None

    @property
    def master(self) -> str:
        record = self.record
        if record is None:
            raise RunError("the broker group has no master yet")
        return record.master

    @property
    def slave(self) -> str:
        """The other broker of two."""
        return next(name for name in self.instance.facts["replicas"][GROUP] if name != self.master)

    @property
    def pids(self) -> dict[str, int]:
        """Processes by their role: master and slave instead of names."""
        pids = self.instance.now().pids
        roles = {self.master: "master", self.slave: "slave"}
        return {roles.get(name, name): pid for name, pid in pids.items()}

    @property
    def is_in_sync(self) -> bool:
        record = self.record
        return record is not None and record.state is GroupState.SYNC_REPLICATION

    def wait_in_sync(self, timeout_s: float = IN_SYNC_TIMEOUT_S) -> None:
        """Raises RunError."""
        wait(lambda: self.is_in_sync, "both brokers are in sync", timeout_s)

    def log_end(self, broker: str) -> int | None:
        """The end of a broker's log; None: it has no log yet, or does not answer."""
        page = metrics_page(self.instance.facts[broker]["host"], self.instance.facts["ops"][broker])
        found = LOG_END.search(page)
        return int(float(found[1])) if found else None

    @contextmanager
    def without_slave(self) -> Iterator[Callable[[], None]]:
        """Stop the slave's process, and wait until the master goes on alone; yields what continues it."""
        pid = self.pids["slave"]
        os.kill(pid, signal.SIGSTOP)
        try:
            wait(lambda: not self.is_in_sync, "the master goes on alone", IN_SYNC_TIMEOUT_S)
            yield lambda: os.kill(pid, signal.SIGCONT)
        finally:
            os.kill(pid, signal.SIGCONT)


def wait(condition: Callable[[], bool], text: str, timeout_s: float) -> None:
    """Block until the condition holds.

    Raises:
        RunError: it did not in time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise RunError(f"after {timeout_s:g} s it is not so that {text}")
        time.sleep(STEP_S)


@contextmanager
def group_of(instance: BenchInstance) -> Iterator[MeasuredGroup]:
    group = MeasuredGroup(instance)
    try:
        yield group
    finally:
        group.close()

"""Reports of applied versions in ZooKeeper, and the processes that are expected to report.

    CHROOT/applied/<process>;<instance>  ephemeral; JSON {"version","pid","at_ms"}
    CHROOT/members/<process>             the same, not ephemeral: from a process's first report until its orderly end

Each belongs to the user that all processes are beside their own, see zookeeper_lists.py.

An instance is one store object, so two processes that have the same name by mistake do not share a report. A member
without a report is cut off, or was killed and not started again.
"""

import functools
import json
import os
import secrets
import threading
from urllib.parse import quote, unquote

from kazoo import exceptions as zk

from common.clock import Clock
from common.config.store import Applied, ConfigVersion, parse_report
from common.config.zookeeper_connection import ZooKeeperConnection


class ZooKeeperReports:
    """The reports of one store object, and those of all processes."""

    def __init__(self, connection: ZooKeeperConnection, clock: Clock) -> None:
        self._connection, self._client, self._clock = connection, connection.client, clock
        self._ask, self._path = connection.ask, connection.path
        self._instance = secrets.token_hex(4)
        self._own: dict[str, ConfigVersion] = {}
        self._lock = threading.Lock()  # the follower repeats reports concurrently with callers
        self.damaged: dict[str, str] = {}

    def report(self, process: str, version: ConfigVersion) -> None:
        self._own[process] = dict(version)
        self._write(process)

    def repeat(self) -> None:
        """Make all own reports again, in a new session."""
        for process in list(self._own):
            self._write(process)

    def leave(self, process: str) -> None:
        """End a report of an orderly stop: the process is expected no more."""
        with self._lock:
            if self._own.pop(process, None) is not None:
                self._delete(self._node(process))
                self._delete(self._path("members", quote(process, safe="")))

    def forget(self, process: str) -> None:
        """Expect the process no more, and remove its reports."""
        name = quote(process, safe="")
        self._delete(self._path("members", name))
        for node in self._children("applied"):
            if node == name or node.rpartition(";")[0] == name:
                self._delete(self._path("applied", node))

    def running(self) -> dict[str, Applied]:
        """Reports by process; where several have one name, by the name and the instance."""
        found: dict[str, dict[str, Applied]] = {}
        self.damaged = {}
        for node in self._children("applied"):
            report = self._read(self._path("applied", node), unquote(node))
            name, _, instance = node.rpartition(";")
            if report is not None:
                found.setdefault(unquote(name or instance), {})[instance] = report
        return {
            name if len(reports) == 1 else f"{name};{instance}": report
            for name, reports in found.items()
            for instance, report in reports.items()
        }

    def members(self) -> dict[str, Applied]:
        """The last report of each expected process."""
        nodes = self._children("members")
        reports = {unquote(node): self._read(self._path("members", node), unquote(node)) for node in nodes}
        return {name: report for name, report in reports.items() if report is not None}

    def _write(self, process: str) -> None:
        with self._lock:
            if process not in self._own:
                return
            report = {"version": self._own[process], "pid": os.getpid(), "at_ms": self._clock.now_ms()}
            data, path = json.dumps(report).encode(), self._node(process)
            stat = self._ask(lambda: self._client.exists_async(path))
            if stat and stat.owner_session_id == self._client.client_id[0]:
                self._ask(lambda: self._client.set_async(path, data), writes=True)
            else:
                if stat:  # of an earlier session of this object, not yet expired
                    self._delete(path)
                self._connection.create(path, data, writes=True, ephemeral=True)
            self._write_member(self._path("members", quote(process, safe="")), data)

    def _write_member(self, path: str, data: bytes) -> None:
        try:
            self._ask(lambda: self._client.set_async(path, data), writes=True)
        except zk.NoNodeError:
            try:
                self._connection.create(path, data, writes=True)
            except zk.NodeExistsError:
                return

    def _node(self, process: str) -> str:
        return self._path("applied", f"{quote(process, safe='')};{self._instance}")

    def _children(self, name: str) -> list[str]:
        try:
            return self._ask(lambda: self._client.get_children_async(self._path(name)))
        except zk.NoNodeError:
            return []

    def _read(self, path: str, name: str) -> Applied | None:
        try:
            data, _ = self._ask(functools.partial(self._client.get_async, path))
            return parse_report(data)
        except zk.NoNodeError:
            return None
        except ValueError as error:
            self.damaged[name] = str(error)
            return None

    def _delete(self, path: str) -> None:
        try:
            self._ask(lambda: self._client.delete_async(path))
        except zk.NoNodeError:
            return

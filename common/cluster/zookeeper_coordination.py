"""Coordination in ZooKeeper, below CHROOT/replication, by the access lists of the configuration's CHROOT.

    groups/<group>/record           its version guards every change
    groups/<group>/history          its latest changes
    groups/<group>/brokers/<name>   ephemeral: the broker's process
    controllers/<name>.<random>.0000000012   ephemeral: a candidate with its rank; the lowest one is elected, of equal
                                             ones that with the lowest number

Names are quoted as in URLs.
"""

import functools
import secrets
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

from kazoo import exceptions as zk
from kazoo.client import KazooState

from common.cluster.coordination import (
    Registration,
    VersionedRecord,
    encode_record,
    encode_registration,
    parse_record,
    parse_registration,
)
from common.cluster.following import FollowingCoordination
from common.cluster.group_record import GroupRecord
from common.cluster.history import parse_changes, with_change
from common.config.errors import VersionConflict
from common.config.zookeeper_connection import ZooKeeperConnection
from common.config.zookeeper_options import ZooKeeperOptions

PLACE = "replication"
LOOK_S = 0.5
"""Without an event, the content is read again so often, as an event may be lost, and the contact is proved."""
PROOF_S = 0.25
"""So often at most: each proof is a request to ZooKeeper's leader."""
REMEMBER_ATTEMPTS = 5


class ZooKeeperCoordination(FollowingCoordination):
    def __init__(self, options: ZooKeeperOptions) -> None:
        """Connect in the background, without a deadline; calls wait `connect_timeout_s` for the connection."""
        super().__init__(LOOK_S)
        self._asked_at = float("-inf")
        self._candidates: list[str] | None = None
        self._rank = 0
        self._proved_at = float("-inf")
        self._token = secrets.token_hex(8)
        self._place_session = 0
        self._on_event = functools.partial(self._event)  # kazoo keeps one watch per path and function
        self._connection = ZooKeeperConnection(options, self._state_changed)
        self._client, self._path = self._connection.client, functools.partial(self._connection.path, PLACE)
        self._connection.start()

    @property
    def _name(self) -> str:
        return self._connection.name

    def groups(self) -> list[str]:
        return sorted(unquote(name) for name in self._children("groups"))

    def record(self, group: str) -> VersionedRecord | None:
        return self._read_record(group, None)

    def write(self, group: str, record: GroupRecord, version: int) -> int:
        path, data = self._record_path(group), encode_record(record)
        try:
            if version:
                stat = self._ask(lambda: self._client.set_async(path, data, version=version - 1), writes=True)
                return int(stat.version) + 1
            self._connection.create(path, data, writes=True)
            return 1
        except (zk.BadVersionError, zk.NodeExistsError, zk.NoNodeError):
            found = self.record(group)
            raise VersionConflict("broker_group", group, version, found.version if found else 0) from None

    def history(self, group: str) -> list[VersionedRecord]:
        found = self._history(self._history_path(group))
        return parse_changes(found[0] if found else b"")

    def remember(self, group: str, change: VersionedRecord) -> None:
        path = self._history_path(group)
        for _ in range(REMEMBER_ATTEMPTS):  # another process may add one at the same time
            found = self._history(path)
            data = with_change(found[0] if found else b"", change)
            with suppress(zk.BadVersionError, zk.NodeExistsError, zk.NoNodeError):
                self._keep_history(path, data, found[1].version if found else None)
                return

    def _keep_history(self, path: str, data: bytes, version: int | None) -> None:
        if version is None:
            self._connection.create(path, data, writes=True)
        else:
            self._ask(lambda: self._client.set_async(path, data, version=version), writes=True)

    def _history(self, path: str) -> Any:
        with suppress(zk.NoNodeError):
            return self._ask(lambda: self._client.get_async(path))
        return None

    def brokers(self, group: str) -> dict[str, Registration]:
        return self._read_brokers(group, None)

    def unregister(self, group: str, broker: str) -> None:
        if self._wanted.pop((group, broker), None) is not None:
            path = self._broker_path(group, broker)
            # Without contact the session ends, and the node with it.
            if self._connection.is_connected and self._owner(path) == self._connection.session:
                self._connection.ask_quietly(lambda: self._client.delete_async(path), zk.NoNodeError)

    def rank(self, number: int) -> None:
        if number != self._rank:
            self._rank = number
            self._wake.set()

    def controller(self) -> str | None:
        candidates = self._candidates if self._connection.is_connected else None
        return unquote(candidates[0].rsplit(".", 2)[0]) if candidates else None

    def is_controller(self) -> bool:
        candidates = self._candidates
        return bool(
            candidates
            and self._connection.is_connected
            and candidates[0].rsplit(".", 2)[1] == self._token
            and self._place_session == self._connection.session
        )

    def contact_age_s(self) -> float:
        return time.monotonic() - self._asked_at if self._connection.is_connected else float("inf")

    @property
    def session_fault(self) -> str:
        return self._connection.session_fault

    def close(self) -> None:
        self._connection.close()
        self._stop_following()

    # -- in kazoo's thread, which must not block

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._tell_again()

    def _event(self, event: Any) -> None:
        self._wake.set()

    # -- in the coordination's thread

    def _follow_once(self) -> None:
        super()._follow_once()
        if not self._closed and self._has_contact() and time.monotonic() - self._proved_at >= PROOF_S:
            self._prove_contact()

    def _prove_contact(self) -> None:
        """Ask the leader. A server that is cut off from it still answers reads for a while.

        A lone master confirms while its contact is proved, and that has to end in time for an operator to replace it.
        """
        asked_at = time.monotonic()
        self._connection.ask(lambda: self._client.sync_async(self._path("groups")))
        self._asked_at, self._proved_at = asked_at, time.monotonic()

    def _has_contact(self) -> bool:
        return self._connection.is_connected

    def _keep_names(self) -> None:
        for (group, broker), registration in list(self._wanted.items()):
            self._register(group, broker, registration)
        if self._standing and self._place_session != self._connection.session:
            session = self._connection.session
            prefix = self._path("controllers", f"{quote(self._standing, safe='')}.{self._token}.")
            # Repeated after a lost connection, it may take two places: both have the token.
            data = b"%d" % self._rank
            self._connection.create(prefix, data, ephemeral=True, sequence=True)
            self._place_session = session
        if self._standing or self._group_watchers:
            names = self._children("controllers", watch=self._on_event)
            self._candidates = self._in_order([name for name in names if name.count(".") >= 2])  # others are no places
            if self._standing and not any(name.rsplit(".", 2)[1] == self._token for name in self._candidates):
                self._place_session = 0  # somebody has deleted the node while the session goes on
                self._wake.set()

    def _in_order(self, names: list[str]) -> list[str]:
        """The candidates, the elected one first."""
        by_number = sorted(names, key=lambda name: name.rpartition(".")[2])
        found = {name: rank for name in by_number if (rank := self._rank_of(name)) is not None}
        if b"" in found.values():  # one of an earlier version goes by the number, so all do, or none might be elected
            return list(found)
        return sorted(found, key=lambda name: int(found[name]))

    def _rank_of(self, name: str) -> bytes | None:
        """The rank of a candidate, after that of this process was changed; None: it has ended."""
        path = self._path("controllers", name)
        found = self._connection.ask_quietly(lambda: self._client.get_async(path, watch=self._on_event), zk.NoNodeError)
        if found is None:
            return None
        own = b"%d" % self._rank
        if name.rsplit(".", 2)[1] == self._token and found[0] != own:
            self._connection.ask_quietly(lambda: self._client.set_async(path, own), zk.NoNodeError)
            return own
        return bytes(found[0]) if found[0].isdigit() else b""

    def _register(self, group: str, broker: str, registration: Registration) -> None:
        path, data = self._broker_path(group, broker), encode_registration(registration)
        try:
            self._connection.create(path, data, ephemeral=True)
        except zk.NodeExistsError:
            found = self._connection.ask_quietly(
                lambda: self._client.get_async(path, watch=self._on_event), zk.NoNodeError
            )
            if found is None or found[1].owner_session_id != self._connection.session:
                return  # another process has the name; the watch tells when it is free
            if found[0] != data:
                self._connection.ask_quietly(lambda: self._client.set_async(path, data), zk.NoNodeError)
        if (group, broker) not in self._wanted:  # withdrawn meanwhile
            self._connection.ask_quietly(lambda: self._client.delete_async(path), zk.NoNodeError)

    def _look(self, group: str) -> Hashable:
        found = self._read_record(group, self._on_event)
        return found.version if found else 0, tuple(sorted(self._read_brokers(group, self._on_event).items()))

    def _look_at_groups(self) -> Hashable:
        return tuple(self._children("groups", watch=self._on_event)), self.controller()

    # -- nodes

    def _read_record(self, group: str, watch: Callable[[Any], None] | None) -> VersionedRecord | None:
        path = self._record_path(group)
        if watch is not None and self._ask(lambda: self._client.exists_async(path, watch=watch)) is None:
            return None
        try:
            data, stat = self._ask(lambda: self._client.get_async(path))
        except zk.NoNodeError:
            return None
        return VersionedRecord(parse_record(data, path), stat.version + 1)

    def _read_brokers(self, group: str, watch: Callable[[Any], None] | None) -> dict[str, Registration]:
        found = {}
        for name in self._children("groups", quote(group, safe=""), "brokers", watch=watch):
            path = self._broker_path(group, unquote(name))
            node = self._connection.ask_quietly(
                functools.partial(self._client.get_async, path, watch=watch), zk.NoNodeError
            )
            if node is not None and (registration := parse_registration(node[0])) is not None:
                found[unquote(name)] = registration
        return found

    def _children(self, *parts: str, watch: Callable[[Any], None] | None = None) -> list[str]:
        path = self._path(*parts)
        found = self._connection.ask_quietly(lambda: self._client.get_children_async(path, watch=watch), zk.NoNodeError)
        if found is None and watch is not None:
            # No children can be watched for below a missing node; the next look finds it.
            self._connection.ask_quietly(lambda: self._client.exists_async(path, watch=watch))
        return sorted(found or [])

    def _owner(self, path: str) -> int:
        stat = self._connection.ask_quietly(lambda: self._client.exists_async(path))
        return stat.owner_session_id if stat is not None else 0

    def _record_path(self, group: str) -> str:
        return self._path("groups", quote(group, safe=""), "record")

    def _history_path(self, group: str) -> str:
        return self._path("groups", quote(group, safe=""), "history")

    def _broker_path(self, group: str, broker: str) -> str:
        return self._path("groups", quote(group, safe=""), "brokers", quote(broker, safe=""))

    def _ask(self, send: Callable[[], Any], *, writes: bool = False) -> Any:
        return self._connection.ask(send, writes=writes)

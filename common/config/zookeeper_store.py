"""The ZooKeeper store of a cluster, below one chroot.

    CHROOT/cluster            see identity.py
    CHROOT/<kind>/index       revisions of all buckets; its compare-and-set is the commit, its watch reports changes
    CHROOT/<kind>/017         bucket 17, set in the same transaction as the index
    CHROOT/applied, members   see zookeeper_reports.py
    CHROOT/claims/<name>      ephemeral: the name belongs to the process of its session
    CHROOT/access, proxy_claims    access lists, see zookeeper_lists.py

A process has one watch per kind, for any number of topics. It follows by level, not by event: on every event,
every new connection and every RESYNC_S, the index is read again and compared. So a lost event only costs time.
"""

import functools
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

from kazoo import exceptions as zk
from kazoo.client import KazooState
from kazoo.protocol.states import EventType

from common.clock import SystemClock
from common.config import buckets as layout
from common.config.bucketed import BUCKET_MISSING, INDEX_MISSING, BucketedStore, Index, LostRace, Seen, check_seen
from common.config.errors import InvalidEntry, StoreDamaged, StoreUnavailable
from common.config.identity import StoreIdentity, parse_identity
from common.config.store import KINDS, Applied, ConfigVersion, StoreUser
from common.config.zookeeper_access import ZooKeeperAccess
from common.config.zookeeper_connection import ZooKeeperConnection
from common.config.zookeeper_lists import PROXY_CLAIMS, PROXY_KINDS, AccessLists, shown_users
from common.config.zookeeper_options import ZooKeeperOptions
from common.config.zookeeper_reports import ZooKeeperReports
from common.limited_log import LimitedLog

RESYNC_S = 30.0
RETRY_S = 0.5
NO_CLAIM = "", 0
RACED = (zk.BadVersionError, zk.NodeExistsError, zk.NoNodeError)

log = logging.getLogger("penstock.config")
limited = LimitedLog(log)


class ZooKeeperStore(BucketedStore):
    keeps_members = True
    transaction_bytes_max = 950_000  # ZooKeeper rejects packets from 1,048,575 bytes on

    def __init__(self, options: ZooKeeperOptions, is_proxy: bool = False):
        """Connect in the background, without a deadline; calls wait `connect_timeout_s` for the connection.

        Args:
            is_proxy: of a process that needs to write its reports only.
        """
        super().__init__()
        self._is_proxy = is_proxy
        self._clock = SystemClock()
        self._away_since_ms: int | None = self._clock.now_ms()
        self._closed = False
        self._wake = threading.Event()
        self._dirty: set[str] = set()
        self._untold: set[str] = set()
        self._seen: dict[str, tuple[int, ...] | None] = dict.fromkeys(KINDS)
        self._watchers: list[Callable[[str], None]] = []
        self._on_event = {
            kind: functools.partial(self._index_event, kind) for kind in KINDS
        }  # kazoo keeps one per kind
        self._claims: dict[str, tuple[str, int]] = {}  # name -> node, session
        self._report_again = False
        self._follower: threading.Thread | None = None
        self._connection = ZooKeeperConnection(options, self._state_changed, is_proxy)
        self._client, self._path = self._connection.client, self._connection.path
        self._access = ZooKeeperAccess(self._connection) if options.auth_file else None
        self._access_fault = ""
        self._has_looked_at_nodes = False
        self._lists_seen: AccessLists | None = None
        self._ask, self._ask_all = self._connection.ask, self._connection.ask_all
        self._ask_quietly = self._connection.ask_quietly
        self._reports = ZooKeeperReports(self._connection, self._clock)
        self._connection.start()

    def _read_identity(self) -> StoreIdentity | None:
        path = self._path("cluster")
        found = self._ask_quietly(lambda: self._client.get_async(path), zk.NoNodeError)
        return parse_identity(found[0], path) if found else None

    def _create_identity(self, identity: StoreIdentity) -> None:
        path, data = self._path("cluster"), identity.encode()
        with suppress(zk.NodeExistsError):
            self._connection.create(path, data)

    def _replace_identity(self, identity: StoreIdentity) -> None:
        self._create_identity(identity)
        self._ask(lambda: self._client.set_async(self._path("cluster"), identity.encode()), writes=True)

    def _read_index(self, kind: str) -> Index:
        return self._index_from(kind, lambda path: self._client.get_async(path))

    def _index_from(self, kind: str, get: Callable[[str], Any]) -> Index:
        path = self._path(kind, "index")
        try:
            data, stat = self._ask(lambda: get(path))
        except zk.NoNodeError:
            children = self._ask_quietly(lambda: self._client.get_children_async(self._path(kind)), zk.NoNodeError)
            if children and "index" not in children:  # else it was created between the two requests
                raise StoreDamaged(INDEX_MISSING.format(path)) from None
            return Index((0,) * KINDS[kind].buckets, None)
        return Index(layout.unpack_index(data, path), stat.version)

    def _read_buckets(self, kind: str, numbers: Sequence[int], index: Index) -> list[bytes]:
        wanted = [number for number in numbers if index.revisions[number]]
        try:
            found = self._get_buckets(kind, wanted)
        except zk.NoNodeError:
            self._check_buckets(kind)
            raise StoreUnavailable(f"{self._path(kind)}: changed during a read: try again") from None
        return [found.get(number, b"") for number in numbers]

    def _get_buckets(self, kind: str, numbers: Sequence[int]) -> dict[int, bytes]:
        sends = [functools.partial(self._client.get_async, self._path(kind, f"{n:03d}")) for n in numbers]
        return {number: data for number, (data, _) in zip(numbers, self._ask_all(sends), strict=True)}

    def _check_buckets(self, kind: str) -> None:
        """Raises StoreDamaged: the index is missing, or names buckets that are missing."""
        if missing := self._missing(kind, self._read_index(kind)):
            raise StoreDamaged(BUCKET_MISSING.format(self._path(kind, f"{missing[0]:03d}")))

    def found_buckets(self, kind: str) -> dict[int, bytes]:
        return self._get_buckets(kind, sorted(self.bucket_numbers(kind)))

    def bucket_numbers(self, kind: str) -> set[int]:
        path = self._path(kind)
        names = self._ask_quietly(lambda: self._client.get_children_async(path), zk.NoNodeError) or []
        return {int(name) for name in names if name.isdigit()}

    @property
    def access_fault(self) -> str:
        return self._access_fault

    def wrong_access(self) -> list[tuple[str, str]]:
        return [each[:2] for each in self._access.wrong_nodes()] if self._access is not None else []

    def mend_access(self) -> list[tuple[str, str]]:
        if self._access is None:
            return []
        mended = self._access.mend()
        if self._connection.lists is not None:
            self._fill_proxy_kinds()
        return [each[:2] for each in mended]

    def users(self) -> list[StoreUser]:
        return shown_users(self._users_access().users())

    def set_users(self, writers: Collection[str] | None, readers: Collection[str] | None) -> list[StoreUser]:
        lists = self._users_access().set_users(writers, readers)
        self._fill_proxy_kinds()
        return shown_users(lists)

    def _users_access(self) -> ZooKeeperAccess:
        if self._access is None:
            raise InvalidEntry(f"{self._connection.name}: users need an auth_file in the URL")
        return self._access

    def _fill_proxy_kinds(self) -> None:
        """Make all nodes of these kinds, with their lists: proxies may change them and make none."""
        for kind in PROXY_KINDS:
            self.fill(kind)

    def set_index(self, kind: str, revisions: Sequence[int]) -> None:
        path, data = self._path(kind, "index"), layout.pack_index(revisions)
        with suppress(zk.NodeExistsError):
            self._connection.create(path, data)
        self._ask(lambda: self._client.set_async(path, data), writes=True)

    def _commit(self, kind: str, payloads: dict[int, bytes], revisions: tuple[int, ...], token: Any, seen: Seen) -> Any:
        if token is None:
            with suppress(zk.NodeExistsError):
                self._connection.create(self._path(kind), b"")
        transaction, index = self._client.transaction(), self._path(kind, "index")
        for number, payload in payloads.items():
            path = self._path(kind, f"{number:03d}")
            if revisions[number] == 1:
                transaction.create(path, payload, acl=self._connection.acl(path))
            else:
                transaction.set_data(path, payload)
        if token is None:
            transaction.create(index, layout.pack_index(revisions), acl=self._connection.acl(index))
        else:
            transaction.set_data(index, layout.pack_index(revisions), version=token)
        for other, wanted in seen.items():
            self._add_check(transaction, other, wanted)
        results = self._ask(transaction.commit_async, writes=True)
        failures = [result for result in results if isinstance(result, Exception)]
        if any(isinstance(failure, zk.NoNodeError) for failure in failures):
            self._check_buckets(kind)
        if any(isinstance(failure, RACED) for failure in failures):
            raise LostRace(kind)
        if any(isinstance(failure, zk.NoAuthError) for failure in failures):
            if self._connection.renew_access():
                raise LostRace(kind)
            raise self._connection.denial()
        if failures:
            raise StoreUnavailable(f"{self._connection.name}: ZooKeeper rejected the change: {failures[0]!r}")
        return 0 if token is None else results[len(payloads)].version

    def _add_check(self, transaction: Any, kind: str, wanted: Sequence[int]) -> None:
        """Have the transaction fail when the index of another kind changes before it. Raises VersionConflict."""
        found, path = self._read_index(kind), self._path(kind, "index")
        check_seen(kind, wanted, found.revisions)
        if found.token is not None:
            transaction.check(path, found.token)
        else:  # only so the absence of a node can be a condition: another writer's creation of it comes first or fails
            with suppress(zk.NodeExistsError):
                self._connection.create(self._path(kind), b"")
            transaction.create(path, layout.pack_index(found.revisions), acl=self._connection.acl(path))

    def watch(self, callback: Callable[[str], None]) -> None:
        self._watchers.append(callback)
        self._untold.update(KINDS)
        self._dirty.update(KINDS)
        self._start_following()

    @property
    def unavailable_since_ms(self) -> int | None:
        return self._away_since_ms

    def report_applied(self, process: str, version: ConfigVersion) -> None:
        self._start_following()  # which repeats the report in each new session
        self._reports.report(process, version)

    def applied(self) -> dict[str, Applied]:
        return self._reports.running()

    def members(self) -> dict[str, Applied]:
        return self._reports.members()

    def leave(self, process: str) -> None:
        self._reports.leave(process)

    def damaged_reports(self) -> dict[str, str]:
        self._reports.running()
        self._reports.members()
        return self._reports.damaged

    def forget(self, process: str) -> None:
        self._reports.forget(process)

    def claim(self, name: str, *, by_proxy: bool = False) -> bool:
        if self.holds(name):
            return True
        path = self._claim_path(name, by_proxy)
        if path is None:
            return False
        with suppress(zk.NodeExistsError):
            self._connection.create(path, b"", writes=True, ephemeral=True)
        session = self._client.client_id[0]
        self._claims[name] = path, session
        stat = self._ask(lambda: self._client.exists_async(path, watch=self._claim_event))
        if stat is None or stat.owner_session_id != session:
            self._claims.pop(name, None)
        return self.holds(name)

    def _claim_event(self, event: Any) -> None:
        """Called in kazoo's thread. A node that somebody has deleted while the session goes on may be another's next."""
        if event.type == EventType.DELETED:
            self._claims.pop(unquote(event.path.rpartition("/")[2]), None)

    def _claim_path(self, name: str, by_proxy: bool) -> str | None:
        """None: a process holds the name that does not know the proxies' own place, which has its access list."""
        path = self._path("claims", quote(name, safe=""))
        if not by_proxy or not self._ask(lambda: self._client.exists_async(self._path(PROXY_CLAIMS))):
            return path
        if self._ask(lambda: self._client.exists_async(path)):
            return None
        return self._path(PROXY_CLAIMS, quote(name, safe=""))

    def holds(self, name: str) -> bool:
        """Whether this process holds the name.

        False without contact: the session may have ended, and another process may hold the name.
        """
        return self._connection.is_connected and self._claims.get(name, NO_CLAIM)[1] == self._client.client_id[0]

    def release(self, name: str) -> None:
        path, session = self._claims.pop(name, NO_CLAIM)
        if path and session == self._client.client_id[0]:
            self._ask_quietly(lambda: self._client.delete_async(path), zk.NoNodeError)

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        self._connection.close()
        if self._follower is not None and self._follower is not threading.current_thread():
            self._follower.join()

    # Following

    def _state_changed(self, state: str) -> None:
        """Called in kazoo's thread, which must not block: it only notes the state and wakes the follower."""
        if state == KazooState.CONNECTED:
            self._away_since_ms = None
            self._untold.update(KINDS)  # events may have been lost with the connection
            self._dirty.update(KINDS)
            self._report_again = True
            self._wake.set()
        else:
            if self._away_since_ms is None and not self._closed:
                self._away_since_ms = self._clock.now_ms()
                limited.warning(
                    "%s: connection %s, keeping the last known configuration", self._connection.name, state.lower()
                )

    def _index_event(self, kind: str, event: Any) -> None:
        self._dirty.add(kind)
        self._wake.set()

    def _start_following(self) -> None:
        if self._follower is None:
            self._follower = threading.Thread(target=self._follow, name="config-watch", daemon=True)
            self._follower.start()
        self._wake.set()

    def _follow(self) -> None:
        pause_s = RESYNC_S
        while not self._closed:
            if not self._wake.wait(pause_s):
                self._dirty.update(KINDS)
            self._wake.clear()
            pause_s = RESYNC_S
            if self._closed or not self._connection.is_connected:
                continue
            try:
                self._follow_once()
            except StoreUnavailable as error:
                log.debug("%s", error)
                pause_s = RETRY_S
            except Exception:
                limited.exception("%s: following changes failed, trying again", self._connection.name)
                pause_s = RETRY_S

    def _follow_once(self) -> None:
        """Check every kind that may have changed. A kind that fails stays marked for the next time."""
        self._look_at_access()
        if self._report_again:
            self._report_again = False
            try:
                self._reports.repeat()
            except BaseException:
                self._report_again = True
                raise
        for kind in list(self._dirty):
            self._dirty.discard(kind)  # before the read, so that a later event is not lost
            try:
                revisions = self._watched_index(kind)
            except BaseException:
                self._dirty.add(kind)
                raise
            if revisions != self._seen[kind] or kind in self._untold:
                self._seen[kind] = revisions
                self._untold.discard(kind)
                self._tell(kind)

    def _look_at_access(self) -> None:
        """The rights of this process; and once, nodes that were made without the auth_file, of which the upper ones tell."""
        if self._access is None:
            return
        if not self._has_looked_at_nodes and (found := self._access.open_nodes()):
            limited.error(
                "%s: every client of ZooKeeper can change %d nodes, such as %s, which were made without auth_file: stop the "
                "processes that have none, and run penstock config repair", self._connection.name, len(found), found[0],
            )  # fmt: skip
        if self._connection.lists is not self._lists_seen or not self._has_looked_at_nodes or self._access_fault:
            self._access_fault = self._access.own_fault(self._is_proxy)
            self._lists_seen = self._connection.lists
            if self._access_fault:
                limited.warning("%s: %s", self._connection.name, self._access_fault, about=self._access_fault)
        self._has_looked_at_nodes = True

    def _watched_index(self, kind: str) -> tuple[int, ...]:
        watch = self._on_event[kind]
        index = self._index_from(kind, lambda path: self._client.get_async(path, watch=watch))
        if index.token is None and self._ask(lambda: self._client.exists_async(self._path(kind, "index"), watch=watch)):
            return self._watched_index(kind)  # created between the two requests
        return index.revisions

    def _tell(self, kind: str) -> None:
        for callback in list(self._watchers):
            try:
                callback(kind)
            except Exception:
                limited.exception("config kind=%s: a watcher of changes failed", kind)

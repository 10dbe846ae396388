"""A connection to ZooKeeper: one client that keeps its session, or gets another one, and requests that wait for it."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as zk
from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import _CONNECTION_DROP
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from common.config.blocking import gevent_patched
from common.config.errors import AccessDenied, InvalidEntry, StoreUnavailable, UncertainWrite
from common.config.zookeeper_dialling import DIGEST, dial_near_first, with_short_dials
from common.config.zookeeper_lists import ACCESS, AccessLists
from common.config.zookeeper_options import ZooKeeperOptions
from common.limited_log import LimitedLog

DENIED = (zk.NoAuthError, zk.AuthFailedError)
CUT_OFF = (zk.ConnectionLoss, zk.SessionExpiredError, zk.ConnectionClosedError, zk.OperationTimeoutError)

RENEWED_S = 1.0
"""After a change of credentials, every request that was denied before is tried again for so long."""

limited = LimitedLog(logging.getLogger("penstock.config"))
# A command keeps no log: Python would print kazoo's lines before the one sentence that says what failed.
logging.getLogger("kazoo").addHandler(logging.NullHandler())


class ZooKeeperConnection:
    """
    Args:
        on_state: called with kazoo's state in kazoo's thread, which it must not block.
        is_proxy: this process makes no chroot: it may be a reader, to whom all nodes would belong then.

    Attributes:
        client: kazoo's.
        name: for messages.
        lists: the access lists in force; None: every node is for its maker, or for everybody without an auth_file.
    """

    def __init__(self, options: ZooKeeperOptions, on_state: Callable[[str], None], is_proxy: bool = False):
        self._options = options
        self._on_state = on_state
        self._is_proxy = is_proxy
        self.lists: AccessLists | None = None
        self._lists_wanted, self._lists_read = int(bool(options.auth_file)), 0  # numbers of changes
        self._reading_lists, self._renewing = threading.Lock(), threading.Lock()
        self._renewed_at = float("-inf")
        self._connected = threading.Event()
        self._closed = False
        self.client = _client(options)
        self.name = f"zookeeper={options.hosts}{options.chroot}"
        access = self.path(ACCESS) if options.auth_file else ""
        self._dialled = dial_near_first(self.client, self._granted, self._found_less, access)
        self.client.add_listener(self._state_changed)

    def start(self) -> None:
        """Connect in the background, without a deadline; requests wait `connect_timeout_s` for the connection."""
        self.client.start_async()

    def path(self, *parts: str) -> str:
        """The path of a node below the chroot."""
        return "/".join((self._options.chroot, *parts))

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set()

    @property
    def session(self) -> int:
        """The present session; 0 before the first one."""
        return (self.client.client_id or (0, b""))[0]

    @property
    def session_fault(self) -> str:
        """A sentence when the servers grant longer sessions than are asked for; else ""."""
        asked_s, granted_s = self._options.session_timeout_s, self._dialled.granted_s
        if granted_s <= asked_s:
            return ""
        return (
            f"ZooKeeper's sessions last {granted_s:g} s, not {asked_s:g} s: so long a process counts as alive whose machine "
            f"has ended, and an elected controller as elected: set tickTime to at most {1000 * asked_s / 2:.0f}, or "
            f"minSessionTimeout to {1000 * asked_s:.0f}, in zoo.cfg"
        )

    def _granted(self) -> None:
        if fault := self.session_fault:
            limited.warning("%s: %s", self.name, fault, about=self.name)

    def _found_less(self, seen: int, has: int) -> None:
        limited.warning(
            "%s: the server has less than this process has seen (its last change is 0x%x, not 0x%x): it was emptied or put "
            "back from an older copy", self.name, has, seen, about=self.name,
        )  # fmt: skip

    def close(self) -> None:
        """End the session, and with it the ephemeral nodes. Requests that wait fail."""
        self._closed = True
        self._connected.set()
        self.client.stop()
        self.client.close()

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._lists_wanted += bool(self._options.auth_file)  # a change may have been missed
            self._connected.set()
        else:
            self._connected.clear()
        self._on_state(state)

    def _access_event(self, event: Any) -> None:
        self._lists_wanted += 1

    @property
    def _lists_are_old(self) -> bool:
        return self._lists_read != self._lists_wanted

    def ask(self, send: Callable[[], Any], *, writes: bool = False) -> Any:
        """As `ask_all`, for one request."""
        return self.ask_all([send], writes=writes)[0]

    def ask_quietly(self, send: Callable[[], Any], *ignored: type[Exception]) -> Any:
        """As `ask`; None in place of an ignored error."""
        try:
            return self.ask(send)
        except ignored:
            return None

    def ask_all(self, sends: Sequence[Callable[[], Any]], *, writes: bool = False) -> list[Any]:
        """Send requests without waiting in between and return the answers.

        Reads are repeated after a lost connection, and what is denied by credentials that have changed is tried again.

        Raises:
            StoreUnavailable, UncertainWrite, AccessDenied, kazoo's errors about nodes.
        """
        deadline = time.monotonic() + self._options.connect_timeout_s
        while True:
            left_s = deadline - time.monotonic()
            if self._closed:
                raise StoreUnavailable(f"{self.name}: closed")
            if not self._connected.wait(max(left_s, 0)):
                raise StoreUnavailable(f"{self.name}: no connection within {self._options.connect_timeout_s:g} s")
            is_sent = False
            try:
                if self._lists_are_old:
                    self._read_lists()
                    continue
                is_sent = True
                answers = [send() for send in sends]
                return [self._answer(pending) for pending in answers]
            except CUT_OFF as error:
                if writes and is_sent:
                    raise UncertainWrite(
                        f"{self.name}: connection lost during a write: read before trying again"
                    ) from error
                if left_s <= 0:
                    raise StoreUnavailable(f"{self.name}: no answer: {error!r}") from error
                self.client.handler.sleep_func(0.05)  # kazoo reports the loss before it changes its state
            except DENIED as error:
                if left_s <= 0 or not self.renew_access():
                    raise self.denial() from error
                self.client.handler.sleep_func(0.05)

    def create(self, path: str, data: bytes, *, writes: bool = False, **options: Any) -> Any:
        """Make a node, and the missing ones above it, each with the list of its place.

        Args:
            writes: as in `ask`.
            options: kazoo's.
        Raises:
            kazoo's errors about nodes, and those of `ask`.
        """
        while True:
            try:
                return self.ask(
                    lambda: self.client.create_async(path, data, acl=self.acl(path), **options), writes=writes
                )
            except zk.NoNodeError:
                self._check_may_begin()
                self.create_missing(path.rpartition("/")[0])

    def create_missing(self, path: str) -> None:
        """Make the node and the missing ones above it, unless they exist."""
        if path and self.ask(lambda: self.client.exists_async(path)) is None:
            self.create_missing(path.rpartition("/")[0])
            self.ask_quietly(lambda: self.client.create_async(path, b"", acl=self.acl(path)), zk.NodeExistsError)

    def _check_may_begin(self) -> None:
        """Raises StoreUnavailable: the chroot is missing, and this process may not make it."""
        may_begin = not (self._is_proxy and self._options.auth_file and self.path())
        if not may_begin and self.ask(lambda: self.client.exists_async(self.path())) is None:
            raise StoreUnavailable(f"{self.name}: the node is missing: proxies do not make it")

    def acl(self, path: str) -> list[Any] | None:
        """The list of a node that is to be made; None: kazoo's default."""
        return self.lists.of(path.removeprefix(self.path())) if self.lists is not None else None

    def renew_access(self) -> bool:
        """Read the auth_file and the lists again, after a denial; whether they are others than before, or just were."""
        if not self._options.auth_file:
            return False
        with self._renewing:
            before, is_cut_off = (self.lists, frozenset(self.client.auth_data)), False
            try:
                for credential in self.own_credentials():
                    self.authenticate(credential)
                self._lists_wanted += 1
                self._read_lists()
            except InvalidEntry as error:
                raise AccessDenied(f"{self.name}: {error}") from error
            except DENIED:
                self.lists = None
            except CUT_OFF:
                is_cut_off = True  # they are read before the next request
            now = time.monotonic()
            if is_cut_off or before != (self.lists, frozenset(self.client.auth_data)):
                self._renewed_at = now
            return now - self._renewed_at < RENEWED_S

    def denial(self) -> AccessDenied:
        return AccessDenied(
            f"{self.name}: authentication failed, check auth_file: its user may not do that, "
            "see `penstock config access`"
        )

    def _read_lists(self) -> None:
        """Take the lists that are in force, and follow them. Raises kazoo's errors."""
        with self._reading_lists:  # no request of another thread goes by lists that are not read yet
            wanted = self._lists_wanted
            if self._lists_read == wanted:
                return
            path, chroot = self.path(ACCESS), self.path() or "/"
            if self._answer(self.client.exists_async(path, watch=self._access_event)) is None:
                self.lists, self.client.default_acl = None, self._own_list()
            else:
                reporter = self._answer(self.client.get_async(path))[0].decode()
                acls, _ = self._answer(self.client.get_acls_async(chroot))
                if (DIGEST, reporter) not in self.client.auth_data:
                    self._reconnect()  # which takes it
                    return
                self.lists = AccessLists(tuple(acls), reporter)
                self.client.default_acl = list(acls)  # not the maker: that is REPORTER, too
            self._lists_read = wanted

    def _own_list(self) -> list[Any]:
        if len(self.client.auth_data) == 1:
            return CREATOR_ALL_ACL
        return list(AccessLists.of_users(self.own_credentials(), (), "").pattern)

    def own_credentials(self) -> list[str]:
        """Of the auth_file as it is now. Raises InvalidEntry."""
        return [credential for _, credential in self._options.auth()]

    def authenticate(self, credential: str) -> None:
        """Be this user, too, from now on."""
        if (DIGEST, credential) not in self.client.auth_data:
            self.client.auth_data.add((DIGEST, credential))
            self._reconnect()

    def _reconnect(self) -> None:
        """Connect again with all credentials; the session stays. Requests that wait for their answers fail."""
        before, deadline = self._dialled.connections, time.monotonic() + self._options.connect_timeout_s
        self.client._call(_CONNECTION_DROP, self.client.handler.async_result())
        while self._dialled.connections == before and time.monotonic() < deadline:
            self.client.handler.sleep_func(0.01)

    def _answer(self, pending: Any) -> Any:
        """Wait for a request's answer. Raises OperationTimeoutError."""
        # Not `get(timeout)`: in a gevent process it raises gevent's Timeout, which is no Exception, and not the class that
        # kazoo's handler names. It would end the thread that asks.
        pending.wait(self._options.session_timeout_s)
        if not pending.ready():
            raise zk.OperationTimeoutError(f"no answer within {self._options.session_timeout_s:g} s")
        return pending.get()


def _client(options: ZooKeeperOptions) -> KazooClient:
    handler: Any = SequentialThreadingHandler()
    if gevent_patched():
        from kazoo.handlers.gevent import SequentialGeventHandler  # needs gevent, which the command line does not load

        handler = SequentialGeventHandler()
    auth = options.auth()
    if not auth:
        limited.warning("zookeeper=%s: no auth_file: every client of it can change the configuration", options.hosts)
    return KazooClient(
        hosts=options.hosts,
        timeout=options.session_timeout_s,
        handler=with_short_dials(handler),
        auth_data=auth,
        default_acl=CREATOR_ALL_ACL if auth else None,
        connection_retry=KazooRetry(
            max_tries=-1, delay=0.05, max_delay=min(1.0, options.session_timeout_s / 8), sleep_func=handler.sleep_func
        ),
        use_ssl=bool(options.ca_file),
        ca=options.ca_file or None,
        certfile=options.cert_file or None,
        keyfile=options.key_file or None,
        verify_certs=True,
        check_hostname=bool(options.ca_file),
    )

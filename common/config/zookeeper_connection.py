"""A connection to ZooKeeper: one client that keeps its session, or gets another one, and requests that wait for it."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as zk
from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from common.config.blocking import gevent_patched
from common.config.errors import StoreUnavailable, UncertainWrite
from common.config.zookeeper_dialling import dial_near_first, with_short_dials
from common.config.zookeeper_options import ZooKeeperOptions
from common.limited_log import LimitedLog

CUT_OFF = (zk.ConnectionLoss, zk.SessionExpiredError, zk.ConnectionClosedError, zk.OperationTimeoutError)

limited = LimitedLog(logging.getLogger("penstock.config"))
# A command keeps no log: Python would print kazoo's lines before the one sentence that says what failed.
logging.getLogger("kazoo").addHandler(logging.NullHandler())


class ZooKeeperConnection:
    """
    Args:
        on_state: called with kazoo's state in kazoo's thread, which it must not block.

    Attributes:
        client: kazoo's.
        name: for messages.
    """

    def __init__(self, options: ZooKeeperOptions, on_state: Callable[[str], None]):
        self._options = options
        self._on_state = on_state
        self._connected = threading.Event()
        self._closed = False
        self.client = _client(options)
        self.name = f"zookeeper={options.hosts}{options.chroot}"
        self._dialled = dial_near_first(self.client, self._granted)
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

    def close(self) -> None:
        """End the session, and with it the ephemeral nodes. Requests that wait fail."""
        self._closed = True
        self._connected.set()
        self.client.stop()
        self.client.close()

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._connected.set()
        else:
            self._connected.clear()
        self._on_state(state)

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

        Reads are repeated after a lost connection.

        Raises:
            StoreUnavailable, UncertainWrite, kazoo's errors about nodes.
        """
        deadline = time.monotonic() + self._options.connect_timeout_s
        while True:
            left_s = deadline - time.monotonic()
            if self._closed:
                raise StoreUnavailable(f"{self.name}: closed")
            if not self._connected.wait(max(left_s, 0)):
                raise StoreUnavailable(f"{self.name}: no connection within {self._options.connect_timeout_s:g} s")
            try:
                answers = [send() for send in sends]
                return [self._answer(pending) for pending in answers]
            except CUT_OFF as error:
                if writes:
                    raise UncertainWrite(
                        f"{self.name}: connection lost during a write: read before trying again"
                    ) from error
                if left_s <= 0:
                    raise StoreUnavailable(f"{self.name}: no answer: {error!r}") from error
                self.client.handler.sleep_func(0.05)  # kazoo reports the loss before it changes its state
            except (zk.NoAuthError, zk.AuthFailedError) as error:
                raise StoreUnavailable(f"{self.name}: authentication failed, check auth_file: {error!r}") from error

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

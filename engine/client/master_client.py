"""Requests to the master of a broker group with several brokers: one link per broker, and the same calls as RpcClient."""

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gevent
from gevent.event import Event

from common.address import Address
from engine.client.dial import Admits, Hello, admit_all
from engine.client.far_reads import LATE_S, FarReads, is_complete
from engine.client.master_choice import PAUSE_S_MAX, SEEK_S, MasterChoice
from engine.client.rpc import LOST, Callback, RpcClient, call_over
from engine.link.codes import AT_SLAVE, NOT_MASTER, TIMEOUT, UNAVAILABLE
from engine.link.errors import LinkDown, PayloadError
from engine.link.operations import (
    BACKLOG,
    CLAIM,
    LEASE,
    LOOK_UP_ID,
    LOOK_UP_KEY,
    PULL,
    READ,
    TIMER_ADD,
    TIMER_ADD_AGAIN,
    TIMER_LIST,
    TOPIC,
)
from engine.link.read import offered_to_slaves
from engine.link.shorter_wait import with_shorter_wait
from engine.link.timer import encode_add_again

TRIES_MAX = 10
"""Brokers that one request is sent to, one after the other."""
REPEATABLE = {TOPIC, PULL, READ, LOOK_UP_ID, LOOK_UP_KEY, BACKLOG, LEASE, TIMER_LIST, TIMER_ADD_AGAIN, CLAIM}
"""Operations that may be executed twice. What a lost PULL leased comes again when its lease ends. A second CLAIM finds the
first one, with its queue."""


class _Asked:
    """An open request.

    Attributes:
        request_id: of the link to the broker that was asked; 0: it waits for a master.
        log_id, position: of a TIMER_ADD: nothing of it is stored below that position of that log.
    """

    __slots__ = (
        "asked_s", "callback", "link", "log_id", "op", "payload", "position", "request_id", "tries", "withdrawn"
    )  # fmt: skip

    def __init__(self, op: int, payload: bytes, callback: Callback) -> None:
        self.op, self.payload, self.callback = op, payload, callback
        self.asked_s, self.withdrawn, self.request_id, self.tries = time.monotonic(), False, 0, 0
        self.link: RpcClient | None = None
        self.log_id, self.position = "", 0

    @property
    def may_be_stored(self) -> bool:
        """Whether it was sent, and its answer was lost."""
        return self.op == TIMER_ADD_AGAIN

    def noted(self, hello: Hello, end_position: int) -> None:
        """It is sent for the first time, to a broker of which this log and end are known."""
        self.log_id, self.position = hello.log_id, end_position

    def lost(self) -> bool:
        """Its answer was lost; returns whether it may be asked again."""
        if self.op == TIMER_ADD:
            self.op = TIMER_ADD_AGAIN
        return self.op in REPEATABLE

    @property
    def again(self) -> bytes:
        """The payload now, after the request has waited."""
        if self.may_be_stored:
            return encode_add_again(self.position, self.payload)
        elapsed_ms = 1 << 30 if self.withdrawn else int(1000 * (time.monotonic() - self.asked_s))
        return with_shorter_wait(self.op, self.payload, elapsed_ms)


class MasterClient:
    """Links to all brokers of a group, of which the master's is used.

    When the master is lost, repeatable requests under way and new ones wait for the next master, up to SEEK_S. A
    TIMER_ADD under way is asked again as TIMER_ADD_AGAIN. Other requests under way get UNAVAILABLE, as when the link to
    an only broker breaks.

    Args:
        on_hello: called with the Hello of each new master.
        on_down: called when no master was found within SEEK_S.
        admits: asked about each broker that leads; see RpcClient.
    Attributes:
        addresses: of the brokers.
        hello: of the present master, or of the last one; None: there was none yet.
        master: address of the present master; None: none is known.
        known_end: the end of the present master's log as far as appends to it have told; 0: not known.
    """

    def __init__(
        self, addresses: Sequence[tuple[str, int]], cluster_key: bytes, *, role: str,
        on_hello: Callable[[Hello], None] = lambda hello: None, on_down: Callable[[], None] = lambda: None,
        admits: Admits = admit_all,
    ) -> None:  # fmt: skip
        self.addresses = [Address(*address) for address in addresses]
        self._on_hello, self._told_down = on_hello, on_down
        self.hello: Hello | None = None
        self.known_end: Callable[[], int] = lambda: 0
        self._choice = MasterChoice()
        self._on_up: Callable[[], None] = lambda: None
        self._on_unasked: Callable[[bytes], None] = lambda payload: None
        self._listeners: list[Callable[[], None]] = []
        self._asked: dict[int, _Asked] = {}
        self._last_id = 0
        self._up, self._closed = Event(), False
        self._seeking: gevent.Greenlet | None = None
        self._links = [
            RpcClient(
                address, cluster_key, role=role, on_down=partial(self._ended, number), pause_s_max=PAUSE_S_MAX,
                admits=lambda hello: admits(hello) if hello.leads else None,
            )
            for number, address in enumerate(self.addresses)
        ]  # fmt: skip
        self._far_reads = FarReads(self._links)
        for number, link in enumerate(self._links):
            link.attend(partial(self._greeted, number), partial(self._unasked, number))

    @property
    def master(self) -> Address | None:
        number = self._choice.master
        return None if number is None else self.addresses[number]

    @property
    def connected(self) -> bool:
        """Whether `send` takes requests: there is a master, or one is sought."""
        return self._up.is_set()

    @property
    def seeks_master(self) -> bool:
        """Whether requests wait here until a master is found."""
        return self._seeking is not None

    def on_master(self, callback: Callable[[], None]) -> None:
        """Call `callback()` when there is another master, or the same one after its link was lost; also when lost."""
        self._listeners.append(callback)

    def wait_connected(self, timeout_s: float | None = None) -> bool:
        """Block this greenlet until there is a master; False after `timeout_s`."""
        return self._up.wait(timeout_s) is True

    def doubt(self, address: Address, reason: str) -> None:
        """Another link to this broker has ended, or it has answered NOT_MASTER: ask all brokers who leads."""
        number = self.addresses.index(address)
        if self._links[number].connected:
            self._links[number].reconnect(reason)
        else:
            self._hurry()

    def send(self, op: int, payload: bytes, callback: Callback) -> int:
        """See RpcClient.send. Raises LinkDown when no master is known or sought."""
        if not self.connected:
            raise LinkDown(f"engines={', '.join(map(str, self.addresses))}: no master is known")
        self._last_id = request_id = self._last_id % 0xFFFFFFFF + 1
        asked = self._asked[request_id] = _Asked(op, payload, callback)
        if self._choice.master is not None:
            is_offered = op == READ and self._far_reads.has_slave(self.hello)
            self._pass_on(request_id, asked, offered_to_slaves(payload) if is_offered else payload)
        return request_id

    def tell(self, op: int, payload: bytes) -> None:
        """Send a frame that has no answer. Without a master it is lost."""
        if self._choice.master is not None:
            self._links[self._choice.master].tell(op, payload)

    def share_window(self, window: int, links: int) -> None:
        """See RpcClient.share_window."""
        for link in self._links:
            link.share_window(window, links)

    def attend(self, on_up: Callable[[], None], on_unasked: Callable[[bytes], None]) -> None:
        """See RpcClient.attend; `on_up` is called for each new master."""
        self._on_up, self._on_unasked = on_up, on_unasked
        if self._choice.master is not None:
            on_up()

    def cancel(self, request_id: int) -> None:
        """See RpcClient.cancel."""
        asked = self._asked.get(request_id)
        if asked is not None:
            asked.withdrawn = True
            if asked.link is not None:
                asked.link.cancel(asked.request_id)

    def call(self, op: int, payload: bytes, timeout_s: float) -> tuple[int, bytes]:
        """See rpc.call_over()."""
        return call_over(self, self._up, self._asked, op, payload, timeout_s)

    def reconnect(self, reason: str) -> None:
        """Close the master's link and ask all brokers who leads."""
        if self._choice.master is not None:
            self._links[self._choice.master].reconnect(reason)

    def close(self) -> None:
        """Close all links permanently; open requests get UNAVAILABLE."""
        self._closed = True
        if self._seeking is not None:
            self._seeking.kill(block=False)
        self._up.clear()
        self._give_up()
        for link in self._links:
            link.close()

    def _greeted(self, number: int) -> None:
        hello, before = self._links[number].hello, self._choice.master
        if hello is None:
            return
        if self._choice.is_old(hello):
            gevent.spawn_later(PAUSE_S_MAX, self._greet_again, number, hello)
        if not self._choice.greeted(number, hello):
            return
        self._use_master(self._links[number])
        if before is not None:  # it hangs, or does not know yet: what it was asked is asked again
            self._links[before].reconnect("another broker leads")

    def _greet_again(self, number: int, hello: Hello) -> None:
        link = self._links[number]
        if link.hello is hello and number != self._choice.master:
            link.reconnect("it leads with an earlier term than another broker has told")

    def _use_master(self, link: RpcClient) -> None:
        assert link.hello is not None
        self.hello = link.hello
        if self._seeking is not None:
            self._seeking.kill(block=False)
            self._seeking = None
        self._up.set()
        self._on_hello(link.hello)
        self._on_up()
        self._tell_listeners()
        for request_id, asked in list(self._asked.items()):
            if asked.link is None:
                self._pass_on(request_id, asked, asked.again)

    def _ended(self, number: int) -> None:
        was_master = self._choice.ended(number)
        if self._closed:
            return
        self._hurry()
        if not was_master:
            return
        if self._choice.master is not None:
            self._use_master(self._links[self._choice.master])
        else:
            self._seeking = gevent.spawn_later(SEEK_S, self._end_seeking)
            self._tell_listeners()

    def _hurry(self) -> None:
        for link in self._links:
            link.hurry()

    def _tell_listeners(self) -> None:
        for callback in self._listeners:
            callback()

    def _end_seeking(self) -> None:
        self._seeking = None
        self._up.clear()
        self._give_up()
        self._told_down()

    def _give_up(self) -> None:
        """Refuse what waits for a master."""
        for request_id, asked in [each for each in self._asked.items() if each[1].link is None]:
            del self._asked[request_id]
            asked.callback(TIMEOUT if asked.may_be_stored else UNAVAILABLE, b"no broker of the group leads")

    def _unasked(self, number: int, payload: bytes) -> None:
        if number == self._choice.master:
            self._on_unasked(payload)

    def _pass_on(self, request_id: int, asked: _Asked, payload: bytes) -> None:
        assert self._choice.master is not None
        asked.link = link = self._links[self._choice.master]
        hello = link.hello
        assert hello is not None
        if asked.op == TIMER_ADD:
            asked.noted(hello, max(hello.end_position, self.known_end()))
        elif asked.may_be_stored and hello.log_id != asked.log_id:
            del self._asked[request_id]
            asked.callback(TIMEOUT, b"the broker that leads has another log; the request may have been executed")
            return
        try:
            asked.request_id = link.send(asked.op, payload, partial(self._answered, request_id, link))
        except LinkDown:  # its end has not been told yet
            asked.link = None

    def _answered(self, request_id: int, link: RpcClient, code: int, payload: bytes) -> None:
        asked = self._asked.get(request_id)
        if asked is None:
            return
        if code == NOT_MASTER:
            self.doubt(self.addresses[self._links.index(link)], "the broker does not lead")
            code = UNAVAILABLE
            if self._asks_again(request_id, asked):
                return
        elif code == AT_SLAVE:
            self._ask_slave(request_id, asked)
            return
        elif payload is LOST and asked.lost() and self._asks_again(request_id, asked):
            return
        self._finish(request_id, asked, code, payload)

    def _finish(self, request_id: int, asked: _Asked, code: int, payload: bytes) -> None:
        """Give the caller the answer."""
        del self._asked[request_id]
        if code == UNAVAILABLE and asked.may_be_stored:
            code = TIMEOUT
        try:
            asked.callback(code, payload)
        except (PayloadError, json.JSONDecodeError, UnicodeDecodeError):
            self._asked[request_id] = asked  # the link calls again, with UNAVAILABLE
            raise

    def _ask_slave(self, request_id: int, asked: _Asked) -> None:
        """Send a READ to a slave, which the master has not served; without one the master has to."""
        link = self._far_reads.next_slave(self.hello)
        if link is None:
            self._ask_master(request_id, asked)
            return
        asked.link, payload = link, asked.again
        late = gevent.get_hub().loop.timer(LATE_S)
        late.start(self._slave_is_late, request_id, asked, link)
        asked.request_id = link.send(READ, payload, partial(self._slave_answered, request_id, asked, link, late))

    def _slave_answered(
        self, request_id: int, asked: _Asked, link: RpcClient, late: Any, code: int, payload: bytes
    ) -> None:
        late.close()
        if self._asked.get(request_id) is not asked or asked.link is not link:
            return
        if not is_complete(code, payload):
            self._ask_master(request_id, asked)
            return
        self._finish(request_id, asked, code, payload)

    def _slave_is_late(self, request_id: int, asked: _Asked, link: RpcClient) -> None:
        if self._asked.get(request_id) is asked and asked.link is link:
            self._far_reads.was_late(link)
            link.cancel(asked.request_id)
            self._ask_master(request_id, asked)

    def _ask_master(self, request_id: int, asked: _Asked) -> None:
        if not self._asks_again(request_id, asked):
            self._finish(request_id, asked, UNAVAILABLE, b"no broker of the group leads")

    def _asks_again(self, request_id: int, asked: _Asked) -> bool:
        """Send the request to the present master, or keep it for the next one."""
        asked.link = None
        asked.tries += 1
        if asked.tries >= TRIES_MAX or not self.connected:
            return False
        if self._choice.master is not None:
            self._pass_on(request_id, asked, asked.again)
        return True

"""The append side of a broker group with several brokers: lanes to its master, which outlive a switch to another one."""

import secrets
import socket
import time

import gevent
from gevent import socket as gevent_socket

from common.address import Address
from engine.client.append import AppendClient, Lane, limited
from engine.client.dial import Admits, Hello, admit_all, dial
from engine.client.master_choice import KEEP_S, PAUSE_S_MAX, SEEK_S, leads_still
from engine.client.master_client import MasterClient
from engine.link.errors import LinkError


class MasterAppendClient(AppendClient):
    """Appends to the master that a MasterClient knows.

    When a lane's link ends, its messages stay. The next master gets those that were sent again, with the position by
    which it finds them if they are stored, before any other. New messages wait in the lanes, up to SEEK_S; after that
    what was not sent is refused, as when an only broker is away.

    Attributes:
        on_down: called when no master was connected within SEEK_S.
    """

    def __init__(
        self, masters: MasterClient, cluster_key: bytes, role: str = "producer_proxy", group: int = 0,
        admits: Admits = admit_all,
    ) -> None:  # fmt: skip
        self._masters = masters
        self._linked: dict[int, tuple[Address, int]] = {}  # by the lane's number: its broker, and the term
        self._diallers: dict[int, gevent.Greenlet] = {}
        self._away_s: float | None = None  # since when a lane that was connected is not
        self._token = secrets.token_hex(8)
        self._log_id, self._is_told, self._pause_s, self._linked_s = "", False, 0.0, 0.0
        super().__init__(masters.addresses[0], cluster_key, role, group, admits)
        for lane in self.lanes:
            lane.keeps = True
        masters.on_master(self._follow)
        masters.known_end = self._known_end

    @property
    def connected(self) -> bool:
        return all(lane.link is not None or lane.waits for lane in self.lanes)

    def close(self) -> None:
        for lane in self.lanes:
            lane.keeps = False
        for dialler in self._diallers.values():
            dialler.kill(block=False)
        super().close()
        for lane in self.lanes:  # those without a link
            lane.end_sent()
            lane.refuse_unsent()

    def _expire(self) -> None:
        super()._expire()
        away_s = time.monotonic() - self._away_s if self._away_s is not None else 0.0
        lost = [lane for lane in self.lanes if lane.link is None]
        if away_s > SEEK_S and not self._is_told:
            self._is_told = True
            for lane in lost:
                lane.refuse_unsent()
            self.on_down("no broker of the group leads")
        if away_s > KEEP_S:
            for lane in lost:
                lane.end_sent()

    def _rest_when_quiet(self, now: float) -> None:
        if self._away_s is None:
            super()._rest_when_quiet(now)

    def _follow(self) -> None:
        """The master is another one, or is lost."""
        master = self._masters.master
        if master is None or self._masters.hello is None or self._closed:
            return
        for lane in self.lanes:
            if lane.link is None:
                self._connect(lane)
            elif self._linked[lane.number] != (master, self._masters.hello.term):
                lane.drop("another broker leads")

    def _lost(self, lane: Lane) -> None:
        if self._closed:
            return
        if self._away_s is None:
            self._away_s = time.monotonic()
            self._wake()
        lasted_s = time.monotonic() - self._linked_s
        self._pause_s = 0.0 if lasted_s > PAUSE_S_MAX else self._next_pause_s()
        place = self._linked.pop(lane.number, None)
        if place is not None and place[0] == self._masters.master:
            self._masters.doubt(place[0], "a lane's link ended")
        self._connect(lane)

    def _connect(self, lane: Lane) -> None:
        if self._closed or self._masters.master is None:
            return
        before = self._diallers.pop(lane.number, None)
        if before is not None:
            before.kill(block=False)  # it may wait for a broker that hangs
        self._diallers[lane.number] = gevent.spawn(self._connect_until_done, lane)

    def _connect_until_done(self, lane: Lane) -> None:
        while not self._closed and lane.link is None and (master := self._masters.master) is not None:
            gevent.sleep(self._pause_s)
            try:
                sock, hello = dial(
                    master,
                    self._cluster_key,
                    role=self._role,
                    lane=f"{self._token}.{lane.number}",
                    sockets=gevent_socket,
                )
                if not self._is_right(sock, master, hello):
                    raise LinkError("it does not lead")
            except (OSError, LinkError) as error:
                limited.warning("engine=%s: not connected: %s", master, error, about=f"{master}")
                self._pause_s = self._next_pause_s()
                self._masters.doubt(master, "a lane cannot connect")
                continue
            self._address = master
            self._take(lane, sock, hello)

    def _next_pause_s(self) -> float:
        return min(PAUSE_S_MAX, max(0.01, 2 * self._pause_s))

    def _is_right(self, sock: socket.socket, master: Address, hello: Hello) -> bool:
        """Whether the broker leads, and is still the one to use; else its socket is closed."""
        is_right = master == self._masters.master and leads_still(hello, self._masters.hello)
        refusal = self._admits(hello) if is_right else None
        if not is_right or refusal is not None:
            sock.close()
        if refusal is not None:
            raise LinkError(refusal)
        return is_right

    def _known_end(self) -> int:
        """The end of the present master's log, as answers to its lanes have told; 0: no lane is connected to it."""
        hello, master = self._masters.hello, self._masters.master
        if hello is None or master is None:
            return 0
        present = [lane for lane in self.lanes if self._linked.get(lane.number) == (master, hello.term)]
        return max((lane.end_position for lane in present), default=0)

    def _use(self, lane: Lane, fd: int, hello: Hello) -> None:
        if self._log_id not in ("", hello.log_id):
            for each in self.lanes:
                each.end_sent()  # its positions mean nothing in another log
        self._log_id = hello.log_id
        self._linked[lane.number], self._linked_s = (self._address, hello.term), time.monotonic()
        lane.use(fd, f"engine {self._address}", hello.end_position)
        if all(each.link is not None for each in self.lanes):
            self._away_s, self._is_told = None, False

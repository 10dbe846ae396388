"""Places of a server: how many connections it has room for, and which one goes when there is none."""

import logging
from typing import Any

from common.limited_log import LimitedLog
from common.net.strangers import SHARE, BoundedStrangers, network_of, strangers_of
from common.readiness import Note
from common.recent_count import SHOWN, RecentCount

TLS_STRANGERS_MAX = 1_000
"""Maximum number of connections over TLS whose credential has not verified: 40 MiB."""
limited = LimitedLog(logging.getLogger("penstock.net"))
NO_ROOM = "places are those of authenticated clients: find the one that leaks, or raise --connections-max of a proxy"


class Places:
    """The connections of one server, as far as their number is bounded.

    Attributes:
        strangers: the connections whose credential has not verified.
        refused: connections that found no room, because clients with valid credentials had all places.
        pushed_out: strangers that were closed to make room.
    """

    def __init__(self, connections_max: int) -> None:
        self.connections_max = connections_max
        self.strangers = strangers_of(connections_max)
        self._over_tls = strangers_of(min(connections_max, TLS_STRANGERS_MAX * SHARE))
        self.refused = self.pushed_out = 0
        self._refused, self._pushed_out = RecentCount(), RecentCount()

    def make_room(self) -> bool:
        """All places are taken: close a stranger. False: there is none, so the new connection is refused."""
        stranger = self.strangers.first_to_go()
        if stranger is None:
            self.refused += 1
            self._refused.add()
            limited.warning("a connection was refused: all %d %s", self.connections_max, NO_ROOM)
            return False
        self._push_out(stranger, self.strangers)
        return True

    def accept(self, connection: Any, *, is_tls: bool) -> None:
        """A new connection is a stranger. Over TLS it counts twice: until its proof it keeps some 40 KiB of OpenSSL's."""
        if is_tls:
            self._add(self._over_tls, connection)
        self._add(self.strangers, connection)

    def leave(self, connection: Any) -> None:
        """The connection is closed, or is no stranger any more."""
        self.strangers.remove(connection)
        self._over_tls.remove(connection)

    def on_trust(self, connection: Any, is_trusted: bool) -> None:
        """A credential of the connection has verified, or was refused."""
        if is_trusted:
            self.leave(connection)
        else:
            self._add(self.strangers, connection)

    def _add(self, strangers: BoundedStrangers, connection: Any) -> None:
        leaves = strangers.add(connection, network_of(connection.peer.rpartition(":")[0]))
        if leaves is not None:
            self._push_out(leaves, strangers)

    def _push_out(self, stranger: Any, among: BoundedStrangers) -> None:
        self.pushed_out += 1
        self._pushed_out.add()
        limited.warning(
            "connection=%s: closed to make room: %d connections%s without a valid credential are open, at most %d in all "
            "and %d of one address have a place", stranger.peer, len(among), " over TLS" if among is self._over_tls else "",
            among.count_max, among.per_address_max,
        )  # fmt: skip
        self.leave(stranger)
        stranger.close("made room for a newer connection")

    def health(self) -> bool | str:
        """The condition of /readyz. A proxy that refuses connections still serves those that it has."""
        refused, pushed_out = self._refused.recent(), self._pushed_out.recent()
        if refused:
            return Note(f"{refused} connections were refused in {SHOWN}: all {self.connections_max} {NO_ROOM}")
        if pushed_out:
            return Note(
                f"{pushed_out} connections without a valid credential were closed in {SHOWN} to make room for newer ones: "
                "the log names an address"
            )
        return True

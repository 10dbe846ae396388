"""The listening link server of one node at a time: sockets only."""

from typing import Any

import gevent

from common.net.limits import Limits
from common.net.places import Places
from common.net.server import Server, listen, listen_file
from engine.link.frame import FRAME_BYTES_MAX
from engine.ops.output_hold import UNHELD_ROLES
from engine.server import native

LIMITS = Limits(frame_bytes_max=FRAME_BYTES_MAX, connections_max=10_000, output_bytes_max=1 << 40)
DRAIN_PAUSE_S = 0.002


class LinkServer:
    """Serves a node's link on one address until `close()`.

    Args:
        node: a `Node`, or a `Standby`, which only the reference form can serve.
        socket_file: path of a Unix socket for processes of this machine, cheaper than TCP.
        form: the module with Turn and LinkConnection; tests pass both.
    """

    def __init__(
        self, node: Any, host: str, port: int, *, socket_file: str | None = None, form: Any = native.form
    ) -> None:
        self._node, self._form = node, form
        self.turn = form.Turn(node)
        listeners = [listen(host, port), *([listen_file(socket_file)] if socket_file else [])]
        self._server = Server([(sock, None) for sock in listeners], LIMITS, self._connect)

    def use(self, node: Any, form: Any = native.form) -> None:
        """Serve another node from now on. Clients' connections are closed: they look for the master again."""
        self.greet_with(node, form)
        for connection in self._clients():
            connection.close("another node serves from now on")

    def greet_with(self, node: Any, form: Any = native.form) -> None:
        """Pass new connections to another node. Those that are open stay with theirs."""
        self._node, self._form = node, form
        self.turn.is_over = True
        self.turn = form.Turn(node)

    def end_clients(self) -> None:
        """Close clients' connections, each once its output has left."""
        for connection in self._clients():
            connection.close_when_sent()

    def _clients(self) -> list[Any]:
        return [each for each in self._server.connections if each.peer_state.role not in UNHELD_ROLES]

    @property
    def places(self) -> Places:
        """The bounds of connections; those that have not authenticated are its strangers."""
        return self._server.places

    @property
    def port(self) -> int:
        """The bound port."""
        return self._server.ports[0]

    @property
    def connections(self) -> set:
        """Open connections."""
        return set(self._server.connections)

    def facts(self) -> dict[str, Any]:
        """The server's figures for the verb `status`."""
        return {
            "native": self._form is not native.reference,
            "connections": len(self._server.connections),
            "appends": self.turn.appends,
            "messages": self.turn.messages,
            "bytes": self.turn.bytes,
            "timers_pending": len(self._node.timers.table),
        }

    def stop_accepting(self) -> None:
        """Accept no new connections, and answer waiting requests with their results so far."""
        self._server.stop_accepting()
        self._node.release_waiting()

    def drain(self, timeout_s: float) -> None:
        """Close each connection after its last answer.

        Blocks this greenlet until all are closed, or the time is over.
        """
        clock = self._node.clock
        until_ms = clock.monotonic_ms() + round(timeout_s * 1000)
        for connection in list(self._server.connections):
            connection.close_when_sent()
        while self._server.connections and clock.monotonic_ms() < until_ms:
            gevent.sleep(DRAIN_PAUSE_S)

    def close(self) -> None:
        """Close all connections at once."""
        self._server.close()

    def _connect(self, sock: Any, peer: str, _: object) -> Any:
        owned = sock if self._form is native.reference else sock.detach()
        return self._form.LinkConnection(owned, LIMITS, peer, self.turn, self._node)

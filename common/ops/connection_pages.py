"""`GET /connections` and `POST /connections/close` on the operator's port of a proxy.

The list needs no proof, as /metrics does not: bind the port to an address that only operators reach. Closing needs a
proof, as `common.operator_proof` says.
"""

import json
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from common.clock import Clock
from common.net.connection_list import LISTED_MAX, ConnectionList, filter_of
from common.operator_proof import CLOSE_PATH, CONNECTIONS_PATH, ProxyKey, proof_fault

log = logging.getLogger("penstock.ops")


class OpsRequest(NamedTuple):
    """One request to a page that takes more than a path. The last three are headers; "" without one."""

    method: str
    query: Mapping[str, str]
    body: bytes
    proof: str
    at: str
    machine_proof: str = ""

    def fault(self, key: ProxyKey, process: str, path: str, clock: Clock) -> str:
        """Why it may change nothing; empty: it may."""
        given = self.machine_proof if key.is_of_machine else self.proof
        return proof_fault(key, process, path, self.at, self.body, given, clock.now_ms())


OpsAnswer = tuple[str, object]
"""Status line and JSON value."""

MorePages = Mapping[str, Callable[[OpsRequest], OpsAnswer]]


def connection_pages(connections: ConnectionList, key: ProxyKey, process: str, clock: Clock) -> MorePages:
    """The two pages by path.

    Args:
        process: the name under which this process reports.
    """

    def show(asked: OpsRequest) -> OpsAnswer:
        if asked.method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", {"error": "method not allowed: use GET"}
        limit = asked.query.get("limit", str(LISTED_MAX))
        if not (limit.isascii() and limit.isdigit() and len(limit) < 8 and int(limit) <= LISTED_MAX):
            return "400 Bad Request", {"error": f"limit: use a number from 0 to {LISTED_MAX:,}"}
        return "200 OK", connections.listed(filter_of(asked.query), int(limit))

    def close(asked: OpsRequest) -> OpsAnswer:
        if asked.method != "POST":
            return "405 Method Not Allowed", {"error": "method not allowed: use POST"}
        if fault := asked.fault(key, process, CLOSE_PATH, clock):
            return "403 Forbidden", {"error": fault}
        id = asked.body.decode("ascii", "replace")
        closed = connections.close(id)
        if closed is None:
            return "404 Not Found", {"error": f"connection {json.dumps(id[:80])}: not found: it is closed already"}
        log.info(
            "connection=%s peer=%s application=%s: closed by an operator", id, closed["peer"], closed["application"]
        )
        return "200 OK", closed

    return {CONNECTIONS_PATH: show, CLOSE_PATH: close}

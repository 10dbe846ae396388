"""Options of the client, with the cost of a change."""

import logging
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock_client.metrics import Metrics


@dataclass(frozen=True)
class Options:
    # For one send with all its retries; a pull or a request adds it to its wait. A call may take 500 ms more for an
    # answer.
    deadline_ms: int = 10_000
    call_timeout_ms: int = 3_000  # for one attempt at one proxy; shorter finds a hung proxy sooner, and retries more
    connect_timeout_ms: int = 1_000  # with the TLS handshake; less when the deadline comes before
    framed: bool = True  # False: buffered. Penstock takes both on one port; one connection keeps to one of them
    ssl_context: ssl.SSLContext | None = None  # e.g. ssl.create_default_context(); None: plain TCP
    backoff_first_ms: int = 50  # doubled with each failure, with jitter
    backoff_max_ms: int = 2_000
    credential_ms: int = 60_000  # one minted credential is used this long; proxies take it for 300 s
    idle_connections_max: int = 8  # kept open per proxy; more are made when needed and closed after use
    idle_ms_max: int = 30_000  # an older idle connection may have been closed by the proxy
    outage_ms_max: int = 600_000  # `run` ends when no pull has succeeded for so long; 0: never
    extend_ms_max: int = 3_600_000  # `run` extends no lease beyond this; a handler that hangs loses its message then
    tell: Callable[[str], None] = logging.getLogger("penstock_client").warning  # outages, topics that give nothing
    metrics: Metrics = field(default_factory=Metrics)


Endpoints = str | Iterable[str | tuple[str, int]]


def parse_endpoints(endpoints: Endpoints) -> list[tuple[str, int]]:
    """`"a:1,b:2"`, `["a:1", "b:2"]` or `[("a", 1)]`; IPv6 as `[::1]:9090`."""
    parts = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
    parsed = [part if isinstance(part, tuple) else _parse_one(part.strip()) for part in parts if part]
    if not parsed:
        raise ValueError("no endpoints: give at least one HOST:PORT")
    return parsed


def _parse_one(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"endpoint {text!r}: invalid: use HOST:PORT")
    return host.strip("[]"), int(port)

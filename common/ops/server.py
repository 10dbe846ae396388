"""The operator's port: `/metrics`, `/healthz`, `/readyz`, and pages of proxies.

Plain HTTP without authentication: bind it to an address that only operators reach.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from common.limited_log import LimitedLog
from common.ops.build_info import BuildInfo
from common.ops.connection_pages import MorePages, OpsRequest
from common.ops.listener import OpsListener
from common.readiness import Note, is_ready

limited = LimitedLog(logging.getLogger(__name__))

Health = Callable[[], Mapping[str, bool | str]]
PAGE_AGE_S_MAX = 2.0
PAGE_LOOP_SHARE = 0.02  # of the loop's time may go into making pages, which blocks it; scrapers share a page meanwhile
JSON = "application/json"
NO_SERIES = "series=none"


class _MetricsPage:
    """The text of collectors, made anew when its time is over: an expensive page is shared for longer."""

    def __init__(self, *registries: CollectorRegistry) -> None:
        self._registries = registries
        self._text, self._until_s = b"", 0.0

    def text(self) -> bytes:
        began = time.monotonic()
        if began >= self._until_s:
            self._text = b"".join(generate_latest(each) for each in self._registries)
            took_s = time.monotonic() - began
            self._until_s = began + min(PAGE_AGE_S_MAX, took_s / PAGE_LOOP_SHARE)
        return self._text


class OpsServer:
    """Serves the three pages, and `more`, in its own greenlets until `stop()`.

    `health()` returns the state of each dependency: True is ready, False or a sentence (the reason) is not ready; a Note
    is ready and shown. `/metrics?series=none` leaves out the metrics of `series`.
    """

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, health: Health, more: MorePages | None = None,
        series: CollectorRegistry | None = None,
    ) -> None:  # fmt: skip
        self._health, self._more = health, more or {}
        self._short = _MetricsPage(registry)
        self._whole = self._short if series is None else _MetricsPage(registry, series)
        self._server = OpsListener((host, port), self._answer)
        self._server.start()

    @property
    def port(self) -> int:
        """The bound port, also when 0 was requested."""
        return self._server.server_port

    def stop(self) -> None:
        """Close the listener and all connections; an unfinished answer is cut after a second."""
        self._server.stop(timeout=1)

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        is_short = environ.get("QUERY_STRING", "") == NO_SERIES
        pages: dict[str, Callable[[], tuple[str, str, bytes]]] = {
            "/metrics": partial(self._metrics, is_short=is_short),
            "/healthz": self._healthz,
            "/readyz": self._readyz,
        }
        page = pages.get(environ["PATH_INFO"])
        if (other := self._more.get(environ["PATH_INFO"])) is not None:
            status, value = other(_request(environ))
            kind, body = JSON, json.dumps(value).encode() + b"\n"
        elif page is None:
            known = " ".join([*pages, *self._more])
            status, kind, body = "404 Not Found", "text/plain", f"no such page: use {known}\n".encode()
        elif environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            status, kind, body = "405 Method Not Allowed", "text/plain", b"method not allowed: use GET\n"
        else:
            status, kind, body = page()
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _metrics(self, *, is_short: bool) -> tuple[str, str, bytes]:
        return "200 OK", CONTENT_TYPE_LATEST, (self._short if is_short else self._whole).text()

    def _healthz(self) -> tuple[str, str, bytes]:
        return "200 OK", JSON, b'{"alive": true}\n'  # an answer shows that the event loop runs

    def _readyz(self) -> tuple[str, str, bytes]:
        try:
            state = dict(self._health())
        except Exception as fault:
            limited.exception("readyz: the health check failed")
            state = {"health": f"the health check failed: {fault}"}
        faults = {name: value or "not ready" for name, value in state.items() if not is_ready(value)}
        notes = {name: value for name, value in state.items() if isinstance(value, Note)}
        page = {"ready": not faults, "faults": faults, "notes": notes, "checks": sorted(state)}
        body = json.dumps(page).encode() + b"\n"
        return ("503 Service Unavailable" if faults else "200 OK"), JSON, body


def _request(environ: dict[str, Any]) -> OpsRequest:
    query = dict(parse_qsl(environ.get("QUERY_STRING", "")))
    headers = [environ.get(f"HTTP_PENSTOCK_{name}", "") for name in ("PROOF", "TIME", "MACHINE_PROOF")]
    return OpsRequest(environ["REQUEST_METHOD"], query, environ["wsgi.input"].read(), *headers)


def start_ops(
    host: str, port: int, registry: CollectorRegistry, health: Health, more: MorePages | None = None,
    series: Collector | None = None,
) -> OpsServer:  # fmt: skip
    """Start the operator's pages of this process; port 0 chooses a free port.

    The metrics get the figures of the process: its version, start, memory and CPU time.

    Args:
        more: pages by path beside the three.
        series: metrics with a series per topic or group, which cost most and can be left out of a page.
    """
    apart = None
    if series is not None:
        apart = CollectorRegistry()
        apart.register(series)
    for each in (BuildInfo(), ProcessCollector(registry=None)):
        registry.register(each)
    return OpsServer(host, port, registry, health, more, apart)

"""The bundled engine, one broker, over its link."""

import logging
from typing import Any

from consumer_proxy.sources.base import Answer, Source, SourceDown
from engine.client.rpc import LinkDown, RpcClient

log = logging.getLogger("penstock.consumer")
PULL, READ, LEASE = 20, 21, 60  # operations of the link
UNAVAILABLE = 203
_AWAY = "the engine cannot be reached at the moment"


class EngineSource(Source):
    """Requests and answers pass through as they are.

    Args:
        rpc: connected and kept so by itself; closed with this source.
    """

    def __init__(self, rpc: RpcClient):
        self._rpc = rpc

    @property
    def up(self) -> bool:
        return self._rpc.connected

    def pull(self, request: bytes, answer: Answer) -> Any:
        return self._send(PULL, request, answer)

    def read(self, request: bytes, answer: Answer) -> Any:
        return self._send(READ, request, answer)

    def cancel(self, handle: Any) -> None:
        self._rpc.cancel(handle)

    def tell(self, request: bytes) -> None:
        try:
            self._send(PULL, request, _heard)
        except SourceDown:
            log.info("engine: away; what was given back returns by its lease")

    def lend(self, request: bytes, answer: Answer) -> None:
        try:
            self._send(LEASE, request, answer)
        except SourceDown:
            answer(UNAVAILABLE, b"")

    def close(self) -> None:
        self._rpc.close()

    def _send(self, op: int, request: bytes, answer: Answer) -> Any:
        try:
            return self._rpc.send(op, request, answer)
        except LinkDown as error:
            raise SourceDown(_AWAY) from error


def _heard(code: int, payload: bytes) -> None:
    if code:
        log.info("engine: did not take back a lease, code=%d: %s", code, payload.decode("utf-8", "replace"))

"""The bundled engine as a source: one broker over its link. Questions are encoded here, last."""

import logging
from functools import partial
from typing import Any

from common.limited_log import LimitedLog
from consumer_proxy.sources.base import Failure, OnLent, OnPulled, OnRead, Source, SourceDown
from engine.client.rpc import LinkDown, RpcLink
from engine.link.acknowledgement import AckRanges
from engine.link.codes import AT_BOUND, NO_ROOM, OK, UNAVAILABLE
from engine.link.errors import PayloadError
from engine.link.operations import LEASE, PULL, READ
from engine.link.pull import PullAnswer, PullQuestion, PullScope, acknowledging
from engine.link.read import ReadAnswer, ReadQuestion

limited = LimitedLog(logging.getLogger("penstock.consumer"))
AWAY = "the engine cannot be reached at the moment"


class EngineSource(Source):
    """One broker group.

    Args:
        rpc: its link, which reconnects automatically; closed with this source.
    """

    def __init__(self, rpc: RpcLink) -> None:
        self._rpc = rpc

    @property
    def up(self) -> bool:
        return self._rpc.connected

    def pull(self, question: PullQuestion, on_pulled: OnPulled) -> Any:
        try:
            return self._rpc.send(PULL, question.encode(), partial(pulled, on_pulled))
        except LinkDown as error:
            raise SourceDown(AWAY) from error

    def read(self, question: ReadQuestion, on_read: OnRead) -> Any:
        try:
            return self._rpc.send(READ, question.encode(), partial(was_read, on_read))
        except LinkDown as error:
            raise SourceDown(AWAY) from error

    def cancel(self, handle: Any) -> None:
        self._rpc.cancel(handle)

    def acknowledge(self, scope: PullScope, acks: AckRanges) -> None:
        try:
            self._rpc.send(PULL, acknowledging(scope, acks).encode(), _log_refusal)
        except LinkDown:
            limited.info("engine: link down: messages that were given back return when their leases expire")

    def lend(self, request: bytes, on_lent: OnLent) -> None:
        try:
            self._rpc.send(LEASE, request, on_lent)
        except LinkDown:
            on_lent(UNAVAILABLE, b"")

    def close(self) -> None:
        self._rpc.close()


def pulled(on_pulled: OnPulled, code: int, payload: bytes) -> None:
    """Pass on the answer of a PULL."""
    if code in (OK, AT_BOUND, NO_ROOM):
        on_pulled(PullAnswer(payload, code))
    else:
        on_pulled(failure(code, payload))


def was_read(on_read: OnRead, code: int, payload: bytes) -> None:
    """Pass on the answer of a READ."""
    if code != OK:
        on_read(failure(code, payload))
        return
    try:
        answer = ReadAnswer.decode(payload)
    except PayloadError as error:
        limited.error("engine: damaged answer: %s", error)
        on_read(Failure(UNAVAILABLE, "the engine's answer is damaged; read again"))
        return
    on_read(answer)


def failure(code: int, sentence: bytes) -> Failure:
    """The Failure for an engine's refusal."""
    return Failure(code, sentence.decode("utf-8", "replace"))


def _log_refusal(code: int, payload: bytes) -> None:
    if code:
        limited.info("engine: leases were not given back: code=%d: %s", code, payload.decode("utf-8", "replace"))

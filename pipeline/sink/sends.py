"""Sends at a producer proxy: batches of up to 1000 messages, until each is stored or refused for good."""

import struct
from array import array
from typing import Any, NamedTuple

from thriftpy2.thrift import TApplicationException

from common.contract import Code, SendRequest, encode_call, encode_struct
from pipeline.errors import CallRefused, ReplyError
from pipeline.options import WriteOptions
from pipeline.proxy.attempts import CallAttempts, code_name, is_tried_again
from pipeline.proxy.connection import FramedConnection
from pipeline.proxy.identity import JobIdentity
from pipeline.sink.columns import MessageColumns
from pipeline.sink.messages import Encoded, RowResult, SendResults
from pipeline.sink.native import encode_messages, read_results
from pipeline.sink.pace import CallPace

BYTES_PER_CALL = 8_000_000
CALL_MS_MAX = 10_000
UNTRUSTED_BYTES_MAX = 48 << 10
"""Before a connection has shown a valid credential, a proxy takes only small frames."""
BEGIN = b"\x80\x01\x00\x01\0\0\0\x04send\0\0\0\x01" + b"\x0c\0\x01" + b"\x0c\0\x01"
"""A call's header, field 1 of the arguments, and field 1 of the request: the credential follows."""


class SendCounts(NamedTuple):
    """Messages that were stored, those of these that had been stored before, and those that were sent again."""

    stored: int = 0
    duplicates: int = 0
    retried: int = 0

    def plus(self, other: "SendCounts") -> "SendCounts":
        return SendCounts(*(one + two for one, two in zip(self, other, strict=True)))


class BatchSends:
    """A connection to one of the proxies, used in a `with`. One call at a time, so that keys keep their order.

    Messages of a call that were not stored are sent again before the next call, with the same ids.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._identity = JobIdentity(options.credential)
        self._connection: FramedConnection | None = None
        self._turn = 0
        self._pace = CallPace(options.task_rate)

    def __enter__(self) -> "BatchSends":
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def send(self, columns: MessageColumns, rows: array) -> tuple[SendCounts, list[RowResult]]:
        """Send these rows of the columns and return what was stored, and the refused ones by their row number.

        Raises:
            CallRefused: the calls themselves are refused, or rows were not stored before the deadline.
        """
        counts, refused, first = SendCounts(), [], 0
        most = self._pace.messages_max
        encoded = encode_messages(columns, rows[:most], 0, BYTES_PER_CALL)
        while encoded.message_count:
            part = rows[first : first + encoded.message_count]
            first += encoded.message_count
            self._pace.wait(encoded.message_count)
            self._begin(encoded)
            # The next call is encoded while the proxy works.
            following = encode_messages(columns, rows[first : first + most], 0, BYTES_PER_CALL)
            done, bad = self._settle(columns, part, encoded)
            counts, encoded = counts.plus(done), following
            refused += bad
        return counts, refused

    def _settle(self, columns: MessageColumns, rows: array, encoded: Encoded) -> tuple[SendCounts, list[RowResult]]:
        """Finish the call that was begun, and repeat it for what was not stored."""
        attempts = CallAttempts("send", self._options.deadline_s)
        counts, refused, waiting = SendCounts(), [], rows
        results = self._finish(attempts, encoded)
        while True:
            if (
                unknown := next((each for each in results.failed if each.code == Code.UNAUTHENTICATED), None)
            ) is not None:
                # It is about the call, not about its rows: they are sent again by a later attempt.
                if not self._identity.renew():
                    raise CallRefused(f"send: {code_name(unknown.code)}: {unknown.error}")
                encoded = encode_messages(columns, waiting, 0, 1 << 40)
                self._begin(encoded)
                results = self._finish(attempts, encoded)
                continue
            again = [each for each in results.failed if is_tried_again(each.code)]
            refused += [
                each._replace(row=waiting[each.row]) for each in results.failed if not is_tried_again(each.code)
            ]
            counts = counts.plus(SendCounts(results.stored, results.duplicates, len(again)))
            if not again:
                return counts, refused
            if results.stored:
                attempts.succeeded()
            first = again[0]
            attempts.pause(f"{code_name(first.code)}: {first.error}", max(each.retry_after_ms for each in again))
            waiting = array("I", [waiting[each.row] for each in again])
            encoded = encode_messages(columns, waiting, 0, 1 << 40)
            self._begin(encoded)
            results = self._finish(attempts, encoded)

    def _finish(self, attempts: CallAttempts, encoded: Encoded) -> SendResults:
        """The results of the call that was begun; it is repeated with the same ids while there is no reply."""
        while True:
            try:
                if self._connection is None:
                    raise ConnectionError("no connection")
                results = read_results(self._connection.receive())
                if results.stored + len(results.failed) == encoded.message_count:
                    return results
                raise ReplyError(
                    f"reply: {results.stored + len(results.failed)} results for {encoded.message_count} messages"
                )
            except TApplicationException as error:
                raise CallRefused(f"send: {self._address()}: not a producer proxy: {error.message}") from error
            except (OSError, ReplyError) as error:
                self._drop()
                self._turn += 1
                attempts.pause(f"{self._address()}: {error}")
                self._begin(encoded)

    def _begin(self, encoded: Encoded) -> None:
        """Send a call. A failure is left to `_finish`, which repeats the call."""
        credential = self._identity.credential()
        frame = send_frame(
            encoded, credential, min(CALL_MS_MAX, int(self._options.deadline_s * 1000)), self._options.durability
        )
        try:
            if self._connection is None:
                self._connection = FramedConnection(self._address(), self._options.deadline_s)
            if len(frame) > UNTRUSTED_BYTES_MAX and not self._connection.is_trusted:
                self._connection.send(encode_call("send", 1, SendRequest(credential=credential, messages=[])))
                self._connection.receive()
            self._connection.is_trusted = True
            self._connection.send(frame)
        except OSError:
            self._drop()

    def _address(self) -> tuple[str, int]:
        return self._options.addresses[self._turn % len(self._options.addresses)]

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def send_frame(encoded: Encoded, credential: Any, timeout_ms: int, durability: int) -> bytes:
    """The frame of a call of `send` with these messages."""
    return b"".join(
        [
            BEGIN,
            encode_struct(credential),
            struct.pack(">BHBI", 15, 2, 12, encoded.message_count),
            encoded.data,
            struct.pack(">BHi", 8, 3, timeout_ms),
            struct.pack(">BHi", 8, 4, durability) if durability else b"",
            b"\0\0",
        ]
    )

"""Pulls by position at a consumer proxy, and its list of topics: all calls that read make. No group is moved by them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from thriftpy2.thrift import TApplicationException

from common.contract import Code, PullRequest, encode_call
from pipeline.errors import CallRefused, ReplyError
from pipeline.proxy.attempts import CallAttempts, code_name, is_tried_again
from pipeline.proxy.connection import FramedConnection
from pipeline.proxy.identity import JobIdentity
from pipeline.reply.reply import PullReply, read_reply
from pipeline.reply.row_filter import ALL_ROWS, RowFilter


class ConsumerEndpoints(NamedTuple):
    """How consumer proxies are reached. It holds no secret, so it may be in a plan.

    Attributes:
        credential: path of the credential's file.
        deadline_s: for one call with all its attempts.
    """

    addresses: tuple[tuple[str, int], ...]
    credential: str
    group: str
    deadline_s: float


class PositionPulls:
    """A connection to one of the proxies, used in a `with`. The next proxy is tried after a failure."""

    def __init__(self, endpoints: ConsumerEndpoints) -> None:
        self._endpoints = endpoints
        self._identity = JobIdentity(endpoints.credential)
        self._connection: FramedConnection | None = None
        self._turn = 0
        self._ahead: dict[str, Any] | None = None

    def __enter__(self) -> "PositionPulls":
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def pull(
        self, positions: Sequence[Any], max_messages: int, max_bytes: int, wanted: int, rows: RowFilter = ALL_ROWS
    ) -> PullReply:
        """Pull by these positions; deliveries for which the row filter does not hold are left out.

        Raises:
            CallRefused: the proxy refused it for good, or none answered before the deadline.
        """
        return self._called(_by_position(positions, max_messages, max_bytes), wanted, rows)

    def topics_after(self, name: str) -> list[Any]:
        """The next page of the topics that the application may pull from: TopicReports, none at the end.

        Raises:
            CallRefused: like `pull`; or the proxy is of before and does not name topics.
        """
        response = self._called({"topics_after": name, "max_messages": 0}, 0, ALL_ROWS).response
        if response.topics is None:
            raise CallRefused(f"pull: {self._address()}: the proxy is too old to name topics: upgrade it, or name them")
        return list(response.topics)

    def _called(self, fields: dict[str, Any], wanted: int, rows: RowFilter) -> PullReply:
        attempts = CallAttempts("pull", self._endpoints.deadline_s)
        while True:
            try:
                if self._ahead != fields:
                    self._begin(fields)
                assert self._connection is not None
                self._ahead = None
                reply = read_reply(self._connection.receive(), wanted, rows)
            except TApplicationException as error:
                raise CallRefused(f"pull: {self._address()}: not a consumer proxy: {error.message}") from error
            except (OSError, ReplyError) as error:
                reason = f"{self._address()}: {error}"
                self._drop()
                self._turn += 1
                attempts.pause(reason)
                continue
            response = reply.response
            if response.code < 100:
                return reply
            if response.code == Code.UNAUTHENTICATED and self._identity.renew():
                continue  # a new key was put into the file while this process ran
            reason = f"{code_name(response.code)}: {response.error}"
            if not is_tried_again(response.code):
                raise CallRefused(f"pull: {reason}")
            attempts.pause(reason, response.retry_after_ms)

    def begin(self, positions: Sequence[Any], max_messages: int, max_bytes: int) -> None:
        """Send the next pull ahead, while the caller still works on the last reply. Raises OSError."""
        self._begin(_by_position(positions, max_messages, max_bytes))

    def _begin(self, fields: dict[str, Any]) -> None:
        if self._ahead is not None or self._connection is None:
            self._drop()
            self._connection = FramedConnection(self._address(), self._endpoints.deadline_s)
        request = PullRequest(credential=self._identity.credential(), group=self._endpoints.group, **fields)
        self._connection.send(encode_call("pull", 1, request))
        self._ahead = fields

    def _address(self) -> tuple[str, int]:
        return self._endpoints.addresses[self._turn % len(self._endpoints.addresses)]

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._ahead = None, None


def _by_position(positions: Sequence[Any], max_messages: int, max_bytes: int) -> dict[str, Any]:
    return {"positions": list(positions), "max_messages": max_messages, "max_bytes": max_bytes}

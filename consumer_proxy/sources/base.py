"""The interface of a store of messages that the proxy serves from: values in, values out.

Siblings: engine.py (one broker), groups.py (several broker groups), memory.py (this process). A Kafka cluster would be
another one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from engine.link.acknowledgement import AckRanges
from engine.link.pull import PullAnswer, PullQuestion, PullScope
from engine.link.read import ReadAnswer, ReadQuestion


class Failure(NamedTuple):
    """The reason why a question has no answer: a contract code and a sentence for the client."""

    code: int
    sentence: str


# Called once, in the loop, never inside the asking call.
OnPulled = Callable[[PullAnswer | Failure], None]
OnRead = Callable[[ReadAnswer | Failure], None]
# (code, payload) of the quota slices' lender; may be called inside the asking call.
OnLent = Callable[[int, bytes], None]


class SourceDown(Exception):
    """The store cannot be reached now. The text is a sentence for the client. Retriable."""


class Source(ABC):
    """A store of messages. Works on whole batches: no method handles a single message.

    No method blocks. An accepted question is answered once: with a Failure when the store is lost before the answer.
    The caller enforces the deadline.
    """

    @property
    @abstractmethod
    def up(self) -> bool:
        """Whether a question would be accepted now."""

    @abstractmethod
    def pull(self, question: PullQuestion, on_pulled: OnPulled) -> Any:
        """Acknowledge, then lease messages or wait for some. Returns a handle for `cancel`. Raises SourceDown."""

    @abstractmethod
    def read(self, question: ReadQuestion, on_read: OnRead) -> Any:
        """Read by position; nothing is leased. Returns a handle for `cancel`. Raises SourceDown."""

    @abstractmethod
    def cancel(self, handle: Any) -> None:
        """End the waiting of a question: it is answered with the messages it has. Never raises."""

    @abstractmethod
    def acknowledge(self, scope: PullScope, acks: AckRanges) -> None:
        """Acknowledge without an answer. Best effort: a lost acknowledgement expires with its lease."""

    @abstractmethod
    def lend(self, request: bytes, on_lent: OnLent) -> None:
        """Ask the lender of quota slices (LEASE of the link); UNAVAILABLE when it cannot be reached."""

    @abstractmethod
    def close(self) -> None:
        """Answer open questions with a Failure and release everything."""

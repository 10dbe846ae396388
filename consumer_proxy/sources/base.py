"""What a store of messages must do for the proxy. Siblings: engine.py, groups.py (several broker groups); a Kafka cluster comes later."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

# (code, payload) of an answer; payload is a sentence when the code is not OK. Called in the loop; never inside the asking call.
Answer = Callable[[int, bytes], None]


class SourceDown(Exception):
    """Nobody can be asked at the moment. Its text is a sentence for the client."""


class Source(ABC):
    """Takes requests and answers in the bytes of the link, whole batches at a time: no method sees a single message.

    Nothing here blocks. A request that was taken is answered once: with an error code when the store goes away meanwhile. The
    asker keeps the deadline.
    """

    @property
    @abstractmethod
    def up(self) -> bool:
        """Whether a request would be taken now."""

    @abstractmethod
    def pull(self, request: bytes, answer: Answer) -> Any:
        """Acknowledge and lease (PULL); returns a handle for `cancel`. Raises SourceDown."""

    @abstractmethod
    def read(self, request: bytes, answer: Answer) -> Any:
        """Read by position (READ); returns a handle for `cancel`. Raises SourceDown."""

    @abstractmethod
    def cancel(self, handle: Any) -> None:
        """Its asker has gone: lease nothing to it. An answer that is on its way may still come. Never raises."""

    @abstractmethod
    def tell(self, request: bytes) -> None:
        """Acknowledge for nobody who waits (PULL without messages). Best effort: what is lost comes back by its lease."""

    @abstractmethod
    def lend(self, request: bytes, answer: Answer) -> None:
        """Ask the lender of cluster-wide limits (LEASE). UNAVAILABLE when it is away, which may come inside this call."""

    @abstractmethod
    def close(self) -> None:
        """Answer what is open with an error and leave."""

"""Interface that delivery needs from request-reply. That of the log is `engine.log.port.DeliveryLog`."""

from typing import Protocol


class RequestJudge(Protocol):
    """The part of engine/replies that delivery uses: whether to deliver a request, and reports about it."""

    expired: int

    def is_over(self, record: bytes, stored_at_ms: int) -> bool: ...

    def given(self, group: str, record: bytes) -> None: ...

    def failed(self, group: str, record: bytes) -> None: ...

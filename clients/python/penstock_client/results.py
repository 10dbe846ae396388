"""The outcome of one message after all retries."""

from dataclasses import dataclass

from penstock_client.codes import Action, action_of
from penstock_client.contract import Message


@dataclass(frozen=True)
class Result:
    code: int
    id: str
    queue: int | None = None
    offset: int | None = None  # None while the message is in the fallback buffer (code BUFFERED)
    error: str | None = None
    reply: Message | None = None
    attempts: int = 1

    @property
    def ok(self) -> bool:
        """Stored. A request whose reply did not come is stored too, but not `ok`."""
        return action_of(self.code) is Action.DONE

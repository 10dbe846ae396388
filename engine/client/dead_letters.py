"""Dead letters of a group at one engine: list, redrive, purge. Blocking, over one link; needs no gevent.

Each verb is a loop of small requests, so it can be stopped and started again at any time.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from engine.client.admin import AdminError
from engine.link.codes import TIMEOUT

FETCH_PAUSE_S = 0.05
SETTLE_S_MAX = 30.0


class Asking(Protocol):
    """An AdminClient, or an object that asks one for it."""

    def ask(self, verb: str, **options: Any) -> dict[str, Any]: ...


class DeadLetterChoice(NamedTuple):
    """Conditions on dead letters; None: any. `reason`: a part of it; since and until: time of dead-lettering.

    `offsets`, `before`: in the group's dead-letter topic at this engine. `before` is the `end` of an earlier answer: dead
    letters that have come since are not chosen.
    """

    topic: str | None = None
    cause: str | None = None
    reason: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    offsets: list[int] | None = None
    before: int | None = None

    def given(self) -> dict[str, Any]:
        """The conditions that are set, for an audit record."""
        return {name: value for name, value in self._asdict().items() if value is not None}


ANY = DeadLetterChoice()


def pages(
    link: Asking, verb: str, group: str, choice: DeadLetterChoice, rate: int | None = None, **more: Any
) -> Iterator[dict[str, Any]]:
    """Answers of the engine until all dead letters that exist at the beginning have been seen.

    Args:
        verb: dead_letters, redrive or purge.
        rate: messages per second; the loop sleeps between its requests. None: no limit.
    """
    after, end = min(choice.offsets, default=0) if choice.offsets else 0, None
    last = max(choice.offsets) + 1 if choice.offsets else None
    while end is None or after < end:
        answer = link.ask(verb, group=group, after=after, **choice._asdict(), **more)
        yield answer
        is_stuck = answer["next"] == after  # its records are being fetched from an old part of the log
        after = answer["next"]
        end = min(answer["end"], last or answer["end"]) if end is None else end
        if rate and answer["count"]:
            time.sleep(answer["count"] / rate)
        elif is_stuck and after < end:
            time.sleep(FETCH_PAUSE_S)


def wait_settled(link: Asking, group: str, settle_s_max: float = SETTLE_S_MAX) -> None:
    """Wait until the copies of redriven messages are durable. Raises AdminError with TIMEOUT."""
    until = time.monotonic() + settle_s_max
    # No dead letter is that old: the request sends nothing and returns how many copies are not durable yet.
    while link.ask("redrive", group=group, until_ms=0)["unsettled"]:
        if time.monotonic() > until:
            raise AdminError(TIMEOUT, "sent, but the copies are not durable yet: look again later")
        time.sleep(FETCH_PAUSE_S)

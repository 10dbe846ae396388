"""When a message was on all brokers in sync, by the samples that its master takes of the confirmed position."""

from typing import NamedTuple

from console.installation.broker_queries import BrokerQueries
from console.installation.message_trace import span
from engine.client.admin import AdminError
from engine.link.errors import LinkError

LONE = "Its broker group has a single broker: there is no copy."
YOUNG_MS = 1_000
"""A message is confirmed, since it is shown, but the sample that says so may still be to come."""


class MessageCopies(NamedTuple):
    """`by_ms`: when the brokers had it at the latest; None: it is not known. `sentence`: what is known besides."""

    sentence: str
    by_ms: int | None = None


def copies(queries: BrokerQueries, topic: str, queue: int, stored_ms: int) -> MessageCopies:
    """When the brokers in sync had a message that was stored at this time and is readable. Never raises."""
    try:
        home = queries.home(topic, queue)
        if len(queries.places()[home]) == 1:
            return MessageCopies(LONE)
        with queries.open() as opened:
            link = opened.links.get(home)
            if link is None:
                return MessageCopies(" ".join(opened.faults))
            told = link.ask("confirmed", stored_ms=stored_ms)["confirmed"]
    except (AdminError, LinkError, OSError) as error:
        return MessageCopies(f"It is on every broker in sync, but when is not known: {error}.")
    return _sentence(told, stored_ms)


def _sentence(told: dict[str, object], stored_ms: int) -> MessageCopies:
    after_ms, by_ms, brokers = told.get("after_ms"), told.get("by_ms"), told.get("in_sync")
    if not isinstance(by_ms, int) or not isinstance(brokers, list):
        return MessageCopies("It is on every broker in sync. When is known a moment later: load the page again.")
    names = _listed([str(each) for each in brokers])
    if not isinstance(after_ms, int):
        return MessageCopies(
            f"{names} had it at the latest then. The exact time is not known: the present master has led since later.",
            by_ms,
        )
    if len(brokers) == 1:
        return MessageCopies(f"{names} alone was in sync when it was confirmed.", by_ms)
    early, late = max(0, after_ms - stored_ms), max(0, by_ms - stored_ms)
    least = f"{span(early)} to " if early else "at most "
    return MessageCopies(f"{names} had it {least}{span(late)} after it was stored.", by_ms)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

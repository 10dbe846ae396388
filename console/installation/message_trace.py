"""Trace of one stored message: its state in each group, as far as the engines know it."""

from typing import Any, NamedTuple

from console.installation.broker_queries import BrokerLinks, BrokerQueries
from engine.client import dead_letters as verbs
from engine.client.admin import AdminError
from engine.client.dead_letters import DeadLetterChoice
from engine.link.errors import LinkError

GROUPS_MAX = 50
DEAD_PAGES_MAX = 4
CALL_MS_MAX = 60_000
"""The longest time of a call, by the contract."""

CLOCKS_MS = 1_000
IN_FLIGHT = "in flight"


class GroupTrace(NamedTuple):
    """The message in one group.

    Attributes:
        dead: the row of its dead letter; {}: none was found among the oldest 2,000.
        lease: the engine's number of its lease, by which a delivery is known to be the present one; 0: none is known.
    """

    group: str
    state: str
    sentence: str
    dead: dict[str, Any]
    lease: int = 0


class MessageTrace(NamedTuple):
    """Rows by group, and sentences about what is missing. `has_more`: more groups exist than were asked."""

    groups: list[GroupTrace]
    faults: list[str]
    has_more: bool


def passage(accepted_ms: int | None, stored_ms: int, is_delayed: bool) -> str:
    """What the time between acceptance and storage tells of a passage through a fallback buffer; empty: it is not known."""
    if accepted_ms is None:
        return ""
    waited_ms = stored_ms - accepted_ms
    if is_delayed:
        return "Delayed by its sender: its time in between says nothing about a fallback buffer."
    if waited_ms > CALL_MS_MAX:
        return f"Waited {span(waited_ms)}, longer than a call may last: it was in a fallback buffer, or was sent again later."
    if waited_ms < -CLOCKS_MS:
        return "Stored before it was accepted, by the clocks of two machines: they differ."
    return (
        f"Stored {span(max(0, waited_ms))} later: within the time of a call, so a fallback buffer had it for no longer."
    )


def span(ms: int) -> str:
    """A time span, in a unit that keeps it short."""
    return f"{ms:,} ms" if ms < 10_000 else f"{ms // 1_000:,} s" if ms < 600_000 else f"{ms // 60_000:,} minutes"


def trace(queries: BrokerQueries, topic: str, queue: int, offset: int, stored_ms: int) -> MessageTrace:
    """The message's state in every group that has read its queue."""
    with queries.open() as opened:
        names = queries.groups(opened, limit=GROUPS_MAX + 1)
        found, faults = [], list(opened.faults)
        for name in names[:GROUPS_MAX]:
            answer = queries.ask(opened, "lag", "queues", topic, group=name, queue=queue, offset=offset)
            row = next((each for each in answer.rows if each["queue"] == queue), None)
            if row is not None:
                dead = _dead_letter(opened, name, DeadLetterChoice(topic=topic, since_ms=stored_ms), queue, offset)
                found.append(_state(name, row, offset, dead))
    return MessageTrace(found, faults, len(names) > GROUPS_MAX)


def _state(name: str, row: dict[str, Any], offset: int, dead: dict[str, Any]) -> GroupTrace:
    if dead:
        return GroupTrace(name, "dead-lettered", f"Cause: {dead.get('cause', 'unknown')}.", dead)
    if told := row.get("message"):
        return GroupTrace(name, *_told(told, max(0, offset - row["progress"])), {}, told.get("lease", 0))
    if offset < row["progress"]:  # an engine of an earlier version
        return GroupTrace(name, "settled", "Acknowledged, or passed over by the group's filter or by a reset.", {})
    ahead = offset - row["progress"]
    if row["in_flight"] == 0:
        return GroupTrace(name, "waiting", f"Not settled yet; {ahead:,} messages of the queue are before it.", {})
    return GroupTrace(
        name,
        "open",
        f"Waiting, in flight, or acknowledged before an earlier one: {ahead:,} messages of the queue are before it and "
        f"{row['in_flight']:,} are in flight.",
        {},
    )


def _told(message: dict[str, Any], ahead: int) -> tuple[str, str]:
    """State and sentence of what the engine knows of the message itself."""
    attempts, left = message.get("attempts", 0), message.get("left_ms")
    before = f"{attempts:,} attempt{'s' if attempts != 1 else ''} so far" if attempts else "not delivered before"
    rest = "" if left is None else f" for {span(left)} more"
    sentences = {
        "undelivered": f"Not delivered yet; {ahead:,} messages of the queue are before it.",
        "settled": "Acknowledged, or passed over by the group's filter or by a reset.",
        "leased": f"A consumer has it, in attempt {attempts:,}{rest}. Without an acknowledgement it is delivered again.",
        "waiting": f"Waits for its next attempt{rest}; {before}.",
        "due": f"The next pull gets it; {before}.",
        "held": f"Waits for an earlier message of its key; {before}.",
    }
    state = str(message.get("state"))
    return {"leased": IN_FLIGHT}.get(state, state), sentences.get(state, "Unknown.")


def _dead_letter(opened: BrokerLinks, group: str, choice: DeadLetterChoice, queue: int, offset: int) -> dict[str, Any]:
    for name, link in opened.links.items():
        try:
            for number, answer in enumerate(verbs.pages(link, "dead_letters", group, choice), 1):
                for row in answer["letters"]:
                    if (row.get("queue"), row.get("message_offset")) == (queue, offset):
                        return {**row, "broker_group": name}
                if number == DEAD_PAGES_MAX:
                    break
        except (AdminError, LinkError, OSError):
            continue  # the group's row still says how far it has read
    return {}

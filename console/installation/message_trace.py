"""Trace of one stored message: its state in each group, as far as the engines know it."""

from typing import Any, NamedTuple

from console.installation.broker_queries import BrokerLinks, BrokerQueries
from engine.client import dead_letters as verbs
from engine.client.admin import AdminError
from engine.client.dead_letters import DeadLetterChoice
from engine.link.errors import LinkError

GROUPS_MAX = 50
DEAD_PAGES_MAX = 4


class GroupTrace(NamedTuple):
    """The message in one group. `dead`: the row of its dead letter; {}: none was found among the oldest 2,000."""

    group: str
    state: str
    sentence: str
    dead: dict[str, Any]


class MessageTrace(NamedTuple):
    """Rows by group, and sentences about what is missing. `has_more`: more groups exist than were asked."""

    groups: list[GroupTrace]
    faults: list[str]
    has_more: bool


def trace(queries: BrokerQueries, topic: str, queue: int, offset: int, stored_ms: int) -> MessageTrace:
    """The message's state in every group that has read its queue."""
    with queries.open() as opened:
        names = queries.groups(opened, limit=GROUPS_MAX + 1)
        found, faults = [], list(opened.faults)
        for name in names[:GROUPS_MAX]:
            answer = queries.ask(opened, "lag", "queues", topic, group=name)
            row = next((each for each in answer.rows if each["queue"] == queue), None)
            if row is not None:
                dead = _dead_letter(opened, name, DeadLetterChoice(topic=topic, since_ms=stored_ms), queue, offset)
                found.append(_state(name, row, offset, dead))
    return MessageTrace(found, faults, len(names) > GROUPS_MAX)


def _state(name: str, row: dict[str, Any], offset: int, dead: dict[str, Any]) -> GroupTrace:
    if dead:
        return GroupTrace(name, "dead-lettered", f"Cause: {dead.get('cause', 'unknown')}.", dead)
    if offset < row["progress"]:
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

"""Offsets and sizes of a topic's queues, and the lag of its groups."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from common.placement import topic_hash
from console.installation.broker_queries import GROUPS_MAX, BrokerLinks, BrokerQueries
from engine.client.admin import AdminClient, AdminError
from engine.link.codes import OFFSET_OUT_OF_RANGE, OK, UNKNOWN_TOPIC
from engine.link.errors import LinkError
from engine.link.operations import READ
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion
from engine.link.record import split_records

NEWEST_BYTES = 4 << 20
ENDS_PER_READ = 500  # the engine does nothing else meanwhile


class QueueState(NamedTuple):
    """One queue. `bytes_about`: messages × size of the newest one; None: it is not known."""

    queue: int
    first: int
    end: int
    bytes_about: int | None
    broker_group: str

    @property
    def messages(self) -> int:
        return self.end - self.first


class GroupLag(NamedTuple):
    """A group's lag on one topic, in messages; None: it is not known."""

    group: str
    lag: int | None
    in_flight: int


def queue_states(
    queries: BrokerQueries, opened: BrokerLinks, topic: str, queues: int
) -> tuple[list[QueueState], list[str]]:
    """The states of all queues whose engine answers, and sentences about the others.

    A queue that has no message yet is at 0.
    """
    names = list(queries.places())
    homes = _homes(queries, topic, queues)
    found: list[QueueState] = []
    faults = list(opened.faults)
    for number, name in enumerate(names):
        own = [queue for queue in range(queues) if homes[queue] == number]
        if name not in opened.links or not own:
            continue
        try:
            found += _of_engine(opened.links[name], name, topic, own)
        except (OSError, LinkError, AdminError) as error:
            faults.append(f"The engine of {name}: {error}")
    return sorted(found), faults


def queue_ends(queries: BrokerQueries, opened: BrokerLinks, topics: Mapping[str, int]) -> dict[str, list[int]]:
    """The next offset of every queue of these topics, by their number of queues: only counters, no message is read.

    Raises OSError, LinkError, AdminError.
    """
    names = list(queries.places())
    asked: dict[str, list[ReadPosition]] = {name: [] for name in opened.links}
    for topic, queues in topics.items():
        homes = _homes(queries, topic, queues)
        for queue in range(queues):
            if names[homes[queue]] in asked:
                asked[names[homes[queue]]].append(ReadPosition(topic, queue))
    found: dict[str, list[int]] = {topic: [] for topic in topics}
    for name, positions in asked.items():
        for begin in range(0, len(positions), ENDS_PER_READ):
            part = positions[begin : begin + ENDS_PER_READ]
            for position, report in zip(part, _read(opened.links[name], part, 1).reports, strict=True):
                found[position.topic].append(report.end_offset or 0)
    return found


def _homes(queries: BrokerQueries, topic: str, queues: int) -> bytes:
    return queries.placement().homes(topic_hash(topic.encode()), queues) if queries.places() else bytes(queues)


def _of_engine(link: AdminClient, name: str, topic: str, queues: list[int]) -> list[QueueState]:
    reports = _read(link, [ReadPosition(topic, queue) for queue in queues], 1).reports
    bounds = {
        queue: (report.min_offset or 0, report.end_offset or 0) for queue, report in zip(queues, reports, strict=True)
    }
    wrong = next((each for each in reports if each.code not in (OK, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC)), None)
    if wrong is not None:
        raise AdminError(wrong.code, wrong.error or "no offsets")
    newest = {queue: end - 1 for queue, (first, end) in bounds.items() if end > first}
    positions = [ReadPosition(topic, queue, offset=at, end_offset=at + 1) for queue, at in newest.items()]
    sizes: dict[int, int] = {}
    if positions:
        for piece in _read(link, positions, len(positions)).pieces():
            sizes[piece.queue] = sum(len(message) for _, message in split_records(piece.records))
    return [
        QueueState(
            queue, first, end, 0 if first == end else _times(sizes.get(queue), end - first), name if name != "main" else ""
        )
        for queue, (first, end) in bounds.items()
    ]  # fmt: skip


def _times(size: int | None, count: int) -> int | None:
    return None if size is None else size * count


def _read(link: AdminClient, positions: list[ReadPosition], messages: int) -> ReadAnswer:
    code, payload = link.call(READ, ReadQuestion(positions, messages, NEWEST_BYTES).encode())
    if code != OK:
        raise AdminError(code, payload.decode("utf-8", "replace"))
    return ReadAnswer.decode(payload)


def lags_of_topic(queries: BrokerQueries, opened: BrokerLinks, topic: str) -> tuple[list[GroupLag], bool]:
    """The groups that have read the topic, with the largest lag first; and whether more groups exist than were asked."""
    names = queries.groups(opened, limit=GROUPS_MAX + 1)
    found = []
    for name in names[:GROUPS_MAX]:
        answer = queries.ask(opened, "lag", "queues", topic, group=name)
        if answer.rows:
            found.append(total_lag(name, answer.rows))
    return sorted(found, key=lambda each: (-(each.lag or 0), each.group)), len(names) > GROUPS_MAX


def total_lag(group: str, rows: list[dict[str, Any]]) -> GroupLag:
    """The sum over rows of the verb `lag`."""
    return GroupLag(group, sum(row["lag"] for row in rows), sum(row["in_flight"] for row in rows))

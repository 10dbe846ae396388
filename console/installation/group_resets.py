"""Positions of groups: a reset, previewed queue by queue and then made exactly as it was shown."""

from typing import Any, NamedTuple

from common.contract import Code
from common.placement import topic_hash
from console.installation.broker_queries import NOT_HERE, BrokerQueries
from engine.client.admin import AdminError
from engine.client.joined import rows_of_queues

Target = str | int | dict[str, int]
"""earliest, latest, an offset, {"time_ms": Unix time} or {"shift": messages, back when negative}; see engine.client.admin."""


class QueueMove(NamedTuple):
    """The move of one queue, in offsets."""

    queue: int
    old: int
    new: int

    @property
    def skipped(self) -> int:
        """Messages that the group will not get."""
        return max(0, self.new - self.old)

    @property
    def again(self) -> int:
        """Messages that the group gets once more."""
        return max(0, self.old - self.new)


class GroupResets:
    """Resets over all engines. All raise LinkError, AdminError and OSError."""

    def __init__(self, queries: BrokerQueries) -> None:
        self._queries = queries

    def preview(self, group: str, topic: str, to: Target, queue: int | None = None) -> list[QueueMove]:
        """The moves that a reset would make. Nothing is changed."""
        answers: dict[str, list[dict[str, Any]]] = {}
        unknown: AdminError | None = None
        with self._queries.complete() as links:
            for name, link in links.items():
                try:
                    answers[name] = link.ask("reset", group=group, topic=topic, to=to, queue=queue, preview=True)[
                        "moved"
                    ]
                except AdminError as error:
                    if error.code not in NOT_HERE:
                        raise
                    unknown = error
        if not answers:
            raise unknown or AdminError(Code.UNKNOWN_GROUP, f"group {group}: no engine knows it")
        rows = rows_of_queues(answers, list(self._queries.places()), topic, self._queries.placed_topics)
        return [QueueMove(row["queue"], row["old"], row["new"]) for row in rows]

    def move(self, group: str, topic: str, offsets: dict[int, int]) -> list[QueueMove]:
        """Move queues to offsets. Each engine checks all of its own first; one that refuses ends the loop with its error."""
        names = list(self._queries.places())
        placement, hashed = self._queries.placement(), topic_hash(topic.encode())
        by_home: dict[str, dict[str, int]] = {}
        for queue, offset in offsets.items():
            by_home.setdefault(names[placement.home(hashed, queue)], {})[str(queue)] = offset
        done: list[QueueMove] = []
        with self._queries.complete() as links:
            for name, chosen in by_home.items():
                for row in links[name].ask("reset", group=group, topic=topic, to={"offsets": chosen})["moved"]:
                    done.append(QueueMove(row["queue"], row["old"], row["new"]))
        return sorted(done)

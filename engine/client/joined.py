"""The engines of several broker groups as one: joined links for queries, joined rows of queues."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from common.placement import NONE_PLACED, PlacedTopics, Placement, topic_hash
from engine.client.admin import AdminClient
from engine.link import layout


class JoinedLink:
    """A `Link` of engine/client/lookup.py over several engines: a queue is read at its home."""

    def __init__(self, engines: Mapping[str, AdminClient], placed: PlacedTopics) -> None:
        self._engines = list(engines.values())
        self._placement = Placement(list(engines), placed)

    def call(self, op: int, payload: bytes) -> tuple[int, bytes]:
        """Send a READ of one position, or a look-up by id or key."""
        request = json.loads(payload)
        if op != layout.READ:
            return self._look_up(op, request)
        (position,) = request["positions"]
        home = self._placement.home(topic_hash(position["topic"].encode()), position["queue"])
        return self._engines[home].call(op, payload)

    def ask(self, verb: str, **options: Any) -> dict[str, Any]:
        """Send a verb to all engines and join the answers.

        `topics` takes each topic from the engine with most of its queues. `status` keeps the lookup indexes that all
        engines have.
        """
        answers = [engine.ask(verb, **options) for engine in self._engines]
        if verb == "status":
            return {"look_up": list(set.intersection(*(set(answer.get("look_up", [])) for answer in answers)))}
        assert verb == "topics"
        most: dict[str, dict[str, Any]] = {}
        for row in (row for answer in answers for row in answer["topics"]):
            if row["name"] not in most or row["queues"] > most[row["name"]]["queues"]:
                most[row["name"]] = row
        return {"topics": [most[name] for name in sorted(most)]}

    def _look_up(self, op: int, request: dict[str, Any]) -> tuple[int, bytes]:
        """Ask one engine after the other; the `next` of a request names the engine to continue with."""
        number, following = request["next"] or (0, None)
        code, answer = self._engines[number].call(op, json.dumps({**request, "next": following}).encode())
        report: dict[str, Any] = {"next": None}
        pieces = layout.U32.pack(0)
        if code == layout.OK:
            (size,) = layout.U32.unpack_from(answer)
            report, pieces = json.loads(answer[4 : 4 + size]), answer[4 + size :]
        elif code != layout.UNKNOWN_TOPIC:
            return code, answer
        if report["next"] is not None:
            report["next"] = [number, report["next"]]
        elif number + 1 < len(self._engines):
            report["next"] = [number + 1, None]
        text = json.dumps(report).encode()
        return layout.OK, layout.U32.pack(len(text)) + text + pieces


def offsets_by_home(rows: Sequence[Mapping[str, Any]], groups: Sequence[str]) -> dict[str, dict[str, int]]:
    """The `new` offsets of a reset's preview by broker group and queue: a target of the engine's verb `reset`.

    Args:
        rows: of `rows_of_queues`.
    """
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        found.setdefault(row.get("broker_group", groups[0]), {})[str(row["queue"])] = row["new"]
    return found


def rows_of_queues(
    answers: Mapping[str, list[dict[str, Any]]], groups: Sequence[str], topic: str | None = None,
    placed: PlacedTopics = NONE_PLACED,
) -> list[dict[str, Any]]:  # fmt: skip
    """One row per queue, by topic and number: that of its home, with the broker group's name where there are several.

    Args:
        answers: rows with `queue`, and `topic` where it is not given, by broker group.
        groups: all broker groups. Rows of an engine about queues of another home are dropped.
        placed: needed where there are several groups.
    """
    if len(groups) == 1:
        return [row for rows in answers.values() for row in rows]
    placement = Placement(groups, placed)
    found = []
    for name, rows in answers.items():
        for row in rows:
            hashed = topic_hash((topic or row["topic"]).encode())
            if groups[placement.home(hashed, row["queue"])] == name:
                found.append({**row, "broker_group": name})
    return sorted(found, key=lambda row: (row.get("topic", ""), row["queue"]))

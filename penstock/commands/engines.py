"""Requests of commands to the engines of all broker groups."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from common.contract import Code
from common.placement import Placement, topic_hash
from engine.client.admin import AdminClient, AdminError
from engine.link import layout
from engine.link.errors import LinkError
from penstock.commands.exits import CommandError, code_for_contract
from penstock.commands.instance import Instance

NOT_HERE = (
    Code.UNKNOWN_TOPIC,
    Code.UNKNOWN_GROUP,
)  # a broker group without a queue of the topic may not know it


@contextmanager
def connected(
    instance: Instance, timeout_s: float = 5.0, *, for_reads: bool = False
) -> Iterator[dict[str, AdminClient]]:
    """Links to all engines, by the broker group's name. An unreachable engine raises a CommandError that names it.

    Args:
        for_reads: take slaves that serve reads, where there are any.
    """
    with ExitStack() as links:
        found = {}
        for name, address in instance.engines(for_reads=for_reads).items():
            with named(name):
                found[name] = links.enter_context(AdminClient(address, instance.admin_key(), timeout_s=timeout_s))
        yield found


@contextmanager
def named(name: str) -> Iterator[None]:
    """Turn an engine's errors into the command's: one line that begins with the broker group."""
    who = "engine" if name == "main" else f"engine of {name}"
    try:
        yield
    except AdminError as error:
        raise CommandError(f"{who}: {error}", code_for_contract(error.code)) from error
    except (LinkError, OSError) as error:
        raise CommandError(f"{who}: {error}") from error


@contextmanager
def joined(instance: Instance, timeout_s: float = 5.0) -> Iterator["AdminClient | JoinedLink"]:
    """All engines as one, for queries of stored messages. Their errors become the command's."""
    with connected(instance, timeout_s, for_reads=True) as engines, named("main"):
        yield JoinedLink(engines) if len(engines) > 1 else next(iter(engines.values()))


class JoinedLink:
    """A `Link` of engine/client/lookup.py over several engines: a queue is read at its home."""

    def __init__(self, engines: dict[str, AdminClient]) -> None:
        self._engines = list(engines.values())
        self._placement = Placement(list(engines))

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


def ask_all(instance: Instance, verb: str, **options: Any) -> dict[str, dict[str, Any]]:
    """Answers by broker group.

    A broker group that does not know the topic or consumer group is left out, unless none does.
    """
    answers, unknown = {}, None
    with connected(instance) as engines:
        for name, engine in engines.items():
            try:
                with named(name):
                    answers[name] = engine.ask(verb, **options)
            except CommandError as error:
                cause = error.__cause__
                if not isinstance(cause, AdminError) or cause.code not in NOT_HERE:
                    raise
                unknown = error
    if not answers and unknown is not None:
        raise unknown
    return answers


def rows_of_queues(
    answers: dict[str, list[dict[str, Any]]], groups: list[str], topic: str | None = None
) -> list[dict[str, Any]]:
    """One row per queue, by topic and number: that of its home, with the broker group's name where there are several.

    Args:
        answers: rows with `queue`, and `topic` where it is not given, by broker group.
        groups: all broker groups. Rows of an engine about queues of another home are dropped.
    """
    if len(groups) == 1:
        return [row for rows in answers.values() for row in rows]
    placement = Placement(groups)
    found = []
    for name, rows in answers.items():
        for row in rows:
            hashed = topic_hash((topic or row["topic"]).encode())
            if groups[placement.home(hashed, row["queue"])] == name:
                found.append({**row, "broker_group": name})
    return sorted(found, key=lambda row: (row.get("topic", ""), row["queue"]))

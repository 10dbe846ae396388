"""Fills an installation and its console: topics, groups, messages, 30 days of history, requests and audit records."""

import itertools
import math
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

from sqlalchemy import func, insert, select
from thriftpy2.protocol import TCyBinaryProtocolFactory
from thriftpy2.rpc import make_client
from thriftpy2.transport import TCyFramedTransportFactory

from bench.console.desk import TEAM, ConsoleDesk
from bench.errors import RunError
from common import contract
from common.admin import applications, topics
from common.admin.administrator import Administrator
from common.config.applying import wait_applied
from common.config.definitions import GroupDefinition
from common.config.opening import open_store
from common.config.store import Change, ConfigStore
from common.contract import Code, Credential, Message, PullRequest, SendRequest
from common.credential import mint
from console.database.schema import audit, owners, points, requests, series
from console.database.series_history import (
    ALL,
    ANSWERS,
    COARSE_CHUNK_S,
    COARSE_KEPT_S,
    COARSE_S,
    FINE_CHUNK_S,
    FINE_KEPT_S,
    FINE_S,
    POINTS,
    SERIES_MAX,
)

TOPICS, GROUPS, DAYS = 100_000, 1_000, 30
MOVING = 500
"""Topics with messages and with a history, and groups with one."""
GROUPS_MOVING = 100
AUDIT_ROWS, REQUESTS, OWNED = 20_000, 1_000, 10_000
APPLIED_S_MAX = 60.0
SEND_BATCH = 100
INSTALLATION = (ANSWERS, "in", "out", "send_p50", "send_p99", "buffer", "buffer_s")


def topic_name(number: int) -> str:
    return f"team-{number % 97:02d}.events.{number:06d}"


def group_name(number: int) -> str:
    return f"group-{number:04d}"


def fill(desk: ConsoleDesk, scale: float, say: Callable[[str], None]) -> None:
    """Fill everything. Raises RunError."""
    names = [topic_name(number) for number in range(int(TOPICS * scale))]
    groups = [group_name(number) for number in range(int(GROUPS * scale))]
    with closing(open_store(desk.instance.facts["config"])) as store:
        say(f"console: {len(names):,} topics and {len(groups):,} groups")
        _define(store, names, groups)
        say("console: messages and pulls")
        _move(desk, store, names[:MOVING], groups)
    say(f"console: {DAYS} days of history")
    subjects = [
        ALL,
        *(f"topic:{name}" for name in names[:MOVING]),
        *(f"group:{name}" for name in groups[:GROUPS_MOVING]),
    ]
    _write_history(desk, subjects, max(0.02, min(1.0, scale)))
    _write_rows(desk, names, scale)


def _define(store: ConfigStore, names: list[str], groups: list[str]) -> None:
    admin = Administrator(store, "bench")
    topics.create(admin, names, topics.TopicSettings(queues=8))
    made = [GroupDefinition.from_value(name, {}) for name in groups]
    store.put_many("group", [Change(each.name, each.to_value(), 0) for each in made])


def _move(desk: ConsoleDesk, store: ConfigStore, names: list[str], groups: list[str]) -> None:
    """Send messages to these topics, and pull one of them as each group."""
    facts = desk.instance.facts
    grants = applications.Grants(send=("*",), pull=("*",))
    key = applications.create(Administrator(store, "bench"), "filler", grants)
    if late := wait_applied(store, store.version(), APPLIED_S_MAX):
        raise RunError(f"{', '.join(late)}: the configuration was not applied in {APPLIED_S_MAX:.0f} s")

    def credential() -> Credential:
        return Credential(*mint(key.app, key.key_id, key.secret, time.time_ns() // 1_000_000))

    messages = [
        Message(topic=name, key=f"k{number}", body=f'{{"order": {number}, "total": {number * 7 % 90}.5}}'.encode())
        for number in range(40)
        for name in names
    ]
    with closing(_client(contract.Producer, facts["producer_proxy"])) as producer:
        for begin in range(0, len(messages), SEND_BATCH):
            asked = SendRequest(
                credential=credential(), messages=messages[begin : begin + SEND_BATCH], timeout_ms=10_000
            )
            _until_stored(producer, asked)
    with closing(_client(contract.Consumer, facts["consumer_proxy"])) as consumer:
        for group, name in zip(groups, itertools.cycle(names), strict=False):
            asked = PullRequest(credential=credential(), group=group, topics=[name], max_messages=10, wait_ms=0)
            consumer.pull(asked)


def _until_stored(producer: Any, asked: SendRequest) -> None:
    for _ in range(200):
        results = producer.send(asked).results
        left = [message for message, each in zip(asked.messages, results, strict=True) if each.code != Code.OK]
        if not left:
            return
        asked.messages = left
        time.sleep(0.05)
    raise RunError(f"messages are still refused with code {results[0].code}")


def _client(service: Any, place: dict[str, Any]) -> Any:
    return make_client(
        service, place["host"], place["port"], proto_factory=TCyBinaryProtocolFactory(),
        trans_factory=TCyFramedTransportFactory(), timeout=30_000,
    )  # fmt: skip


def _figures(subject: str) -> tuple[str, ...]:
    kind = subject.partition(":")[0]
    return {ALL: INSTALLATION, "topic": ("in", "out", "lag")}.get(kind, ("out", "lag", "in_flight", "lag_s"))


def _write_history(desk: ConsoleDesk, subjects: list[str], share: float) -> None:
    """As many series as are kept: a day in steps of 10 s, the days before it in steps of 10 minutes."""
    keys = [(subject, name) for subject in subjects for name in _figures(subject)][: int(SERIES_MAX * max(share, 0.2))]
    now_s = int(time.time())
    with desk.database.write() as connection:
        first = (connection.execute(select(func.max(series.c.id))).scalar_one() or 0) + 1
        there = {(row.subject, row.name): row.id for row in connection.execute(select(series))}
        new = [key for key in keys if key not in there]
        rows = [{"id": first + at, "subject": subject, "name": name} for at, (subject, name) in enumerate(new)]
        connection.execute(insert(series), rows)
    ids = {**there, **{(row["subject"], row["name"]): row["id"] for row in rows}}
    fine_from = now_s - FINE_KEPT_S
    for begin_s in _steps(fine_from, now_s - FINE_CHUNK_S, FINE_CHUNK_S):
        _insert(desk, FINE_S, begin_s, ((ids[key], _fine(key, begin_s)) for key in keys))
    for begin_s in _steps(now_s - int(COARSE_KEPT_S * share), now_s - COARSE_CHUNK_S, COARSE_CHUNK_S):
        _insert(desk, COARSE_S, begin_s, ((ids[key], _coarse(key, begin_s)) for key in keys))


def _steps(begin_s: int, end_s: int, step_s: int) -> Iterator[int]:
    yield from range(begin_s - begin_s % step_s, end_s - end_s % step_s, step_s)


def _insert(desk: ConsoleDesk, step_s: int, begin_s: int, data: Iterable[tuple[int, bytes]]) -> None:
    """One chunk of all series, in a transaction of its own: the console writes meanwhile."""
    with desk.database.write() as connection:
        same = select(points.c.series_id).where(points.c.step_s == step_s, points.c.begin_s == begin_s)
        there = set(connection.execute(same).scalars())
        rows = [
            {"step_s": step_s, "series_id": number, "begin_s": begin_s, "data": packed}
            for number, packed in data
            if number not in there
        ]
        if rows:
            connection.execute(insert(points), rows)


def _value(key: tuple[str, str], at_s: int) -> float:
    """A value that moves with the time of day, and differs by series."""
    if key[1] == ANSWERS:
        return 1.0
    return 50.0 + len(key[0]) + 40.0 * math.sin(at_s / 13_750.0 + len(key[1]))


def _fine(key: tuple[str, str], begin_s: int) -> bytes:
    return struct.pack(f"<{POINTS}f", *([_value(key, begin_s)] * POINTS))


def _coarse(key: tuple[str, str], begin_s: int) -> bytes:
    values = [_value(key, begin_s + at * COARSE_S) for at in range(COARSE_CHUNK_S // COARSE_S)]
    return struct.pack(f"<{2 * len(values)}f", *(each for value in values for each in (value, value * 1.2)))


def _write_rows(desk: ConsoleDesk, names: list[str], scale: float) -> None:
    """Requests, owners and audit records of a console that is in use."""
    now_ms = int(time.time() * 1000)
    base = {"team_id": desk.team_id, "created_ms": now_ms, "changed_ms": now_ms}
    asked = {"description": "Every event of the team"}
    states = itertools.cycle(("requested", "rejected", "withdrawn", "rejected"))
    with desk.database.write() as connection:
        rows = [
            {
                "kind": "topic", "name": f"wish.{number:05d}", "asker": "bench", "asked": {"name": f"wish.{number:05d}", **asked},
                "settings": {"queues": 8}, "base": {"queues": 4}, "base_version": 1, "state": state, "version": 1, **base,
            }
            for number, state in zip(range(int(REQUESTS * scale) + 1), states, strict=False)
        ]  # fmt: skip
        connection.execute(insert(requests), rows)
        owned = [{"topic": name, "team_id": desk.team_id, **asked} for name in names[:OWNED]]
        connection.execute(insert(owners), owned)
        actions = [
            {"at_ms": now_ms - number * 1_000, "who": f"person-{number % 40}", "address": "192.0.2.7", "action": "comment",
             "subject": f"request {number % REQUESTS}", "old": None, "new": {"text": f"The team {TEAM} needs it"}}
            for number in range(int(AUDIT_ROWS * scale))
        ]  # fmt: skip
        connection.execute(insert(audit), actions)

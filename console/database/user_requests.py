"""Requests of users, for topics and for consumption, and their events.

Each change of a state is a compare-and-set on (state, version).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, delete, func, insert, select, update

from common.clock import Clock
from console.database import topic_notes
from console.database.action_log import ActionLog, Actor
from console.database.console_database import ConsoleDatabase
from console.database.schema import group_owners, owners, request_events, requests, teams
from console.errors import InvalidForm, RequestConflict

DRAFT, REQUESTED, APPROVED, APPLIED = "draft", "requested", "approved", "applied"
REJECTED, WITHDRAWN = "rejected", "withdrawn"
TOPIC, CONSUMPTION = "topic", "consumption"
"""Kinds of requests: for a topic; for a group that reads topics, with the grants of its application."""
OPEN = (DRAFT, REQUESTED, APPROVED)
COMMENT = "comment"
TEXT_CHARS_MAX = 2_000
NAMES_PER_QUERY = 500


@dataclass(frozen=True)
class UserRequest:
    """A request as stored.

    Attributes:
        name: of the topic or group.
        written_version: of the topic or group; None: nothing is written yet.
        kind_versions: numbers by kind of the configuration that a process has to have applied.
    """

    id: int
    kind: str
    name: str
    team_id: int
    team: str
    asker: str
    asked: dict[str, Any]
    settings: dict[str, Any]
    state: str
    version: int
    problem: str
    written_version: int | None
    kind_versions: dict[str, int] | None
    created_ms: int
    changed_ms: int
    base: dict[str, Any] | None = None
    base_version: int | None = None

    @property
    def subject(self) -> str:
        """Kind and name of what is written."""
        return f"{TOPIC if self.kind == TOPIC else 'group'} {self.name}"


class UserRequests:
    def __init__(self, database: ConsoleDatabase, log: ActionLog, clock: Clock) -> None:
        self._database, self._log, self._clock = database, log, clock
        self.on_event: Callable[[Connection, UserRequest, Actor, str, str], None] | None = None
        """Called for each event in its transaction, with its kind and text."""

    def add(
        self, actor: Actor, team_id: int, asked: dict[str, Any], settings: dict[str, Any], state: str, kind: str = TOPIC
    ) -> int:  # fmt: skip
        """Store a new request, a draft or one that waits for a decision, and return its id.

        Raises:
            InvalidForm: another open request has the name.
        """
        now_ms, name = self._clock.now_ms(), asked["name"]
        same = (requests.c.kind == kind, requests.c.name == name, requests.c.state.in_(OPEN))
        with self._database.write() as connection:
            taken = select(requests.c.id).where(*same).limit(1)
            if (other := connection.execute(taken).scalar_one_or_none()) is not None:
                raise InvalidForm({"name": f"Request {other} asks for this name already."})
            row = {
                "kind": kind, "name": name, "team_id": team_id, "asker": actor.name, "asked": asked, "settings": settings,
                "state": state, "version": 1, "created_ms": now_ms, "changed_ms": now_ms,
            }  # fmt: skip
            made = connection.execute(insert(requests).values(**row).returning(requests.c.id)).scalar_one()
            self._event(connection, made, actor, state, "")
            self._log.record(connection, actor, f"ask for {kind}", f"request {made}", None, {**asked, "team": team_id})
            return made

    def add_change(
        self, actor: Actor, team_id: int, name: str, reason: str, base: tuple[dict[str, Any], int], wanted: dict[str, Any],
        kind: str = TOPIC, more: Mapping[str, Any] | None = None,
    ) -> int:  # fmt: skip
        """Store a request for a change of settings, and return its id. Several may be open: the first that is applied wins.

        Args:
            base: the settings that the asker saw, and their version.
            more: what is asked for beside the settings.
        """
        now_ms, asked = self._clock.now_ms(), {"name": name, "description": reason, **(more or {})}
        row = {
            "kind": kind, "name": name, "team_id": team_id, "asker": actor.name, "asked": asked, "settings": wanted, "base": base[0],
            "base_version": base[1], "state": REQUESTED, "version": 1, "created_ms": now_ms, "changed_ms": now_ms,
        }  # fmt: skip
        with self._database.write() as connection:
            made = connection.execute(insert(requests).values(**row).returning(requests.c.id)).scalar_one()
            self._event(connection, made, actor, REQUESTED, reason)
            old = {each: base[0].get(each) for each in wanted}
            self._log.record(connection, actor, "ask for change", f"request {made}", old, {**wanted, **(more or {})})
            return made

    def get(self, request_id: int) -> UserRequest | None:
        with self._database.read() as connection:
            return _request(connection, request_id)

    def list(
        self, states: Sequence[str] = (), asker: str = "", before_id: int = 0, limit: int = 50
    ) -> list[UserRequest]:
        """The newest requests in these states (none: in any), newest first."""
        wanted = _ALL.order_by(requests.c.id.desc()).limit(limit)
        if states:
            wanted = wanted.where(requests.c.state.in_(states))
        if asker:
            wanted = wanted.where(requests.c.asker == asker)
        if before_id:
            wanted = wanted.where(requests.c.id < before_id)
        with self._database.read() as connection:
            return [UserRequest(**row._mapping) for row in connection.execute(wanted)]

    def count(self, state: str) -> int:
        """The number of requests in a state."""
        wanted = select(func.count()).select_from(requests).where(requests.c.state == state)
        with self._database.read() as connection:
            return connection.execute(wanted).scalar_one()

    def events(self, request_id: int) -> Sequence[Any]:
        """Rows with at_ms, who, kind and text, oldest first."""
        wanted = select(request_events).where(request_events.c.request_id == request_id).order_by(request_events.c.id)
        with self._database.read() as connection:
            return connection.execute(wanted).all()

    def comment(self, actor: Actor, request_id: int, text: str) -> None:
        """Add a comment. Raises InvalidForm."""
        if not 1 <= len(text) <= TEXT_CHARS_MAX:
            raise InvalidForm({"text": f"Write 1 to {TEXT_CHARS_MAX:,} characters."})
        with self._database.write() as connection:
            self._event(connection, request_id, actor, COMMENT, text)
            self._log.record(connection, actor, "comment", f"request {request_id}", None, {"text": text})

    def move(
        self, actor: Actor, request_id: int, seen: tuple[str, int], state: str, reason: str = "",
        check: Callable[[Connection], None] | None = None, **fields: Any,
    ) -> None:  # fmt: skip
        """Change the state of a request that is still as it was seen: (state, version).

        An applied one also gets its owner. Raises RequestConflict, with what happened meanwhile.

        Args:
            check: called first in the transaction; what it raises ends it.
        """
        with self._database.write() as connection:
            if check is not None:
                check(connection)
            now = {"state": state, "version": seen[1] + 1, "changed_ms": self._clock.now_ms(), "problem": "", **fields}
            same = (requests.c.id == request_id, requests.c.state == seen[0], requests.c.version == seen[1])
            if connection.execute(update(requests).where(*same).values(**now)).rowcount != 1:
                raise RequestConflict(_what_happened(connection, request_id))
            if state == APPROVED:
                _check_notes(connection, request_id)
            self._event(connection, request_id, actor, state, reason)
            if state == APPLIED:
                _own(connection, request_id)
            old, new = {"state": seen[0]}, {"state": state, **({"reason": reason} if reason else {}), **fields}
            self._log.record(connection, actor, state, f"request {request_id}", old, new)

    def note_problem(self, request_id: int, version: int, problem: str) -> None:
        """Record why an approved request is not applied yet."""
        same = (requests.c.id == request_id, requests.c.state == APPROVED, requests.c.version == version)
        with self._database.write() as connection:
            connection.execute(update(requests).where(*same).values(problem=problem))

    def owner_of(self, topic: str) -> tuple[int, str, str] | None:
        """The team's id and name, and the description of a topic; None: it has no owner."""
        return self._owner(owners, owners.c.topic == topic)

    def owning_teams(self, topics: Sequence[str]) -> dict[str, str]:
        """The names of the owning teams, by topic; without those that have none."""
        found: dict[str, str] = {}
        with self._database.read() as connection:
            for begin in range(0, len(topics), NAMES_PER_QUERY):
                part = topics[begin : begin + NAMES_PER_QUERY]
                rows = connection.execute(
                    select(owners.c.topic, teams.c.name).join(teams).where(owners.c.topic.in_(part))
                )
                found.update((row[0], row[1]) for row in rows)
        return found

    def disown(self, actor: Actor, topic: str) -> None:
        """Forget the owner of a topic that was deleted."""
        with self._database.write() as connection:
            if connection.execute(delete(owners).where(owners.c.topic == topic)).rowcount:
                self._log.record(connection, actor, "forget owner", f"topic {topic}", None, None)
            topic_notes.forget(connection, topic)

    def owner_of_group(self, group: str) -> tuple[int, str, str] | None:
        """As `owner_of`, of a group that was asked for."""
        return self._owner(group_owners, group_owners.c.name == group)

    def _owner(self, table: Table, same: ColumnElement[bool]) -> tuple[int, str, str] | None:
        wanted = select(teams.c.id, teams.c.name, table.c.description).join(table).where(same)
        with self._database.read() as connection:
            row = connection.execute(wanted).one_or_none()
        return None if row is None else (row[0], row[1], row[2])

    def topics_of(self, team_ids: Sequence[int]) -> Sequence[str]:
        """The names of all topics of these teams, by name."""
        wanted = select(owners.c.topic).where(owners.c.team_id.in_(team_ids)).order_by(owners.c.topic)
        with self._database.read() as connection:
            return connection.execute(wanted).scalars().all()

    def groups_of(self, team_ids: Sequence[int]) -> Sequence[str]:
        """The names of all groups of these teams, by name."""
        wanted = select(group_owners.c.name).where(group_owners.c.team_id.in_(team_ids)).order_by(group_owners.c.name)
        with self._database.read() as connection:
            return connection.execute(wanted).scalars().all()

    def _event(self, connection: Connection, request_id: int, actor: Actor, kind: str, text: str) -> None:
        row = {"request_id": request_id, "at_ms": self._clock.now_ms(), "who": actor.name, "kind": kind, "text": text}
        connection.execute(insert(request_events).values(**row))
        found = _request(connection, request_id)
        if self.on_event is not None and found is not None:
            self.on_event(connection, found, actor, kind, text)


_ALL = select(requests, teams.c.name.label("team")).join(teams)


def _request(connection: Connection, request_id: int) -> UserRequest | None:
    row = connection.execute(_ALL.where(requests.c.id == request_id)).one_or_none()
    return None if row is None else UserRequest(**row._mapping)


def _what_happened(connection: Connection, request_id: int) -> str:
    events = request_events
    wanted = select(events.c.who, events.c.kind).where(events.c.request_id == request_id, events.c.kind != COMMENT)
    last = connection.execute(wanted.order_by(events.c.id.desc()).limit(1)).one_or_none()
    if last is None:
        return f"There is no request {request_id}."
    return f"Nothing was changed: {last.who} was faster, the request is {last.kind} now."


def _check_notes(connection: Connection, request_id: int) -> None:
    found = _request(connection, request_id)
    assert found is not None
    if found.kind == TOPIC:
        topic_notes.check_base(connection, request_id, found.name, found.asked)


def _own(connection: Connection, request_id: int) -> None:
    found = _request(connection, request_id)
    assert found is not None
    if found.kind == TOPIC:
        topic_notes.note_applied(connection, found.name, found.asked, found.base_version is None)
    if found.base_version is not None:
        return  # a change: it has its owner
    table, name = (owners, owners.c.topic) if found.kind == TOPIC else (group_owners, group_owners.c.name)
    row = {"team_id": found.team_id, "description": found.asked["description"]}
    if connection.execute(update(table).where(name == found.name).values(**row)).rowcount == 0:
        connection.execute(insert(table).values({name: found.name, **row}))

"""Channels, and the queue of notices to them: written in the transaction of what they tell, sent afterwards.

So none is lost when the console is killed; one whose answer was lost may come twice, with the same number.
"""

import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from common.clock import Clock
from console.database.action_log import ActionLog, Actor
from console.database.console_database import ConsoleDatabase
from console.database.schema import channels, notices
from console.errors import InvalidForm

WAITING, SENT, FAILED = "waiting", "sent", "failed"
WAITING_MAX = 500
"""Per channel; further notices are not stored while so many wait."""
KEPT_MS = 7 * 86_400_000
CLAIM_MS = 60_000
DELAYS_MS = (10_000, 30_000, 120_000, 600_000, 1_800_000, 7_200_000)
CHANNELS_MAX, NAME_CHARS_MAX = 50, 64
ALERT, REQUEST, TEST = "alert.", "request.", "test"


class NoticeChannel(NamedTuple):
    """A receiver of notices: a webhook, whose URL is `target` and whose key for signatures is `secret`, or a mail address."""

    id: int
    name: str
    kind: str
    target: str
    secret: str
    of_alerts: bool
    of_requests: bool
    is_on: bool


class Notice(NamedTuple):
    """A notice that is due."""

    id: int
    channel: NoticeChannel
    event: str
    title: str
    body: dict[str, Any]
    attempts: int
    created_ms: int


class NoticeQueue:
    def __init__(self, database: ConsoleDatabase, log: ActionLog, clock: Clock) -> None:
        self._database, self._log, self._clock = database, log, clock

    def channels(self) -> list[NoticeChannel]:
        """All channels by name."""
        with self._database.read() as connection:
            return [NoticeChannel(*row) for row in connection.execute(select(channels).order_by(channels.c.name))]

    def add_channel(
        self, actor: Actor, name: str, kind: str, target: str, of_alerts: bool, of_requests: bool
    ) -> NoticeChannel:
        """A new channel with a new secret. The target was checked. Raises InvalidForm."""
        if not 1 <= len(name) <= NAME_CHARS_MAX:
            raise InvalidForm({"name": f"Use 1 to {NAME_CHARS_MAX} characters."})
        row = {"name": name, "kind": kind, "target": target, "of_alerts": of_alerts, "of_requests": of_requests}
        try:
            with self._database.write() as connection:
                if connection.execute(select(func.count()).select_from(channels)).scalar_one() >= CHANNELS_MAX:
                    raise InvalidForm({"": f"There are {CHANNELS_MAX} channels, which is the most: remove one."})
                new = insert(channels).values(**row, secret=secrets.token_urlsafe(32), is_on=True).returning(channels)
                made = NoticeChannel(*connection.execute(new).one())
                self._log.record(connection, actor, "add channel", f"channel {name}", None, row)
                return made
        except IntegrityError as error:
            raise InvalidForm({"name": f"{name} exists already."}) from error

    def remove_channel(self, actor: Actor, channel_id: int) -> None:
        """Remove a channel with its notices."""
        with self._database.write() as connection:
            row = connection.execute(select(channels).where(channels.c.id == channel_id)).one_or_none()
            if row is not None:
                connection.execute(delete(channels).where(channels.c.id == channel_id))
                old = {"kind": row.kind, "target": row.target}
                self._log.record(connection, actor, "remove channel", f"channel {row.name}", old, None)

    def switch_channel(self, actor: Actor, channel_id: int, is_on: bool) -> None:
        """Switch a channel on or off. Its notices wait meanwhile."""
        with self._database.write() as connection:
            row = connection.execute(select(channels).where(channels.c.id == channel_id)).one_or_none()
            if row is not None and row.is_on != is_on:
                connection.execute(update(channels).where(channels.c.id == channel_id).values(is_on=is_on))
                subject, old = f"channel {row.name}", {"on": row.is_on}
                self._log.record(connection, actor, "switch channel", subject, old, {"on": is_on})

    def put(self, connection: Connection, event: str, title: str, body: dict[str, Any]) -> None:
        """Queue a notice for each channel that wants the event, in the caller's transaction."""
        wants = channels.c.of_alerts if event.startswith(ALERT) else channels.c.of_requests
        for channel_id in connection.execute(select(channels.c.id).where(channels.c.is_on, wants)).scalars().all():
            self._put_one(connection, channel_id, event, title, body)

    def put_test(self, actor: Actor, channel_id: int) -> None:
        """Queue a test notice for one channel."""
        with self._database.write() as connection:
            if connection.execute(select(channels.c.id).where(channels.c.id == channel_id)).one_or_none() is None:
                raise InvalidForm({"": "There is no such channel."})
            body = {"text": f"{actor.name} tests this channel."}
            self._put_one(connection, channel_id, TEST, "Test from the Penstock console", body)
            self._log.record(connection, actor, "test channel", f"channel {channel_id}")

    def _put_one(self, connection: Connection, channel_id: int, event: str, title: str, body: dict[str, Any]) -> None:
        own = (notices.c.channel_id == channel_id, notices.c.state == WAITING)
        if connection.execute(select(func.count()).select_from(notices).where(*own)).scalar_one() >= WAITING_MAX:
            return
        now_ms = self._clock.now_ms()
        row = {"channel_id": channel_id, "event": event, "title": title, "body": body, "state": WAITING}
        connection.execute(insert(notices).values(**row, attempts=0, due_ms=now_ms, created_ms=now_ms, problem=""))

    def claim(self) -> Notice | None:
        """The next notice that is due, which no other thread or console gets for a minute."""
        now_ms = self._clock.now_ms()
        due = select(notices, channels).join(channels, channels.c.id == notices.c.channel_id)
        due = due.where(notices.c.state == WAITING, notices.c.due_ms <= now_ms, channels.c.is_on)
        with self._database.write() as connection:
            row = connection.execute(due.order_by(notices.c.due_ms, notices.c.id).limit(1)).one_or_none()
            if row is None:
                return None
            same = (notices.c.id == row[0], notices.c.due_ms == row.due_ms)
            if connection.execute(update(notices).where(*same).values(due_ms=now_ms + CLAIM_MS)).rowcount != 1:
                return None
        channel = NoticeChannel(*row[len(notices.c) :])
        return Notice(row[0], channel, row.event, row.title, row.body, row.attempts, row.created_ms)

    def sent(self, notice: Notice) -> None:
        """The notice has arrived."""
        with self._database.write() as connection:
            done = {"state": SENT, "attempts": notice.attempts + 1, "problem": ""}
            connection.execute(update(notices).where(notices.c.id == notice.id).values(**done))
            old = (notices.c.created_ms < self._clock.now_ms() - KEPT_MS, notices.c.state != WAITING)
            connection.execute(delete(notices).where(*old))

    def failed(self, notice: Notice, problem: str, is_final: bool = False) -> None:
        """The attempt failed: the next one comes later, or none where this was the last."""
        attempts = notice.attempts + 1
        is_final = is_final or attempts > len(DELAYS_MS)
        now: dict[str, Any] = {"attempts": attempts, "problem": problem[:500], "state": FAILED if is_final else WAITING}
        if not is_final:
            now["due_ms"] = self._clock.now_ms() + DELAYS_MS[attempts - 1]
        with self._database.write() as connection:
            connection.execute(update(notices).where(notices.c.id == notice.id).values(**now))

    def latest(self, limit: int = 30) -> list[dict[str, Any]]:
        """The newest notices with their channels' names and states."""
        wanted = select(notices, channels.c.name.label("channel")).join(channels).order_by(notices.c.id.desc())
        with self._database.read() as connection:
            return [dict(row._mapping) for row in connection.execute(wanted.limit(limit))]


TellRequest = Callable[[Connection, int, Actor, str, str], None]

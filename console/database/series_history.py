"""The bounded history of figures: points of 10 s for a day, points of 10 min for 30 days.

One row holds the points of one series in a chunk of time, so a row costs some 150 bytes:

| step | chunk | data | kept |
|---|---|---|---|
| 10 s | 5 min | 30 little-endian float32; NaN: not measured | 1 day |
| 10 min | 6 h | 36 pairs of float32: mean and largest value | 30 days |

A chunk in which a series is 0 throughout is not written: where it is missing and the engines answered (series `answers` of
`all`, which is always written), the value was 0. So 100,000 idle topics cost nothing. At most SERIES_MAX series are
written per chunk; with them the table has 2,000 × 288 + 2,000 × 120 rows, below 200 MB.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from console.database.console_database import ConsoleDatabase
from console.database.schema import points, series

FINE_S, FINE_CHUNK_S, FINE_KEPT_S = 10, 300, 86_400
COARSE_S, COARSE_CHUNK_S, COARSE_KEPT_S = 600, 21_600, 30 * 86_400
SERIES_MAX = 2_000
POINTS = FINE_CHUNK_S // FINE_S
_FINE = struct.Struct(f"<{POINTS}f")
_COARSE = struct.Struct(f"<{2 * (COARSE_CHUNK_S // COARSE_S)}f")
ALL, ANSWERS = "all", "answers"
NOTHING = math.nan


class SeriesKey(NamedTuple):
    """A series: of `all`, or of `topic:NAME`, `group:NAME`, `broker:NAME`; and the figure's name."""

    subject: str
    name: str


class SeriesPoint(NamedTuple):
    """The mean and the largest value of one step; NaN: not measured."""

    mean: float
    largest: float


Points = dict[int, SeriesPoint]
"""By the step's beginning in Unix seconds."""


class SeriesHistory:
    def __init__(self, database: ConsoleDatabase) -> None:
        self._database = database
        self._ids: dict[SeriesKey, int] = {}

    def write(self, begin_s: int, chunks: Mapping[SeriesKey, Sequence[float]]) -> None:
        """Store the points of one chunk of 5 minutes, once. A chunk that another process has written stays as it is."""
        with self._database.write() as connection:
            rows = [
                {"step_s": FINE_S, "series_id": self._id(connection, key), "begin_s": begin_s, "data": _FINE.pack(*values)}
                for key, values in chunks.items()
            ]  # fmt: skip
            same = select(points.c.series_id).where(points.c.step_s == FINE_S, points.c.begin_s == begin_s)
            written = set(connection.execute(same).scalars())
            if rows := [row for row in rows if row["series_id"] not in written]:
                connection.execute(insert(points), rows)

    def roll_up(self, now_s: int) -> None:
        """Make points of 10 minutes of each 6 hours that have ended, and delete what is older than it is kept."""
        end_s = now_s - now_s % COARSE_CHUNK_S
        for begin_s in range(end_s - FINE_KEPT_S + COARSE_CHUNK_S, end_s, COARSE_CHUNK_S):
            with self._database.write() as connection:
                self._roll_up_one(connection, begin_s)
        with self._database.write() as connection:
            for step_s, kept_s in ((FINE_S, FINE_KEPT_S), (COARSE_S, COARSE_KEPT_S)):
                old = delete(points).where(points.c.step_s == step_s, points.c.begin_s < now_s - kept_s)
                connection.execute(old)
            if connection.execute(delete(series).where(~series.c.id.in_(select(points.c.series_id)))).rowcount:
                self._ids.clear()

    def _roll_up_one(self, connection: Connection, begin_s: int) -> None:
        done = select(points.c.series_id).where(points.c.step_s == COARSE_S, points.c.begin_s == begin_s).limit(1)
        if connection.execute(done).one_or_none() is not None:
            return
        within = (points.c.begin_s >= begin_s, points.c.begin_s < begin_s + COARSE_CHUNK_S)
        found = connection.execute(
            select(points.c.series_id, points.c.begin_s, points.c.data)
            .where(points.c.step_s == FINE_S, *within)
            .order_by(points.c.series_id)
        )
        fine: dict[int, Points] = {}
        for series_id, at_s, data in found:
            fine.setdefault(series_id, {}).update(_unpacked_fine(at_s, data))
        rows = []
        for series_id, own in fine.items():
            values = [value for each in _coarse(own, begin_s) for value in each]
            rows.append({"step_s": COARSE_S, "series_id": series_id, "begin_s": begin_s, "data": _COARSE.pack(*values)})
        if rows:
            connection.execute(insert(points), rows)

    def read(self, keys: Sequence[SeriesKey], begin_s: int, end_s: int) -> dict[SeriesKey, Points]:
        """The stored points of each series, as they are stored: steps of 10 s where the range begins within a day of its
        end, else of 10 minutes. A step that is not there was 0 or not measured, see `known`.
        """
        is_fine = end_s - begin_s <= FINE_KEPT_S
        found: dict[SeriesKey, Points] = {key: {} for key in keys}
        with self._database.read() as connection:
            ids = {each: key for key in keys if (each := self._known_id(connection, key)) is not None}
            coarse_end = begin_s
            if not is_fine:
                coarse_end = _rolled_up(connection, begin_s)
                for series_id, at_s, data in _rows(connection, COARSE_S, ids, begin_s - COARSE_CHUNK_S, coarse_end):
                    found[ids[series_id]].update(_unpacked_coarse(at_s, data))
            fine: dict[int, Points] = {}
            for series_id, at_s, data in _rows(connection, FINE_S, ids, coarse_end - FINE_CHUNK_S, end_s):
                fine.setdefault(series_id, {}).update(_unpacked_fine(at_s, data))
        for series_id, own in fine.items():
            if is_fine:
                found[ids[series_id]].update(own)
            else:
                begins = range(coarse_end, end_s, COARSE_S)
                found[ids[series_id]].update(zip(begins, _coarse(own, coarse_end, len(begins)), strict=True))
        return {key: {at: each for at, each in own.items() if begin_s <= at < end_s} for key, own in found.items()}

    def names(self, subject: str) -> list[str]:
        """The names of the series of a subject."""
        with self._database.read() as connection:
            return list(connection.execute(select(series.c.name).where(series.c.subject == subject)).scalars())

    def subjects(self, name: str, limit: int = 50) -> list[str]:
        """Subjects that have a series of this name, by name."""
        wanted = select(series.c.subject).where(series.c.name == name).order_by(series.c.subject).limit(limit)
        with self._database.read() as connection:
            return list(connection.execute(wanted).scalars())

    def _known_id(self, connection: Connection, key: SeriesKey) -> int | None:
        if key not in self._ids:
            own = (series.c.subject == key.subject, series.c.name == key.name)
            found = connection.execute(select(series.c.id).where(*own)).scalar_one_or_none()
            if found is None:
                return None
            self._ids[key] = found
        return self._ids[key]

    def _id(self, connection: Connection, key: SeriesKey) -> int:
        found = self._known_id(connection, key)
        if found is not None:
            return found
        try:
            with connection.begin_nested():
                new = insert(series).values(subject=key.subject, name=key.name).returning(series.c.id)
                return connection.execute(new).scalar_one()
        except IntegrityError:  # another process was faster
            found = self._known_id(connection, key)
            assert found is not None
            return found


def _rolled_up(connection: Connection, begin_s: int) -> int:
    """The time from which there are fine points only."""
    last = connection.execute(select(func.max(points.c.begin_s)).where(points.c.step_s == COARSE_S)).scalar_one()
    return max(begin_s, (last or 0) + COARSE_CHUNK_S)


def _rows(
    connection: Connection, step_s: int, ids: Mapping[int, SeriesKey], begin_s: int, end_s: int
) -> list[tuple[int, int, bytes]]:
    wanted = select(points.c.series_id, points.c.begin_s, points.c.data).where(
        points.c.step_s == step_s, points.c.series_id.in_(list(ids)), points.c.begin_s > begin_s, points.c.begin_s < end_s
    )  # fmt: skip
    return [(row[0], row[1], row[2]) for row in connection.execute(wanted)]


def _unpacked_fine(begin_s: int, data: bytes) -> Points:
    return {begin_s + at * FINE_S: SeriesPoint(value, value) for at, value in enumerate(_FINE.unpack(data))}


def _unpacked_coarse(begin_s: int, data: bytes) -> Points:
    values = _COARSE.unpack(data)
    return {begin_s + at * COARSE_S: SeriesPoint(*values[2 * at : 2 * at + 2]) for at in range(len(values) // 2)}


def _coarse(fine: Points, begin_s: int, count: int = COARSE_CHUNK_S // COARSE_S) -> list[SeriesPoint]:
    """Points of 10 minutes. A chunk that is not there counts as 0 where the series has another one in the step."""
    made = []
    for at in range(begin_s, begin_s + count * COARSE_S, COARSE_S):
        own = [fine.get(each) for each in range(at, at + COARSE_S, FINE_S)]
        values = [0.0 if each is None else each.mean for each in own if each is None or not math.isnan(each.mean)]
        is_there = any(each is not None for each in own) and values
        made.append(SeriesPoint(sum(values) / len(values), max(values)) if is_there else SeriesPoint(NOTHING, NOTHING))
    return made

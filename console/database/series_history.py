"""The bounded history of figures: points of 10 s for a day, points of 10 min for 30 days.

One row holds the points of one series in a chunk of time, so a row costs some 150 bytes:

| step | chunk | data | kept |
|---|---|---|---|
| 10 s | 5 min | 30 little-endian float32; NaN: not measured | 1 day |
| 10 min | 6 h | 36 pairs of float32: mean and largest value | 30 days |
| 1 min | 6 h | of reports of the pipeline, see reported_minutes.py | 30 days |

A chunk in which a series is 0 throughout is not written: where it is missing and the engines answered (series `answers` of
`all`, which is always written), the value was 0. So 100,000 idle topics cost nothing. At most SERIES_MAX series are
written per chunk; with them the table has 2,000 × 288 + 2,000 × 120 rows, below 200 MB.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, exists, func, insert, select
from sqlalchemy.exc import IntegrityError

from console.database.console_database import ConsoleDatabase
from console.database.schema import points, series

FINE_S, FINE_CHUNK_S, FINE_KEPT_S = 10, 300, 86_400
COARSE_S, COARSE_CHUNK_S, COARSE_KEPT_S = 600, 21_600, 30 * 86_400
REPORTED_S = 60
KEPT_S = {FINE_S: FINE_KEPT_S, COARSE_S: COARSE_KEPT_S, REPORTED_S: COARSE_KEPT_S}
SERIES_MAX = 2_000
SERIES_PER_READ = 100
"""Series whose points of 6 hours are in memory at a time: some 7 MB."""
POINTS = FINE_CHUNK_S // FINE_S
_FINE = struct.Struct(f"<{POINTS}f")
_COARSE = struct.Struct(f"<{2 * (COARSE_CHUNK_S // COARSE_S)}f")
ALL, ANSWERS = "all", "answers"
NOTHING = math.nan


class SeriesKey(NamedTuple):
    """A series: of `all`, or of `topic:NAME`, `group:NAME`, `broker:NAME`, `sender:TOPIC/APPLICATION`; and the figure's name."""

    subject: str
    name: str


Steps = list[float | None]


class SeriesSteps(NamedTuple):
    """A series over a range, one value per step: the mean and the largest value. None: there is no row; NaN: not measured.

    Lists, not a dict of points: a page of 30 days has some 100,000 of them.
    """

    means: Steps
    largest: Steps


class SeriesHistory:
    def __init__(self, database: ConsoleDatabase) -> None:
        self.database = database
        self._ids: dict[SeriesKey, int] = {}

    def write(self, begin_s: int, chunks: Mapping[SeriesKey, Sequence[float]]) -> None:
        """Store the points of one chunk of 5 minutes, once. A chunk that another process has written stays as it is."""
        with self.database.write() as connection:
            rows = [
                {"step_s": FINE_S, "series_id": self.id_of(connection, key), "begin_s": begin_s, "data": _FINE.pack(*values)}
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
            self._roll_up_one(begin_s)
        with self.database.write() as connection:
            for step_s, kept_s in KEPT_S.items():
                old = delete(points).where(points.c.step_s == step_s, points.c.begin_s < now_s - kept_s)
                connection.execute(old)
            own = (points.c.series_id == series.c.id, points.c.step_s.in_(KEPT_S))
            if connection.execute(delete(series).where(~exists().where(*own))).rowcount:
                self._ids.clear()

    def _roll_up_one(self, begin_s: int) -> None:
        """The points are computed before the write: 2,000 series take seconds, in which no one else could write."""
        done = select(points.c.series_id).where(points.c.step_s == COARSE_S, points.c.begin_s == begin_s).limit(1)
        within = (points.c.step_s == FINE_S, points.c.begin_s >= begin_s, points.c.begin_s < begin_s + COARSE_CHUNK_S)
        rows = []
        with self.database.read() as connection:
            if connection.execute(done).one_or_none() is not None:
                return
            ids = list(connection.execute(select(points.c.series_id).where(*within).distinct()).scalars())
            for at in range(0, len(ids), SERIES_PER_READ):
                for series_id, own in _fine_steps(connection, within, ids[at : at + SERIES_PER_READ], begin_s).items():
                    values = [value for pair in zip(*_coarse(own), strict=True) for value in pair]
                    data = _COARSE.pack(*values)
                    rows.append({"step_s": COARSE_S, "series_id": series_id, "begin_s": begin_s, "data": data})
        with self.database.write() as connection:
            if rows and connection.execute(done).one_or_none() is None:  # no other console was faster
                connection.execute(insert(points), rows)

    def read(self, keys: Sequence[SeriesKey], begin_s: int, end_s: int, step_s: int) -> dict[SeriesKey, SeriesSteps]:
        """The stored points of each series from `begin_s` on, a multiple of the step: FINE_S or COARSE_S.

        A step that is None was 0 or not measured, see `HistorySampler.read`.
        """
        with self.database.read() as connection:
            ids = {each: key for key in keys if (each := self.known_id(connection, key)) is not None}
            read = self._read_fine if step_s == FINE_S else self._read_coarse
            found = read(connection, ids, begin_s, end_s)
        count = len(range(begin_s, end_s, step_s))
        return {key: found.get(key) or SeriesSteps([None] * count, [None] * count) for key in keys}

    def _read_fine(
        self, connection: Connection, ids: Mapping[int, SeriesKey], begin_s: int, end_s: int
    ) -> dict[SeriesKey, SeriesSteps]:
        found: dict[SeriesKey, SeriesSteps] = {}
        for series_id, at_s, data in _rows(connection, FINE_S, ids, begin_s - FINE_CHUNK_S, end_s):
            if ids[series_id] not in found:
                steps: Steps = [None] * len(range(begin_s, end_s, FINE_S))
                found[ids[series_id]] = SeriesSteps(steps, steps)
            _place(found[ids[series_id]].means, (at_s - begin_s) // FINE_S, _FINE.unpack(data))
        return found

    def _read_coarse(
        self, connection: Connection, ids: Mapping[int, SeriesKey], begin_s: int, end_s: int
    ) -> dict[SeriesKey, SeriesSteps]:
        """Points of 10 minutes, and after the last of them means of the points of 10 s."""
        count = len(range(begin_s, end_s, COARSE_S))
        found = {key: SeriesSteps([None] * count, [None] * count) for key in ids.values()}
        fine_from = _rolled_up(connection, begin_s)
        for series_id, at_s, data in _rows(connection, COARSE_S, ids, begin_s - COARSE_CHUNK_S, fine_from):
            values = _COARSE.unpack(data)
            at, steps = (at_s - begin_s) // COARSE_S, found[ids[series_id]]
            _place(steps.means, at, values[::2])
            _place(steps.largest, at, values[1::2])
        rest = len(range(fine_from, end_s, COARSE_S)) * (COARSE_S // FINE_S)
        fine: dict[int, Steps] = {}
        for series_id, at_s, data in _rows(connection, FINE_S, ids, fine_from - FINE_CHUNK_S, end_s):
            _place(fine.setdefault(series_id, [None] * rest), (at_s - fine_from) // FINE_S, _FINE.unpack(data))
        for series_id, own in fine.items():
            at, steps, (means, largest) = (fine_from - begin_s) // COARSE_S, found[ids[series_id]], _coarse(own)
            _place(steps.means, at, means)
            _place(steps.largest, at, largest)
        return found

    def names(self, subject: str) -> list[str]:
        """The names of the series of a subject."""
        with self.database.read() as connection:
            return list(connection.execute(select(series.c.name).where(series.c.subject == subject)).scalars())

    def keys(self, subject_prefix: str) -> list[SeriesKey]:
        """All series of subjects that begin so."""
        wanted = select(series.c.subject, series.c.name).where(
            series.c.subject.startswith(subject_prefix, autoescape=True)
        )
        with self.database.read() as connection:
            return [SeriesKey(*row) for row in connection.execute(wanted)]

    def subjects(self, name: str, limit: int = 50) -> list[str]:
        """Subjects that have a series of this name, by name."""
        wanted = select(series.c.subject).where(series.c.name == name).order_by(series.c.subject).limit(limit)
        with self.database.read() as connection:
            return list(connection.execute(wanted).scalars())

    def known_id(self, connection: Connection, key: SeriesKey) -> int | None:
        """The number of a series; None: it has none."""
        if key not in self._ids:
            own = (series.c.subject == key.subject, series.c.name == key.name)
            found = connection.execute(select(series.c.id).where(*own)).scalar_one_or_none()
            if found is None:
                return None
            self._ids[key] = found
        return self._ids[key]

    def id_of(self, connection: Connection, key: SeriesKey) -> int:
        """The number of a series, which gets one if it has none."""
        found = self.known_id(connection, key)
        if found is not None:
            return found
        try:
            with connection.begin_nested():
                new = insert(series).values(subject=key.subject, name=key.name).returning(series.c.id)
                return connection.execute(new).scalar_one()
        except IntegrityError:  # another process was faster
            found = self.known_id(connection, key)
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


def _fine_steps(
    connection: Connection, within: Sequence[ColumnElement[bool]], ids: Sequence[int], begin_s: int
) -> dict[int, Steps]:
    """The points of 10 s of these series in a chunk of 6 hours."""
    fine: dict[int, Steps] = {}
    wanted = select(points.c.series_id, points.c.begin_s, points.c.data).where(*within, points.c.series_id.in_(ids))
    for series_id, at_s, data in connection.execute(wanted):
        own = fine.setdefault(series_id, [None] * (COARSE_CHUNK_S // FINE_S))
        _place(own, (at_s - begin_s) // FINE_S, _FINE.unpack(data))
    return fine


def _place(steps: Steps, at: int, values: Sequence[float | None]) -> None:
    """Put values into the steps from index `at` on; what is outside is left out."""
    first, last = max(0, -at), min(len(values), len(steps) - at)
    if first < last:
        steps[at + first : at + last] = values[first:last]


def _coarse(fine: Steps) -> SeriesSteps:
    """Points of 10 minutes. A chunk that is not there counts as 0 where the series has another one in the step."""
    made = SeriesSteps([], [])
    for at in range(0, len(fine), COARSE_S // FINE_S):
        there = [value for value in fine[at : at + COARSE_S // FINE_S] if value is not None]
        zeros = COARSE_S // FINE_S - len(there)
        good = [value for value in there if value == value]  # not NaN
        is_there = bool(there) and bool(good or zeros)
        made.means.append(sum(good) / (len(good) + zeros) if is_there else NOTHING)
        made.largest.append(max([*good, 0.0] if zeros else good) if is_there else NOTHING)
    return made

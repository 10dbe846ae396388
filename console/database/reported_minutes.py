"""Figures per minute that reports of the pipeline have measured, in the table of the history.

One row holds the minutes of one figure of a topic in 6 hours: 360 little-endian float32, NaN where no report has the
minute. Kept for 30 days, of at most TOPICS_MAX topics: some 200 MB at most.

A minute that two reports have is that with more messages: a report that began or ended within it has less of it, and
one that came after the retention, too. So it does not matter how often, or in which order, reports come.
"""

import math
import struct
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, func, insert, select, update

from console.database.schema import points, series
from console.database.series_history import REPORTED_S, SeriesHistory, SeriesKey, SeriesSteps, Steps
from console.errors import InvalidForm

CHUNK_S = 21_600
MINUTES = CHUNK_S // REPORTED_S
TOPICS_MAX = 300
MESSAGES = "stored"
REPORTED = (MESSAGES, "stored_bytes", "sent_p50", "sent_p99")
"""The figures: rates per second, and times in seconds."""
_CHUNK = struct.Struct(f"<{MINUTES}f")


class ReportedMinutes:
    def __init__(self, history: SeriesHistory) -> None:
        self._history, self._database = history, history.database

    def add(self, topic: str, begin_s: int, figures: Mapping[str, Sequence[float]]) -> int:
        """Store the minutes of 6 hours from `begin_s` on that are new or have more messages; returns their number.

        Args:
            figures: of REPORTED, MINUTES values each; NaN where there is none.
        Raises:
            InvalidForm: there are figures of too many other topics.
        """
        subject = f"topic:{topic}"
        given = {name: _CHUNK.unpack(_CHUNK.pack(*figures[name])) for name in REPORTED}
        with self._database.write() as connection:
            if _other_topics(connection, subject) >= TOPICS_MAX:
                raise InvalidForm({topic: f"There are reports of {TOPICS_MAX} other topics, which is the most."})
            ids = {name: self._history.id_of(connection, SeriesKey(subject, name)) for name in REPORTED}
            stored = {name: _stored(connection, number, begin_s) for name, number in ids.items()}
            taken = [
                at for at, (new, old) in enumerate(zip(given[MESSAGES], stored[MESSAGES] or NOTHING, strict=True))
                if new > old or (math.isnan(old) and not math.isnan(new))
            ]  # fmt: skip
            for name, number in ids.items() if taken else ():
                values = list(stored[name] or NOTHING)
                for at in taken:
                    values[at] = given[name][at]
                _put(connection, number, begin_s, _CHUNK.pack(*values), stored[name] is None)
        return len(taken)

    def read(self, keys: Sequence[SeriesKey], begin_s: int, end_s: int, step_s: int) -> dict[SeriesKey, SeriesSteps]:
        """The minutes of each series by step from `begin_s` on, as those of `SeriesHistory.read`."""
        found = {}
        with self._database.read() as connection:
            for key in keys:
                number = self._history.known_id(connection, key)
                minutes = {} if number is None else _minutes(connection, number, begin_s, end_s)
                found[key] = _steps(minutes, begin_s, end_s, step_s)
        return found


NOTHING = (math.nan,) * MINUTES


def _other_topics(connection: Connection, subject: str) -> int:
    """The number of other topics with figures of reports."""
    others = (series.c.name == MESSAGES, series.c.subject != subject)
    return connection.execute(select(func.count()).select_from(series).where(*others)).scalar_one()


def _stored(connection: Connection, number: int, begin_s: int) -> Sequence[float] | None:
    own = (points.c.step_s == REPORTED_S, points.c.series_id == number, points.c.begin_s == begin_s)
    data = connection.execute(select(points.c.data).where(*own).with_for_update()).scalar_one_or_none()
    return None if data is None else _CHUNK.unpack(data)


def _put(connection: Connection, number: int, begin_s: int, data: bytes, is_new: bool) -> None:
    own = {"step_s": REPORTED_S, "series_id": number, "begin_s": begin_s}
    if is_new:
        connection.execute(insert(points), {**own, "data": data})
        return
    same = (points.c[name] == value for name, value in own.items())
    connection.execute(update(points).where(*same).values(data=data))


def _minutes(connection: Connection, number: int, begin_s: int, end_s: int) -> dict[int, float]:
    """The known values by the time of their minute."""
    within = (points.c.begin_s > begin_s - CHUNK_S, points.c.begin_s < end_s)
    wanted = select(points.c.begin_s, points.c.data).where(
        points.c.step_s == REPORTED_S, points.c.series_id == number, *within
    )
    return {
        at_s + REPORTED_S * number: value
        for at_s, data in connection.execute(wanted)
        for number, value in enumerate(_CHUNK.unpack(data))
        if not math.isnan(value)
    }


def _steps(minutes: Mapping[int, float], begin_s: int, end_s: int, step_s: int) -> SeriesSteps:
    means: Steps = []
    largest: Steps = []
    for at_s in range(begin_s, end_s, step_s):
        own = [minutes[each] for each in range(at_s - at_s % REPORTED_S, at_s + step_s, REPORTED_S) if each in minutes]
        means.append(sum(own) / len(own) if own else None)
        largest.append(max(own) if own else None)
    return SeriesSteps(means, largest)

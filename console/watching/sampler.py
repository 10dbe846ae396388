"""The sampler: looks every 10 seconds, keeps the running chunk in memory, and writes each chunk of 5 minutes once.

A console that is killed loses the points of the running chunk.
"""

import logging
import math
import threading
from collections.abc import Mapping, Sequence

from common.limited_log import LimitedLog
from console.database.reported_minutes import REPORTED, ReportedMinutes
from console.database.series_history import (
    ALL,
    ANSWERS,
    COARSE_S,
    FINE_CHUNK_S,
    FINE_KEPT_S,
    FINE_S,
    NOTHING,
    POINTS,
    SERIES_MAX,
    SeriesHistory,
    SeriesKey,
    SeriesSteps,
    Steps,
)
from console.errors import DatabaseUnavailable
from console.watching.engine_figures import EngineFigures
from console.watching.figures import Sample
from console.watching.metrics_pages import MetricsPages

limited = LimitedLog(logging.getLogger("penstock.console"))
ANSWERED = SeriesKey(ALL, ANSWERS)
ONLY_MEASURED = ("send_p50", "send_p99", "disk_free", *REPORTED)
"""Figures that are not 0 where there is no point."""
RANK = {ALL: 0, "broker": 1, "group": 2, "topic": 3}


class HistorySampler:
    """One thread samples; all threads read."""

    def __init__(self, history: SeriesHistory, engines: EngineFigures, pages: MetricsPages) -> None:
        self._history, self._engines, self.pages = history, engines, pages
        self.reported = ReportedMinutes(history)
        self._lock = threading.Lock()
        self._begin_s = 0
        self._chunk: dict[SeriesKey, list[float]] = {}
        self.dropped = 0
        """Series that were not written with the last chunk, because there were too many."""
        self.latest: Sample = {}

    def is_fed(self) -> bool:
        """Whether there are pages of metrics, from which the installation's charts are made."""
        return self.pages.is_configured

    def look(self, now_s: float) -> Sample:
        """Take one sample of everything. It is kept under the step that `now_s` is in."""
        found = {**self.pages.sample(now_s), **self._engines.sample(now_s)}
        self.add(now_s, found)
        return found

    def add(self, now_s: float, sample: Sample) -> None:
        """Keep a sample; writes the chunk before it, when that has ended."""
        begin_s = int(now_s) - int(now_s) % FINE_CHUNK_S
        if begin_s != self._begin_s:
            self.flush()
        with self._lock:
            self._begin_s = begin_s
            self.latest = sample
            at = (int(now_s) - begin_s) // FINE_S
            for key, value in sample.items():
                self._chunk.setdefault(key, [NOTHING] * POINTS)[at] = value

    def running(self) -> list[SeriesKey]:
        """The series of the running chunk."""
        with self._lock:
            return list(self._chunk)

    def flush(self) -> None:
        """Write the running chunk. While the database is away it is lost, and the log says so."""
        with self._lock:
            chunk, begin_s, self._chunk = self._chunk, self._begin_s, {}
        if not chunk:
            return
        answers = chunk.get(ANSWERED, [NOTHING] * POINTS)
        for key, values in chunk.items():
            if key.subject != ALL and key.name not in ONLY_MEASURED:
                # A step at which this one was not looked at, though the engines answered, counts as nothing moved.
                for at, value in enumerate(values):
                    if math.isnan(value) and answers[at] == 1.0:
                        values[at] = 0.0
        wanted = {key: values for key, values in chunk.items() if self._is_worth_a_row(key, values)}
        kept = sorted(wanted, key=lambda key: (RANK.get(key.subject.partition(":")[0], 9), -_size(wanted[key])))
        self.dropped = max(0, len(kept) - SERIES_MAX)
        if self.dropped:
            limited.warning("history: %d series of a chunk are not kept: at most %d are", self.dropped, SERIES_MAX)
        try:
            self._history.write(begin_s, {key: wanted[key] for key in kept[:SERIES_MAX]})
            if begin_s % COARSE_S == 0:
                self._history.roll_up(begin_s + FINE_CHUNK_S)
        except DatabaseUnavailable as error:
            limited.warning("history: the points of 5 minutes are lost: %s", error)

    def _is_worth_a_row(self, key: SeriesKey, values: Sequence[float]) -> bool:
        return key == ANSWERED or any(value != 0 and not math.isnan(value) for value in values)

    def read(self, keys: Sequence[SeriesKey], begin_s: int, end_s: int) -> tuple[int, dict[SeriesKey, SeriesSteps]]:
        """The step in seconds, and each series by step from the first whole step on.

        A step without a point was 0 where the engines answered; else it is NaN.
        """
        step_s = FINE_S if end_s - begin_s <= FINE_KEPT_S else COARSE_S
        begin_s -= begin_s % step_s
        reported = [key for key in keys if key.name in REPORTED]
        stored = self._history.read(
            [*(key for key in keys if key.name not in REPORTED), ANSWERED], begin_s, end_s, step_s
        )
        if reported:
            stored |= self.reported.read(reported, begin_s, end_s, step_s)
        if step_s == FINE_S:
            self._add_running(stored, begin_s)
        answered = stored[ANSWERED].largest
        never: Steps = [None] * len(answered)
        found = {}
        for key in keys:
            zeros = never if key.name in ONLY_MEASURED else answered
            steps = stored[key]
            means = _whole(steps.means, zeros)
            found[key] = SeriesSteps(means, means if steps.largest is steps.means else _whole(steps.largest, zeros))
        return step_s, found

    def _add_running(self, stored: Mapping[SeriesKey, SeriesSteps], begin_s: int) -> None:
        """Add the points that are not written yet."""
        with self._lock:
            chunk_s, chunk = self._begin_s, {key: list(self._chunk[key]) for key in stored if key in self._chunk}
        for key, values in chunk.items():
            steps = stored[key]
            for at, value in enumerate(values, (chunk_s - begin_s) // FINE_S):
                if value == value and 0 <= at < len(steps.means):  # not NaN
                    steps.means[at] = steps.largest[at] = value


def _whole(steps: Steps, answered: Steps) -> Steps:
    """The steps with 0 where there is no row and the engines answered, and NaN where they did not."""
    return [
        value if value is not None else 0.0 if mark == 1.0 else NOTHING
        for value, mark in zip(steps, answered, strict=True)
    ]


def _size(values: Sequence[float]) -> float:
    return sum(abs(value) for value in values if not math.isnan(value))

"""Log lines on stderr, as text for people or as JSON for programs.

A line names its subject first: `topic=pay queue=3 epoch=7: truncated 4096→4010`. Pass the subject as
`extra={"about": {"topic": "pay", "queue": 3}}` and both forms show it, or write it into the message.

A line that can repeat is logged by `common.limited_log.LimitedLog`. The limit per place here is a net under it, also for
libraries: a process's log must not fill the disk whose fullness it reports.

Values may come from strangers, so control characters are shown as escapes: an event is one line, and a trace below it is
indented. No value can end its line and begin one that looks like another event.
"""

import json as _json
import logging
import os
import sys
import time
from collections.abc import Callable

from common.ops.uncaught import log_uncaught
from common.quoting import escaped
from common.unpatched import original

PLACE_LINES_MAX = 20
PLACE_INTERVAL_S = 60.0
PLACES_MAX = 1000


class PlaceLimit(logging.Filter):
    """Passes at most PLACE_LINES_MAX lines per PLACE_INTERVAL_S from each place in the code.

    The first line after an interval has the number of those that were left out, as `left_out`. Native code has no line
    numbers, so the text before its values is formatted tells places apart, too, as long as there are few. Not for waitress,
    which writes the paths of requests into it.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic_s = monotonic_s
        self._places: dict[tuple[str, int, str], list[float]] = {}  # -> end of the interval, lines in it, left out

    def filter(self, record: logging.LogRecord) -> bool:
        now_s = self._monotonic_s()
        tells_places = len(self._places) < PLACES_MAX and not record.name.startswith("waitress")
        text = str(record.msg) if tells_places else ""
        place = self._places.setdefault((record.pathname, record.lineno, text), [0.0, 0, 0])
        if now_s >= place[0]:
            record.left_out = int(place[2])
            place[:] = now_s + PLACE_INTERVAL_S, 0, 0
        # Kazoo writes several lines for each attempt to connect; the store itself says that it is away.
        if place[1] >= (1 if record.name.startswith("kazoo") else PLACE_LINES_MAX):
            place[2] += 1
            return False
        place[1] += 1
        return True


class TextFormatter(logging.Formatter):
    """`2026-03-01T10:00:00.123Z INFO engine: topic=pay: message`; times are UTC."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        about = getattr(record, "about", None)
        thing = " ".join(f"{name}={value}" for name, value in about.items()) + ": " if about else ""
        line = f"{utc(record.created)} {record.levelname} {self.process}: {thing}{record.getMessage()}"
        if left_out := getattr(record, "left_out", 0):
            line += f" ({left_out} more lines from here were left out)"
        line = escaped(line)
        if record.exc_info:
            line += "".join("\n  " + escaped(each) for each in self.formatException(record.exc_info).splitlines())
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line. A trace is one string in it, so a line is always one event."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "at": utc(record.created),
            "level": record.levelname.lower(),
            "process": self.process,
            "pid": record.process,
            "logger": record.name,
            **(getattr(record, "about", None) or {}),
            "message": record.getMessage(),
        }
        if left_out := getattr(record, "left_out", 0):
            event["left_out"] = left_out
        if record.exc_info:
            event["trace"] = self.formatException(record.exc_info)
        return _json.dumps(event, ensure_ascii=False, default=str)


def utc(seconds: float) -> str:
    """Unix time as ISO 8601 with milliseconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03d}Z"


def setup_logging(process: str, level: str = "INFO", json: bool = False) -> None:
    """Write this process's log lines, and uncaught exceptions, to stderr. The environment overrides the arguments.

    Args:
        process: the name shown in every line, e.g. `engine`.
        level: lowest level shown; PENSTOCK_LOG_LEVEL overrides it.
        json: write JSON lines; PENSTOCK_LOG=json does the same.
    """
    as_json = json or os.environ.get("PENSTOCK_LOG") == "json"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process) if as_json else TextFormatter(process))
    handler.addFilter(PlaceLimit())
    # Threads of the system log beside the loop, so no lock on the way of a line may be one of gevent's: those of logging
    # are replaced, and the name of the thread, which takes another to find, is not asked for.
    handler.lock = original("_thread", "RLock")()
    logging._lock = original("_thread", "RLock")()  # type: ignore[attr-defined]
    logging.logThreads = False
    log_uncaught()
    root = logging.getLogger()
    root.handlers[:] = [handler]
    wanted = os.environ.get("PENSTOCK_LOG_LEVEL", level).upper()
    root.setLevel(wanted if wanted in logging.getLevelNamesMapping() else "INFO")
    logging.getLogger("kazoo").setLevel(logging.WARNING)  # at INFO it logs every ping

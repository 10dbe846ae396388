"""Log lines on stderr, as text for people or as JSON for programs.

A line names its subject first: `topic=pay queue=3 epoch=7: truncated 4096→4010`. Pass the subject as
`extra={"about": {"topic": "pay", "queue": 3}}` and both forms show it, or write it into the message.
"""

import json as _json
import logging
import os
import sys
import time


class TextFormatter(logging.Formatter):
    """`2026-03-01T10:00:00.123Z INFO engine: topic=pay: message`; times are UTC."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        about = getattr(record, "about", None)
        thing = " ".join(f"{name}={value}" for name, value in about.items()) + ": " if about else ""
        line = f"{utc(record.created)} {record.levelname} {self.process}: {thing}{record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
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
        if record.exc_info:
            event["trace"] = self.formatException(record.exc_info)
        return _json.dumps(event, ensure_ascii=False, default=str)


def utc(seconds: float) -> str:
    """Unix time as ISO 8601 with milliseconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03d}Z"


def setup_logging(process: str, level: str = "INFO", json: bool = False) -> None:
    """Write this process's log lines to stderr. The environment overrides the arguments.

    Args:
        process: the name shown in every line, e.g. `engine`.
        level: lowest level shown; PENSTOCK_LOG_LEVEL overrides it.
        json: write JSON lines; PENSTOCK_LOG=json does the same.
    """
    as_json = json or os.environ.get("PENSTOCK_LOG") == "json"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process) if as_json else TextFormatter(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    wanted = os.environ.get("PENSTOCK_LOG_LEVEL", level).upper()
    root.setLevel(wanted if wanted in logging.getLevelNamesMapping() else "INFO")
    logging.getLogger("kazoo").setLevel(logging.WARNING)  # at INFO it logs every ping

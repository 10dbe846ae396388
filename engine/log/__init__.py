"""The commit log: segments, their indexes, recovery. See README.md for a tour."""

from engine.log.log import Log, open_log
from engine.log.types import RecordSlice, Topic

__all__ = ["Log", "RecordSlice", "Topic", "open_log"]

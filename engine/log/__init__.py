"""The commit log: segments, their indexes, recovery. See README.md for a tour."""

from engine.log.log import Log, open_log
from engine.log.types import Piece, Topic

__all__ = ["Log", "Piece", "Topic", "open_log"]

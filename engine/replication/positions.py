"""Positions up to which a master may answer and show its log."""

from typing import NamedTuple


class Confirmed(NamedTuple):
    """Positions up to which answers of each class, and readers, may go. They never fall under one epoch.

    Attributes:
        memory: also the limit of all readers.
        fsync, replicated, replicated_fsync: at most `memory`.
    """

    memory: int
    fsync: int
    replicated: int
    replicated_fsync: int


NOTHING = Confirmed(0, 0, 0, 0)

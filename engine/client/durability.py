"""Durability classes: the one table of their names, their numbers, and the lanes that serve them.

A class is what a topic's definition or a send asks for. A lane is what a proxy keeps for it: one link per broker, so
that an answer from memory never waits for a sync. Several classes may share a lane. A class gets a lane of its own by a
row in LANES, its number in CLASSES, and LANE_COUNT in _durability.pxd.
"""

from typing import NamedTuple

from engine.link import layout


class LaneRow(NamedTuple):
    """
    Attributes:
        number: of the lane, at each broker and over all brokers: its index in LANES.
        label: of its metrics.
        durability: number of the class that its appends ask the broker for.
        in_flight_max: appends that may be unanswered. More keeps a slow disk busy; it costs nothing where answers are
            quick.
    """

    number: int
    label: str
    durability: int
    in_flight_max: int


class DurabilityClass(NamedTuple):
    """
    Attributes:
        name: in a topic's definition.
        number: in the contract and on the link.
        lane: number of the lane that serves it.
    """

    name: str
    number: int
    lane: int


LANES = (
    LaneRow(0, "memory", layout.MEMORY, 1),
    # Two syncs overlap: while one is on the disk, the next append is already at the broker, so the disk never waits for
    # the network.
    LaneRow(1, "fsync", layout.FSYNC, 2),
    # An append and its answer go from proxy to master, to slave, to master, to proxy: with more of them on the way, none
    # of these waits for another. A broker without replicas serves this class from its disk.
    LaneRow(2, "replicated", layout.REPLICATED, 8),
    LaneRow(3, "replicated_fsync", layout.REPLICATED_FSYNC, 2),
)
CLASSES = (
    DurabilityClass("memory", 1, 0),
    DurabilityClass("fsync", 2, 1),
    DurabilityClass("replicated", 3, 2),
    DurabilityClass("replicated_fsync", 4, 3),
)
FSYNC = 2
"""Number of the class of fallback-buffer entries, which must be on the disk regardless of their topic's class."""
_BY_NAME = {each.name: each for each in CLASSES}
_LANE_OF = {each.number: each.lane for each in CLASSES}


def number_of(name: str) -> int:
    """The number of the class with this name. Raises KeyError."""
    return _BY_NAME[name].number


def lane_of(number: int) -> int:
    """The number of the lane that serves the class with this number. Raises KeyError."""
    return _LANE_OF[number]

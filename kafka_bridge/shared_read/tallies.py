"""Figures of one copier for a group, over all its runs. Written by its thread, read by the page of metrics."""

from dataclasses import dataclass


@dataclass
class SharedTallies:
    """
    Attributes:
        partitions: that the group has given to this member now.
        lost: partitions that were taken without being asked for.
        order_broken: partitions of groups with an order that were given up before their messages were acknowledged.
        repeated: records that were read again, and that the engine had already.
    """

    partitions: int = 0
    lost: int = 0
    order_broken: int = 0
    repeated: int = 0

"""The producer proxy's options about its buffer, and the stores that they ask for."""

import argparse
from pathlib import Path

from common.clock import SystemClock
from producer_proxy.buffer.buffering import DRAIN_PER_S, Buffering
from producer_proxy.buffer.disk.store import DiskStore
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.buffer.store import Store


def options_of_buffer(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("fallback buffer, for topics that have one")
    group.add_argument("--buffer", type=Path, metavar="DIR", help="keep a disk buffer here; one directory a proxy")
    group.add_argument("--buffer-mib-max", type=int, default=RoomLimits.bytes_max >> 20, metavar="MIB",
                       help="entries in one store; what does not fit is refused (%(default)s)")  # fmt: skip
    group.add_argument("--buffer-age-max-s", type=int, default=RoomLimits.age_ms_max // 1000, metavar="S",
                       help="while the oldest entry is older nothing more is taken (%(default)s)")  # fmt: skip
    group.add_argument("--buffer-topic-percent", type=int, default=RoomLimits.topic_percent_max, metavar="PERCENT",
                       help="of a store that one topic may fill (%(default)s)")  # fmt: skip
    group.add_argument("--buffer-drain-per-s", type=int, default=DRAIN_PER_S, metavar="COUNT",
                       help="entries a second back to the engine, at most (%(default)s)")  # fmt: skip


def make_buffering(options: argparse.Namespace) -> Buffering:
    """Open the stores. Raises ValueError (an option), BufferInUse, OSError."""
    limits = RoomLimits(options.buffer_mib_max << 20, options.buffer_age_max_s * 1000, options.buffer_topic_percent)
    faults = limits.faults()
    if options.buffer_drain_per_s < 1:
        faults.append("--buffer-drain-per-s: at least 1")
    if faults:
        raise ValueError("; ".join(faults))
    now_ms = SystemClock().now_ms
    stores: dict[str, Store] = {}
    if options.buffer is not None:
        stores["disk"] = DiskStore(options.buffer, limits, now_ms)
    return Buffering(stores, options.buffer_drain_per_s)

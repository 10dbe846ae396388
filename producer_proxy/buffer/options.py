"""Options of the producer proxy for its fallback buffer, and the stores that they configure."""

import argparse
from collections.abc import Callable
from pathlib import Path

from common.believed_time import BelievedTime
from common.clock import SystemClock
from common.config.store import ConfigStore
from producer_proxy.buffer.buffering import Buffering
from producer_proxy.buffer.disk.store import DiskStore
from producer_proxy.buffer.pace import PER_S
from producer_proxy.buffer.redis.address import parse_address
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.buffer.store import BufferStore


def options_of_buffer(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("fallback buffer, for topics with the setting `buffer`")
    group.add_argument(
        "--buffer", type=Path, metavar="DIR", help="Directory of the disk buffer, one per proxy; unset: no disk buffer."
    )
    group.add_argument("--buffer-redis", metavar="URL", help="Redis for the buffer: redis://HOST:PORT[/DB], sentinel://HOST:PORT,…/MASTER, "
                       "cluster://HOST:PORT,… or codis://HOST:PORT; unset: no Redis buffer.")  # fmt: skip
    group.add_argument(
        "--buffer-redis-password-file", type=Path, metavar="FILE", help="File with the password of this Redis."
    )
    group.add_argument("--buffer-redis-accept", action="append", default=[], choices=("evicting", "everysec", "unverified"),
                       help="Accept this weakness of the Redis; may be repeated (default: none is accepted).")  # fmt: skip
    group.add_argument("--buffer-mib-max", type=int, default=RoomLimits.bytes_max >> 20, metavar="MIB",
                       help="Maximum size of one store; messages that do not fit are refused (default %(default)s).")  # fmt: skip
    group.add_argument("--buffer-age-max-s", type=int, default=RoomLimits.age_ms_max // 1000, metavar="S",
                       help="Store nothing more while the oldest entry is older than this (default %(default)s).")  # fmt: skip
    group.add_argument("--buffer-topic-percent", type=int, default=RoomLimits.topic_percent_max, metavar="PERCENT",
                       help="Share of a store that one topic may fill (default %(default)s).")  # fmt: skip
    group.add_argument("--buffer-drain-per-s", type=int, default=PER_S, metavar="COUNT",
                       help="Maximum rate from one store back to the engine, in entries per second; lower while calls wait "
                       "(default %(default)s).")  # fmt: skip


def make_buffering(options: argparse.Namespace, config: ConfigStore) -> Buffering:
    """Open the stores, Redis first: `redis+disk` tries them in this order. Slots in Redis are claimed in `config`.

    Raises: ValueError (an option), BufferInUse, BufferUnavailable (a Redis that is not fit), OSError.
    """
    limits = RoomLimits(options.buffer_mib_max << 20, options.buffer_age_max_s * 1000, options.buffer_topic_percent)
    faults = limits.faults()
    if options.buffer_drain_per_s < 1:
        faults.append("--buffer-drain-per-s: at least 1")
    if faults:
        raise ValueError("; ".join(faults))
    stores: dict[str, BufferStore] = {}
    if options.buffer_redis is not None:
        stores["redis"] = _redis(options, limits, config)
    if options.buffer is not None:
        stores["disk"] = DiskStore(options.buffer, limits, believed_now_ms())
    return Buffering(stores, options.buffer_drain_per_s)


def believed_now_ms() -> Callable[[], int]:
    """Time by which entries grow old: a wall clock that is set ahead must not refuse what has room."""
    clock = SystemClock()
    return BelievedTime(clock.now_ms, lambda: int(clock.monotonic_s() * 1000), name="buffer").checked_ms


def _redis(options: argparse.Namespace, limits: RoomLimits, config: ConfigStore) -> BufferStore:
    try:
        from producer_proxy.buffer.redis.backlog_note import BacklogNote
        from producer_proxy.buffer.redis.client import connect  # redis-py is an extra
        from producer_proxy.buffer.redis.store import RedisStore
    except ImportError as error:
        raise ValueError(f"--buffer-redis needs redis-py: pip install 'penstock[redis]' ({error})") from error
    address = parse_address(options.buffer_redis)
    return RedisStore(
        lambda: connect(address, options.buffer_redis_password_file),
        address.layout,
        config,
        limits,
        believed_now_ms(),
        options.buffer_redis_accept,
        note=BacklogNote(None if options.buffer is None else options.buffer / "redis-backlog"),
    )

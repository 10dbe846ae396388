"""The producer proxy's options about its buffer, and the stores that they ask for."""

import argparse
from pathlib import Path

from common.clock import SystemClock
from common.config.store import ConfigStore
from producer_proxy.buffer.buffering import Buffering
from producer_proxy.buffer.disk.store import DiskStore
from producer_proxy.buffer.pace import PER_S
from producer_proxy.buffer.redis.address import parse_address
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.buffer.store import Store


def options_of_buffer(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("fallback buffer, for topics that have one")
    group.add_argument("--buffer", type=Path, metavar="DIR", help="keep a disk buffer here; one directory a proxy")
    group.add_argument("--buffer-redis", metavar="URL", help="keep a buffer in redis://HOST:PORT[/DB], sentinel://HOST:PORT,…/MASTER, "
                       "cluster://HOST:PORT,… or codis://HOST:PORT")  # fmt: skip
    group.add_argument("--buffer-redis-password-file", type=Path, metavar="FILE")
    group.add_argument("--buffer-redis-accept", action="append", default=[], choices=("evicting", "everysec", "unverified"),
                       help="use a Redis that is not as it should be; may be repeated")  # fmt: skip
    group.add_argument("--buffer-mib-max", type=int, default=RoomLimits.bytes_max >> 20, metavar="MIB",
                       help="entries in one store; what does not fit is refused (%(default)s)")  # fmt: skip
    group.add_argument("--buffer-age-max-s", type=int, default=RoomLimits.age_ms_max // 1000, metavar="S",
                       help="while the oldest entry is older nothing more is taken (%(default)s)")  # fmt: skip
    group.add_argument("--buffer-topic-percent", type=int, default=RoomLimits.topic_percent_max, metavar="PERCENT",
                       help="of a store that one topic may fill (%(default)s)")  # fmt: skip
    group.add_argument("--buffer-drain-per-s", type=int, default=PER_S, metavar="COUNT",
                       help="entries a second back to the engine, at most; fewer while calls wait (%(default)s)")  # fmt: skip


def make_buffering(options: argparse.Namespace, config: ConfigStore) -> Buffering:
    """Open the stores, Redis first: `redis+disk` tries them in this order. `config`: where slots in Redis are claimed.

    Raises: ValueError (an option), BufferInUse, BufferUnavailable (a Redis that is not fit), OSError.
    """
    limits = RoomLimits(options.buffer_mib_max << 20, options.buffer_age_max_s * 1000, options.buffer_topic_percent)
    faults = limits.faults()
    if options.buffer_drain_per_s < 1:
        faults.append("--buffer-drain-per-s: at least 1")
    if faults:
        raise ValueError("; ".join(faults))
    now_ms = SystemClock().now_ms
    stores: dict[str, Store] = {}
    if options.buffer_redis is not None:
        stores["redis"] = _redis(options, limits, config)
    if options.buffer is not None:
        stores["disk"] = DiskStore(options.buffer, limits, now_ms)
    return Buffering(stores, options.buffer_drain_per_s)


def _redis(options: argparse.Namespace, limits: RoomLimits, config: ConfigStore) -> Store:
    try:
        from producer_proxy.buffer.redis.client import connect  # redis-py is an extra
        from producer_proxy.buffer.redis.store import RedisStore
    except ImportError as error:
        raise ValueError(f"--buffer-redis needs redis-py: pip install 'penstock[redis]' ({error})") from error
    address = parse_address(options.buffer_redis)
    file = options.buffer_redis_password_file
    password = None if file is None else file.read_text().strip()
    return RedisStore(
        lambda: connect(address, password),
        address.layout,
        config,
        limits,
        SystemClock().now_ms,
        options.buffer_redis_accept,
    )

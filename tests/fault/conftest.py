"""A running `penstock up` for the tests of faults, and what those of the fallback buffer need beside it."""

from tests.e2e.conftest import penstock_factory, penstock_up
from tests.fault.buffered import penstock, proxies, redis_server, shop
from tests.fault.failing_processes import failing_disk, failing_engine

__all__ = [
    "failing_disk", "failing_engine", "penstock", "penstock_factory", "penstock_up", "proxies", "redis_server", "shop",
]  # fmt: skip

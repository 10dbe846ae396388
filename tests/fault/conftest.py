"""A running `penstock up` for the tests of faults, and what those of the fallback buffer need beside it."""

import pytest

from tests.e2e.conftest import penstock_factory, penstock_up
from tests.fault.buffered import penstock, proxies, redis_server, shop
from tests.fault.failing_processes import failing_disk, failing_engine
from tests.fault.replicated.load import ReplicatedLoad
from tests.services.failing_disk import FailingDisk

__all__ = [
    "failing_disk", "failing_engine", "penstock", "penstock_factory", "penstock_up", "proxies", "redis_server", "shop",
]  # fmt: skip


@pytest.fixture
def slow_disk(tmp_path):
    """The disk of one process, which is slow when a test says so."""
    folder = tmp_path / "device"
    folder.mkdir()
    return FailingDisk(folder)


@pytest.fixture
def load(group, tmp_path):
    """A rich load on the group with replicas of the test's file."""
    made = ReplicatedLoad(group, tmp_path / "load").start()
    yield made
    made.end()

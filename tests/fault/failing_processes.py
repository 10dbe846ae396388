"""Processes that a test starts on a device that can be told to fail."""

import pytest

from tests.e2e.test_engine_process import EngineProcess
from tests.services.failing_disk import FailingDisk


@pytest.fixture
def failing_disk(tmp_path, monkeypatch):
    """The device of every process that the test starts from now on."""
    made = FailingDisk(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def failing_engine(tmp_path, failing_disk):
    """An engine with segments of 1 MiB, so that every case seals some."""
    made = EngineProcess(tmp_path / "engine", "--segment-mib", "1", "--scrub-mib-s", "0")
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.wait(10)

"""Power cuts on real file systems, shut down under a writing log or fallback buffer, mounted again, and every promise
compared.

PENSTOCK_CUTS says how many in all under the log (`make powercut CUTS=1000`), and a quarter of it under each buffer; by
default so many as fit into `make test`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import require

ROOT = Path(__file__).parents[2]
CUTS = int(os.environ.get("PENSTOCK_CUTS", "110"))
KINDS = ("ext4", "xfs")
BUFFERS = ("disk", "redis-streams", "redis-lists")
BUFFER_SHARE = 4
S_A_CUT = 5


class Driver:
    """`tests.fault.power_cut` in mount and process groups of its own, so that nothing of it outlives the test."""

    def __init__(self, kind: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "tests.fault.power_cut", kind, *arguments],
            cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def end(self, timeout_s: float) -> tuple[int, str, str]:
        """(exit code, output, errors); killed with all its writers when it takes too long."""
        try:
            out, errors = self._process.communicate(timeout=timeout_s)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.communicate()
        return self._process.returncode, out, errors

    def figures(self, cuts: int) -> dict:
        """What it printed."""
        _, out, errors = self.end(60 + cuts * S_A_CUT)
        assert out, errors[-4000:]
        print(out.strip())
        return json.loads(out)


@pytest.fixture(scope="module", autouse=True)
def loop_mounts():
    """Both file systems can be made, mounted and shut down here."""
    require(os.geteuid() == 0, "power cuts need root, to mount file systems")
    for program in ("unshare", "mkfs.ext4", "mkfs.xfs", "redis-server"):
        require(shutil.which(program), f"power cuts need {program}")
    for kind in KINDS:
        code, _, errors = Driver(kind, "--probe").end(60)
        require(code == 0, f"no {kind} on a loop device can be shut down here: {errors.strip()[-200:]}")


def test_a_power_cut_takes_nothing_that_was_promised():
    each = -(-CUTS // len(KINDS))
    drivers = [Driver(kind, "--cuts", str(each)) for kind in KINDS]
    figures = [driver.figures(each) for driver in drivers]
    assert [found["lost"] for found in figures] == [0, 0], figures
    assert sum(found["cuts"] for found in figures) >= CUTS
    for found in figures:
        assert found["promised"] > 5 * each and found["checked"] > 50 * each, "too quiet to show anything"
        assert found["unknown"] > 0 and found["in_recovery"] > 0, "no cut hit work under way"


@pytest.mark.parametrize("buffer", BUFFERS)
def test_a_power_cut_takes_nothing_that_was_answered_buffered(buffer):
    each = -(-CUTS // len(KINDS) // BUFFER_SHARE)
    drivers = [Driver(kind, "--writer", buffer, "--cuts", str(each)) for kind in KINDS]
    figures = [driver.figures(each) for driver in drivers]
    assert [found["lost"] for found in figures] == [0, 0], figures
    for found in figures:
        assert found["promised"] > 5 * each and found["checked"] > each, "too quiet to show anything"


@pytest.mark.parametrize("buffer", ["disk", "redis-streams"])
def test_a_buffer_that_promises_before_its_sync_is_caught(buffer):
    assert Driver("ext4", "--writer", buffer, "--cuts", "6", "--careless").figures(6)["lost"] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_that_promises_before_its_sync_is_caught(kind):
    figures = Driver(kind, "--cuts", "6", "--careless").figures(6)
    assert figures["lost"] > 0

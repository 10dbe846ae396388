"""The lines of README.md work as they are pasted, in their order, beside a `penstock up` on its default ports."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.running import PENSTOCK
from tests.services import require
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TO_RUN_S_MAX = 60


def blocks() -> list[tuple[str, str]]:
    """(language, lines) of the page's blocks with a language: the others are no commands."""
    return BLOCK.findall((ROOT / "README.md").read_text())


@pytest.fixture
def network():
    """The beginning of a command that runs in a network of its own, where every port is free."""
    require(os.geteuid() == 0 and shutil.which("nsenter"), "a network namespace needs root and nsenter")
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 600"],
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert holder.stdout.readline() == "up\n"
    yield ["nsenter", "--net", "--target", str(holder.pid)]
    holder.kill()
    holder.wait()


def test_the_lines_work_as_pasted(network, tmp_path):
    (tmp_path / ".venv").symlink_to(sys.prefix)
    served = tmp_path / "served.json"
    up = subprocess.Popen([*network, *PENSTOCK, "up", "--ready-file", str(served)], cwd=tmp_path)
    try:
        until(served.exists, "penstock up serves", 30.0)
        shell = [text for language, text in blocks() if language == "sh"]
        python = [text for language, text in blocks() if language == "python"]
        assert shell and python
        script = "\n".join(["set -e", *shell, *(f"python - <<'END'\n{text}END" for text in python)])
        environment = {name: value for name, value in os.environ.items() if name != "PENSTOCK_DATA"}
        done = subprocess.run(
            [*network, "bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True,
            timeout=TO_RUN_S_MAX,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith("customer-7 b'one pair of boots'\n")
    finally:
        up.terminate()
        up.wait(timeout=20)

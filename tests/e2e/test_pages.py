"""The lines of pages work as they are pasted, in their order, beside a `penstock up` on its default ports."""

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
TO_RUN_S_MAX = 400
HAPPENED = """
for topic in orders bulky; do penstock topic create $topic; penstock send $topic 'a message'; done
penstock group create readers --topic orders --attempts-max 3
penstock pull orders --group readers --max 1
"""


def blocks(pages: tuple[str, ...]) -> list[tuple[str, str]]:
    """(language, lines) of the pages' blocks with a language: the others are no commands."""
    return [block for page in pages for block in BLOCK.findall((ROOT / page).read_text())]


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


def run_lines(
    network: list[str], folder: Path, *pages: str, before: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run pages' blocks, first those of the shell, in a folder where `penstock up` serves; `before` them other lines."""
    (folder / ".venv").symlink_to(sys.prefix)
    served = folder / "served.json"
    up = subprocess.Popen([*network, *PENSTOCK, "up", "--ready-file", str(served)], cwd=folder)
    try:
        until(served.exists, "penstock up serves", 30.0)
        shell = [text for language, text in blocks(pages) if language == "sh"]
        python = [text for language, text in blocks(pages) if language == "python"]
        assert shell
        script = "\n".join(["set -e", before, *shell, *(f"python - <<'END'\n{text}END" for text in python)])
        environment = {name: value for name, value in os.environ.items() if name != "PENSTOCK_DATA"}
        done = subprocess.run(
            [*network, "bash", "-c", script], cwd=folder, env=environment | variables, capture_output=True, text=True,
            timeout=TO_RUN_S_MAX,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done
    finally:
        up.terminate()
        up.wait(timeout=20)


def test_the_lines_of_the_readme_work_as_pasted(network, tmp_path):
    done = run_lines(network, tmp_path, "README.md")
    assert done.stdout.endswith("customer-7 b'one pair of boots'\n")


def test_the_lines_of_the_runbooks_and_about_hardening_work_as_pasted(network, tmp_path):
    path = f"{sys.prefix}/bin:{os.environ['PATH']}"
    done = run_lines(network, tmp_path, "docs/runbooks.md", "docs/hardening.md", before=HAPPENED, PATH=path)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_forty_tasks_work_as_pasted(network, tmp_path):
    path = f"{sys.prefix}/bin:{os.environ['PATH']}"
    own = {"PATH": path, "XDG_CONFIG_HOME": str(tmp_path / "configuration")}
    done = run_lines(network, tmp_path, "docs/runs/tasks.md", **own)
    assert "59, brown" in done.stdout and "Traceback" not in done.stderr

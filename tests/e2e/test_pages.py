"""The blocks of pages work as they are pasted, in their order, beside a `penstock up` on its default ports.

Which test runs which page is in tests/pages.py; tests/unit/test_pages.py finds a page that none runs.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.running import PENSTOCK
from tests.pages import ROOT, run_blocks
from tests.services import require, thrift_toolchains
from tests.waiting import until

TO_RUN_S_MAX = 900  # against one that hangs: sixty commands take 30 s, and ten times as long on a busy machine
HAPPENED = """
for topic in orders bulky; do penstock topic create $topic; penstock send $topic 'a message'; done
penstock group create readers --topic orders --attempts-max 3
penstock pull orders --group readers --max 1
"""
COMMANDS = """
mkdir -p configuration; export XDG_CONFIG_HOME="$PWD/configuration" PENSTOCK_DATA="$PWD/.penstock"
for file in admin.key ca.pem shop.secret; do echo 'of another deployment' > $file; chmod 600 $file; done
penstock context add test --data ./.penstock
printf 'one\\ntwo,4\\nthree,2,fsync\\n' > names.txt
penstock topic create prices
penstock group create readers
"""
"""What the page about commands takes for granted."""


@pytest.fixture
def network():
    """The beginning of a command that runs in a network of its own, where every port is free."""
    require(os.geteuid() == 0 and shutil.which("nsenter"), "a network namespace needs root and nsenter")
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 1200"],
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert holder.stdout.readline() == "up\n"
    yield ["nsenter", "--net", "--target", str(holder.pid)]
    holder.kill()
    holder.wait()


class Pages:
    """Blocks of pages, in a folder where a `penstock up` serves."""

    def __init__(self, network: list[str], folder: Path) -> None:
        self._network, self._folder = network, folder
        (folder / ".venv").symlink_to(sys.prefix)

    def run(
        self, *pages: str, before: str = "", up: tuple[str, ...] = (), places: dict[str, str] | None = None,
        within_s: float = TO_RUN_S_MAX, **variables: str,
    ) -> "subprocess.CompletedProcess[str]":  # fmt: skip
        """First the blocks of the shell, then those in Python.

        Args:
            before: other lines, that come first.
            up: more options of `penstock up`.
            places: texts of the pages, and what the test has in their stead.
        """
        served = self._folder / "served.json"
        line = [*self._network, *PENSTOCK, "up", "--ready-file", str(served), *up]
        process = subprocess.Popen(line, cwd=self._folder)
        try:
            until(served.exists, "penstock up serves", 60.0)
            found = run_blocks(*pages)
            shell = [each.text for each in found if each.language == "sh"]
            python = [f"python - <<'END'\n{each.text}END" for each in found if each.language == "python"]
            assert shell
            text = "\n".join([*shell, *python])
            for old, new in (places or {}).items():
                assert old in text, old
                text = text.replace(old, new)
            kept = {name: value for name, value in os.environ.items() if name != "PENSTOCK_DATA"}
            done = subprocess.run(
                [*self._network, "bash", "-c", f"set -e\n{before}\nset -x\n{text}"], cwd=self._folder, env=kept | variables,
                capture_output=True, text=True, timeout=within_s,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            assert "Traceback" not in done.stderr
            return done
        finally:
            process.terminate()
            process.wait(timeout=20)


@pytest.fixture
def pages(network, tmp_path):
    return Pages(network, tmp_path)


@pytest.fixture
def path():
    """A PATH with the command, which pages but README take for granted."""
    return f"{sys.prefix}/bin:{os.environ['PATH']}"


def test_the_lines_of_the_readme_work_as_pasted(pages):
    done = pages.run("README.md")
    assert done.stdout.endswith("customer-7 b'one pair of boots'\n")


def test_the_lines_of_the_runbooks_and_about_hardening_work_as_pasted(pages, path):
    pages.run("docs/runbooks.md", "docs/hardening.md", before=HAPPENED, PATH=path)


def test_the_commands_of_the_page_about_commands_work_as_pasted(pages, path):
    places = {  # what has happened meanwhile
        "penstock topic unused": "penstock send orders first; penstock pull orders -g readers --max 1; penstock topic unused",
        "penstock apply -f topics.yaml --prune": "penstock topic create orders.old; penstock apply -f topics.yaml --prune",
    }
    done = pages.run("docs/commands.md", before=COMMANDS, places=places, PATH=path)
    assert "59, brown" in done.stdout and "would_redrive  0" in done.stdout


def test_the_lines_about_delays_filters_and_several_broker_groups_work_as_pasted(pages, path):
    before = f"{HAPPENED}\npenstock topic create refunds; penstock group create billing --topic orders --topic refunds"
    named = ("docs/delays.md", "docs/filters.md", "docs/broker-groups.md")
    done = pages.run(*named, before=before, up=("--groups", "3"), PATH=path)
    assert "reminder-17" in done.stdout and "group-3" in done.stdout


@pytest.mark.slow
def test_the_programs_of_the_clients_page_work_as_pasted(pages, path, tmp_path):
    for language in ("go", "php"):
        require(thrift_toolchains.can_build(language), f"the tool chain of {language}")
        thrift_toolchains.build(language)
    (tmp_path / "clients").symlink_to(ROOT / "clients")
    done = pages.run("clients/README.md", **thrift_toolchains.environment(PATH=path))
    assert "hello" in done.stdout and "world" in done.stdout


@pytest.mark.slow
def test_the_forty_tasks_work_as_pasted(pages, path, tmp_path):
    done = pages.run("docs/runs/tasks.md", PATH=path, XDG_CONFIG_HOME=str(tmp_path / "configuration"))
    assert "59, brown" in done.stdout

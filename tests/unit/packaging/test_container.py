"""The parts of the container image, where no builder is at hand: what it copies, runs, publishes and checks."""

import json
import re
from pathlib import Path

from click.testing import CliRunner

from penstock.__main__ import cli
from penstock.up.ports import DEFAULT_BASE, PROCESSES

ROOT = Path(__file__).resolve().parents[3]
LINES = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text()).splitlines()


def values(instruction: str) -> list[str]:
    """What stands after each occurrence of an instruction."""
    return [line.partition(" ")[2] for line in LINES if line.startswith(f"{instruction} ")]


def test_what_is_copied_from_the_tree_exists_and_is_not_ignored():
    ignored = (ROOT / ".dockerignore").read_text().split()
    for copied in values("COPY"):
        source = copied.split()[0]
        if not source.startswith("--from"):
            assert (ROOT / source).exists() and source not in ignored


def test_requirements_are_installed_by_hash_before_the_tree_is_copied_so_that_their_layer_is_kept():
    order = [line for line in LINES if line.startswith(("COPY . .", "RUN /opt"))]
    assert "--require-hashes" in order[0] and order[1] == "COPY . ." and "--no-deps" in order[2]
    for name in re.findall(r"-r (\S+)", order[0]):
        assert (ROOT / name).exists()


def test_it_does_not_run_as_root_and_only_the_last_stage_is_shipped():
    assert values("USER") == ["penstock"] and LINES.index("USER penstock") > LINES.index(
        "FROM python:3.11-slim-bookworm"
    )


def test_the_command_and_the_health_check_are_commands_with_these_options():
    command = json.loads(values("CMD")[0])
    health = json.loads(values("HEALTHCHECK")[0].partition("CMD ")[2])
    for name, *options in (command, health[1:]):
        shown = CliRunner().invoke(cli, [name, "--help"]).output
        assert all(each in shown for each in options if each.startswith("--"))


def test_the_published_ports_are_those_of_the_proxies():
    base = int(json.loads(values("CMD")[0])[-1])
    assert base == DEFAULT_BASE and PROCESSES[:2] == ("producer_proxy", "consumer_proxy")
    assert values("EXPOSE") == [f"{base} {base + 1}"]

"""The cluster of docs/deployment.md on machines of a test: each block of the page on the machines that it names."""

import re
import sys

from tests.pages import NOT_RUN
from tests.services.machines import ROOT, Machine
from tests.waiting import until

BLOCK = re.compile(r"^```(sh|python) ([a-z0-9 ]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMES = ("m1", "m2", "m3")
ROLLING = "rolling"


def blocks() -> list[tuple[str, list[str], str]]:
    """(language, words after it, lines) of the page's blocks for machines."""
    page = (ROOT / "docs" / "deployment.md").read_text()
    found = [(language, words.split(), text) for language, words, text in BLOCK.findall(page)]
    return [each for each in found if not {*each[1]} & {*NOT_RUN}]  # the machines run the code of this tree


def wait_in_sync(machines: dict[str, Machine]) -> None:
    command = "set -a; . /etc/penstock/cluster.conf; penstock broker list"
    shown = [""]

    def is_in_sync() -> bool:
        shown[0] = machines["m1"].run(command)
        return shown[0].count("SYNC_REPLICATION") == 2

    try:
        until(is_in_sync, "both brokers are in sync", 30)
    except AssertionError as error:
        journals = "\n".join(f"{name}\n{each.journals()}" for name, each in machines.items())
        raise AssertionError(f"{shown[0]}\n{journals}") from error


def follow(machines: dict[str, Machine], language: str, names: list[str], text: str) -> str:
    """Run a block; returns its last output."""
    shown = ""
    for name in names:
        if language == "python":
            machines["m1"].run(f"scp shop.json {name}:$PWD/")
        program = ("bash", "-e", "-s") if language == "sh" else (sys.executable, "-")
        shown = machines[name].run(text, program=program)
    return shown


def make_cluster(machines: dict[str, Machine]) -> str:
    """Follow the page, but for the restarts; returns what its application in Python has shown."""
    shown = ""
    for language, names, text in blocks():
        if names[0] != ROLLING:
            told = follow(machines, language, names, text)
            shown = told if language == "python" else shown
        if "--broker b" in text:
            wait_in_sync(machines)
    return shown

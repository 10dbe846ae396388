"""The units of systemd: their commands take the options that they are given, and the page uses each of them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import require

ROOT = Path(__file__).resolve().parents[3]
UNITS = sorted((ROOT / "packaging/systemd").glob("*.service"))
MODULES = {"producer-proxy": "producer_proxy", "consumer-proxy": "consumer_proxy", "kafka-bridge": "kafka_bridge"}


def setting(unit: Path, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_process_that_takes_its_options_and_tells_when_it_serves(unit):
    (command,) = setting(unit, "ExecStart")
    _, name, *options = command.split()
    assert unit.stem == f"penstock-{name}" and setting(unit, "Type") == ["notify"]
    module = MODULES.get(name, name)
    told = subprocess.run(
        [sys.executable, "-P", "-m", module, "--help"], capture_output=True, text=True, cwd=ROOT
    ).stdout
    assert all(each in told for each in options if each.startswith("--"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_page_writes_the_files_that_a_unit_reads_and_starts_it(unit):
    page = (ROOT / "docs/deployment.md").read_text()
    for path in setting(unit, "EnvironmentFile"):
        assert Path(path).name in page
    assert unit.stem in page


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_leaves_a_process_little_to_do_should_it_be_taken_over(unit):
    require(shutil.which("systemd-analyze"), "systemd-analyze is missing: apt install systemd")
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=30", str(unit)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stdout + told.stderr  # 30: an exposure of 3.0

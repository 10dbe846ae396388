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


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_has_a_user_of_its_own_that_both_the_page_and_the_package_make(unit):
    (user,) = setting(unit, "User")
    others = [each.stem for each in UNITS if each != unit and setting(each, "User") == [user]]
    assert others == (
        [] if "-proxy" not in unit.stem else [each.stem for each in UNITS if "-proxy" in each.stem and each != unit]
    )
    for maker in ("docs/deployment.md", "packaging/debian/postinst"):
        (made,) = re.findall(r"^for user in (.*); do$", (ROOT / maker).read_text(), re.MULTILINE)
        assert user in [f"penstock-{each}" for each in made.split()]


@pytest.mark.parametrize(
    ("kind", "secrets"),
    [
        ("engine", {"cluster.key", "admin.key", "replica.key", "controller.key"}),
        ("controller", {"controller.key"}),
        ("producer-proxy", {"cluster.key", "ops.key"}),
        ("consumer-proxy", {"cluster.key", "ops.key"}),
        ("kafka-bridge", {"cluster.key"}),
        ("console", {"admin.key", "controller.key"}),
    ],
)
def test_a_unit_is_handed_the_secrets_that_it_needs_and_no_others(kind, secrets):
    unit = ROOT / f"packaging/systemd/penstock-{kind}.service"
    given = [each.split(":") for each in setting(unit, "LoadCredential")]
    assert {name for name, _ in given} == secrets | {"zookeeper.auth"}
    assert all(path.startswith("/etc/penstock/") for _, path in given)
    (command,) = setting(unit, "ExecStart")
    used = set(re.findall(r"\$\{CREDENTIALS_DIRECTORY\}/(\S+)", command))
    assert used == secrets and not re.search(r"/etc/penstock/\S", command)

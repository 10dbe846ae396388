"""Both wheels of `make wheel`, installed by pip into an empty environment, serve a send and a pull without this tree."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.services import require
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
READY_S_MAX = 60.0


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> dict[str, Path]:
    """The wheels by form."""
    require(shutil.which(os.environ.get("CC", "cc")), "a C compiler (Debian: gcc)")
    made = tmp_path_factory.mktemp("wheels")
    subprocess.run([ROOT / "scripts" / "make-wheels", made], check=True, capture_output=True, text=True)
    found = {"pure" if each.name.endswith("-py3-none-any.whl") else "native": each for each in made.glob("*.whl")}
    assert set(found) == {"pure", "native"}
    return found


@pytest.fixture(scope="module")
def environment(tmp_path_factory, wheels) -> "Environment":
    """An environment in which pip has installed the native wheel and what it needs."""
    made = Environment(tmp_path_factory.mktemp("elsewhere"))
    made.pip("install", str(wheels["native"]))
    return made


class Environment:
    """A virtual environment outside of this tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)

    def pip(self, *arguments: str) -> None:
        """Run this tree's pip on the environment."""
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", self._bin("python")]
        done = subprocess.run([*pip, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def _bin(self, name: str) -> str:
        return str(self.folder / "venv" / "bin" / name)

    def start(self, *arguments: str, **how) -> subprocess.Popen[str]:
        """Start `penstock` of the environment, in its folder, with nothing of this tree in its variables."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "PYTHON"))}
        return subprocess.Popen(
            [self._bin("penstock"), *arguments], cwd=self.folder, env=variables, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **how,
        )  # fmt: skip

    def run(self, *arguments: str) -> str:
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=READY_S_MAX)
        assert process.returncode == 0, output
        return output


def send_and_pull(environment: Environment, data: str) -> str:
    """Have `penstock up` serve one message; returns what `penstock doctor` says of the native modules."""
    ready = environment.folder / f"{data}.json"
    up = environment.start("up", "--data", data, "--ports", "auto", "--no-console", "--ready-file", str(ready))
    try:
        until(lambda: ready.exists() or up.poll() is not None, "penstock up serves", READY_S_MAX)
        assert up.poll() is None, up.stdout.read()
        environment.run("topic", "create", "orders", "--data", data)
        environment.run("send", "orders", "from a wheel", "--data", data)
        assert "from a wheel" in environment.run("pull", "orders", "--group", "readers", "--max", "1", "--data", data)
        return environment.run("doctor", "--data", data)
    finally:
        up.terminate()
        assert up.wait(timeout=30) == 0


def test_a_wheel_has_the_contract_the_console_and_the_client_and_only_the_native_one_has_modules(wheels):
    for form, wheel in wheels.items():
        names = zipfile.ZipFile(wheel).namelist()
        assert any(each.endswith(".so") for each in names) == (form == "native")
        for each in (
            "penstock_thrift/producer.thrift",
            "console/templates/base.html",
            "console/templates/rules/audit.html",
            "penstock_client/loop.py",
        ):
            assert each in names, each
        assert not [each for each in names if each.startswith(("tests/", "docs/", "scripts/"))]


def test_the_native_wheel_serves_on_native_modules(environment):
    assert re.search(r"all \d+ active", send_and_pull(environment, "native"))


def test_the_pure_wheel_serves_in_its_place_on_the_references(environment, wheels):
    environment.pip("install", "--no-deps", "--force-reinstall", str(wheels["pure"]))
    assert not list(environment.folder.rglob("engine/**/*.so"))
    send_and_pull(environment, "pure")

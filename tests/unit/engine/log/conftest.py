"""A machine with a log on it, for each form and, where the test does not need to break it, for real files too."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "lookup_index"))

from forms import forms, load
from machine import Machine

from engine.env.real import RealEnv
from engine.env.simulated import SimulatedEnv


@pytest.fixture(params=forms())
def form(request: pytest.FixtureRequest):
    """The log's modules, native or twin."""
    return load(request.param)


@pytest.fixture
def machine(form) -> Iterator[Machine]:
    """A simulated machine with an open log."""
    made = Machine(form, SimulatedEnv(), "/data")
    yield made
    made.close()


@pytest.fixture(params=["simulated", "real"])
def any_machine(form, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    """A machine with an open log, simulated and real."""
    made = (
        Machine(form, SimulatedEnv(), "/data")
        if request.param == "simulated"
        else Machine(form, RealEnv(), str(tmp_path))
    )
    yield made
    made.close()

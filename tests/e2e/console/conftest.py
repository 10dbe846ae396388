"""Chromium and a whole Penstock with its console, shared by the stories of a module."""

import pytest

from tests.services.chromium import chromium


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def penstock(penstock_factory):
    """A running `penstock up` with its console."""
    return penstock_factory(environment={"PENSTOCK_CONSOLE": "1"})

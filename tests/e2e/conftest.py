"""Fixtures of the tests that run everything for real."""

import pytest

from tests.e2e.running import RunningPenstock


@pytest.fixture(scope="module")
def penstock_factory(tmp_path_factory):
    """Make as many instances as the module needs: `penstock_factory(*options, environment={…})`, each in a directory of its own."""
    made: list[RunningPenstock] = []

    def make(*options: str, environment: dict[str, str] | None = None) -> RunningPenstock:
        data = tmp_path_factory.mktemp("penstock") / "data"
        made.append(RunningPenstock(data, *options, environment=environment))
        return made[-1].start()

    yield make
    for each in made:
        each.end()


@pytest.fixture(scope="module")
def penstock_up(penstock_factory) -> RunningPenstock:
    """A running `penstock up` that the tests of a module share."""
    return penstock_factory()

"""The inside of a consumer proxy for each test."""

import pytest

from tests.unit.consumer_proxy.world import World


@pytest.fixture
def world():
    made = World()
    yield made
    made.view.close()

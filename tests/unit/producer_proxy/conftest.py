import pytest

import producer_proxy.proxy as proxy_module
from tests.unit.producer_proxy.send.desk import Desk


@pytest.fixture(params=["hot", "slow"])
def desk(request, monkeypatch):
    """A proxy, once with the native front and once with the reference alone."""
    if request.param == "hot" and proxy_module.Front is None:
        pytest.skip("the hot path is not built in this run")
    made = Desk(request.param == "hot", monkeypatch)
    yield made
    made.close()

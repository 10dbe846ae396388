"""What tests of several contracts use."""

import pytest

from engine.server.native import NATIVE
from tests.contract.link_engine import FORMS, Engine


@pytest.fixture(params=FORMS)
def engine(request, tmp_path):
    """A link server on a real log, once in each form."""
    if request.param == "native" and not NATIVE:
        pytest.skip("the native form is not built")
    made = Engine(tmp_path / "engine", request.param)
    yield made
    made.close()

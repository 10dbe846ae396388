import os

import pytest

from common.wire import walk as walk_pure

try:
    from common.wire import _native
except ImportError:
    _native = None


@pytest.fixture(params=["native", "pure"])
def walker(request):
    """Each twin in turn: the same tests hold for both."""
    if request.param == "pure":
        return walk_pure
    if _native is None:
        assert not os.environ.get("CI"), "the native walker is not built"
        pytest.skip("the native walker is not built")
    return _native

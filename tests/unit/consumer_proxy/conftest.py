from types import SimpleNamespace

import pytest

from consumer_proxy.pull import deliver as deliver_pure
from consumer_proxy.pull import native
from consumer_proxy.pull import read_call as call_pure


@pytest.fixture(params=["native", "pure"])
def twin(request):
    """The functions under test: both twins where the native one was built."""
    if request.param == "pure":
        return SimpleNamespace(build_reply=deliver_pure.build_reply, read_call=call_pure.read_call)
    if not native.NATIVE:
        pytest.skip("the native modules are not built")
    return native

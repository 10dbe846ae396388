from types import SimpleNamespace

import pytest

from consumer_proxy.pull import deliver, native, read_call


@pytest.fixture(params=["native", "pure"])
def twin(request):
    """The functions under test: both twins where the native one was built."""
    if request.param == "pure":
        return SimpleNamespace(build_reply=deliver.build_reply, read_call=read_call.read_call)
    if not native.NATIVE:
        pytest.skip("the native modules are not built")
    return native

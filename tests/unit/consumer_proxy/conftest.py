import pytest

from consumer_proxy import acks_pure, deliver, deliver_pure


@pytest.fixture(params=["native", "pure"])
def twin(request):
    """The module under test: both twins where the native one was built."""
    if request.param == "native":
        if not deliver.NATIVE:
            pytest.skip("the native modules are not built")
        return deliver
    return type("Pure", (), {"build_reply": deliver_pure.build_reply, "plan_acks": acks_pure.plan_acks})

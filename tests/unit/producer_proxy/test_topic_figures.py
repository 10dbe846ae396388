"""Times and refusals by topic at a producer proxy: on the hot path's front and on the reference alone."""

import pytest

from common.contract import Code, Message
from common.ops.connection_pages import OpsRequest
from producer_proxy.topic_figures import APPLICATIONS_MAX, TopicFigures, topic_figures_page
from tests.services.fake_broker import wait_until
from tests.unit.producer_proxy.admission.test_rate_limits import change, emptied, orders
from tests.unit.producer_proxy.send.desk import codes, credential, request


@pytest.fixture
def figures(desk):
    """Of a proxy that keeps those of two topics."""
    made = TopicFigures(2, lambda topic: desk.view.topic(topic) is not None)
    desk.proxy.service.figures = made
    if desk.proxy.front is not None:
        desk.proxy.front.figures = made
    return made


def told(figures) -> dict:
    return figures.listed(60, 10)["topics"]


def test_a_refused_message_counts_at_its_topic_and_names_that_are_made_up_push_none_out(desk, figures):
    change(desk, "topic", "orders", rate_messages=5)
    client, fixed = desk.client(), credential()
    emptied(desk, client, fixed, 5)
    client.call(request(*orders(3), credential=fixed))
    assert codes(client.call(request(Message(topic="pay", body=bytes(4_096)), credential=fixed))) == [Code.TOO_LARGE]
    for name in ("made-up", "other"):  # without a definition, and without a grant
        client.call(request(Message(topic=name, body=b"x"), credential=fixed))
    found = told(figures)
    assert "made-up" not in found and figures.pushed_out == 1, "orders made room for the third topic"
    assert found["pay"]["refused"] == {str(int(Code.TOO_LARGE)): 1}
    assert found["other"]["refused"] == {str(int(Code.FORBIDDEN)): 1}
    client.call(request(*orders(2), credential=fixed))
    limited = {str(int(Code.RATE_LIMITED)): 2}
    assert told(figures)["orders"]["refused"] == limited
    assert list(told(figures)["orders"]["by_application"].values()) == [limited]
    assert all(told(figures)["orders"]["by_application"]), "the application is named"
    client.call(request(*orders(1), credential=credential(secret="wrong")))
    assert told(figures)["orders"]["by_application"][""] == {str(int(Code.UNAUTHENTICATED)): 1}
    assert next(iter(told(figures))) == "orders", "the last used one is first"


def test_a_taken_call_has_a_time_at_its_topic_and_one_of_several_topics_has_none(desk, figures):
    client, fixed = desk.client(), credential()

    def noted() -> bool:  # of a millisecond one call at most
        assert codes(client.call(request(*orders(2), credential=fixed))) == [Code.OK] * 2
        return sum(told(figures)["orders"]["buckets"]) >= 3

    wait_until(noted)
    mixed = [Message(topic=name, body=b"x") for name in ("orders.fast", "orders")]
    assert codes(client.call(request(*mixed, credential=fixed))) == [Code.OK] * 2
    found = told(figures)
    assert list(found) == ["orders"]


class Hour:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_the_page_has_the_topics_of_the_last_seconds_and_forgets_idle_ones():
    clock = Hour()
    figures = TopicFigures(10, lambda topic: True, clock)
    page = topic_figures_page(figures)

    def asked(**query: str):
        return page(OpsRequest("GET", query, b"", "", ""))

    for name in (b"a", b"b", b"c"):
        figures.answered(name, 100e-6)
        clock.now_s += 10
    status, value = asked(within_s="15", limit="1")
    assert status == "200 OK" and list(value["topics"]) == ["c"] and value["left_out"] == 0
    assert asked(within_s="60", limit="1")[1]["left_out"] == 2
    assert value["topics"]["c"]["buckets"][:3] == [0, 1, 0]
    clock.now_s += 3_600
    figures.refused(b"c", 200, "shop")
    assert list(asked(within_s="3600")[1]["topics"]) == ["c"] and len(figures) == 1
    for wrong in ({"limit": "-1"}, {"within_s": "9" * 30}, {"limit": "x"}):
        assert asked(**wrong)[0] == "400 Bad Request"
    assert TopicFigures(0, lambda topic: True).listed(60, 10)["topics"] == {}


def test_applications_beyond_the_bound_are_one():
    figures = TopicFigures(1, lambda topic: True)
    for number in range(APPLICATIONS_MAX + 5):
        figures.refused(b"orders", 200, f"app-{number}")
    own = told(figures)["orders"]["by_application"]
    assert (len(own), own["app-0"], own[""]) == (APPLICATIONS_MAX + 1, {"200": 1}, {"200": 5})

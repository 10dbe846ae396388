"""What a topic asks of its messages' form, on the hot path's front and on the reference alone."""

import pytest

from common.contract import Code, Message
from tests.unit.producer_proxy.admission.test_rate_limits import change
from tests.unit.producer_proxy.send.desk import codes, credential, request


def test_a_topic_that_requires_properties_refuses_messages_without_them_and_names_them(desk):
    change(desk, "topic", "orders", required_properties=["tenant", "trace"])
    client, fixed = desk.client(), credential()
    whole = Message(topic="orders", body=b"x", properties={"tenant": "", "trace": "1"})
    for _ in range(2):
        results = client.call(
            request(
                whole, Message(topic="orders"), Message(topic="orders", properties={"trace": "1"}), credential=fixed
            )
        )
        assert codes(results) == [Code.OK, Code.INVALID, Code.INVALID]
        assert results[1].error == "Message.properties: the topic requires tenant, trace"
        assert results[2].error == "Message.properties: the topic requires tenant"


@pytest.mark.parametrize("body", [b"{}", b' [1, "\xc3\xbc", null]', b"1e5", b'"x"'])
def test_a_json_topic_takes_json(desk, body):
    change(desk, "topic", "orders", body_format="json")
    assert codes(desk.client().call(request(Message(topic="orders", body=body)))) == [Code.OK]


@pytest.mark.parametrize(
    "body", [b"", None, b"{", b"{'a': 1}", b"NaN", b"-Infinity", b'"\xff"', b"[" * 100_000, b"{} {}", b"secret"]
)
def test_a_json_topic_refuses_what_is_none_and_tells_nothing_of_it(desk, body):
    change(desk, "topic", "orders", body_format="json")
    client, fixed = desk.client(), credential()
    for _ in range(2):
        (result,) = client.call(request(Message(topic="orders", body=body, id="mine"), credential=fixed))
        assert (result.code, result.id) == (Code.INVALID, "mine")
        assert result.error.startswith("Message.body: must be JSON for this topic: ")
        assert "secret" not in result.error


def test_rules_taken_away_count_for_the_next_message(desk):
    change(desk, "topic", "orders", body_format="json")
    client, fixed = desk.client(), credential()
    assert codes(client.call(request(Message(topic="orders", body=b"no"), credential=fixed))) == [Code.INVALID]
    change(desk, "topic", "orders", body_format="any")
    assert codes(client.call(request(Message(topic="orders", body=b"no"), credential=fixed))) == [Code.OK]


def test_an_application_may_call_from_its_networks_only(desk):
    client, fixed = desk.client(), credential()
    assert codes(client.call(request(Message(topic="orders"), credential=fixed))) == [Code.OK]
    change(desk, "application", "shop", addresses=["10.0.0.0/8", "2001:db8::/32"])
    for _ in range(2):
        (result,) = client.call(request(Message(topic="orders"), credential=fixed))
        assert result.code == Code.UNAUTHENTICATED
        assert "application shop may not be used from 127.0.0.1" in result.error
    change(desk, "application", "shop", addresses=["127.0.0.0/8"])
    for _ in range(2):
        assert codes(client.call(request(Message(topic="orders"), credential=fixed))) == [Code.OK]
        assert codes(desk.client().call(request(Message(topic="orders"), credential=fixed))) == [Code.OK]

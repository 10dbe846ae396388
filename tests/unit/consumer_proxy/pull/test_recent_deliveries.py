"""Deliveries that a consumer proxy remembers, from pulls that it has answered."""

from types import SimpleNamespace

import pytest

from common.ops.connection_pages import OpsRequest
from common.ops.delivery_pages import delivery_pages
from common.placement import topic_hash
from consumer_proxy.pull.recent_deliveries import ENDED_KEPT, REPLIES_KEPT, SentReply
from tests.unit.consumer_proxy.fakes import FakeConnection
from tests.unit.consumer_proxy.pieces import answer, message, piece, record, token
from tests.unit.consumer_proxy.world import ID, World


@pytest.fixture
def world():
    made = World()
    yield made
    made.view.close()


ORDERS = topic_hash(b"orders")


def lease(number, base=1000):
    return token(queue=3, base=base, lease=number, topic_hash=ORDERS)


def get(world, number, peer="10.0.0.1:5", connection=None, base=1000, messages=4):
    """A client pulls, and gets `messages` of queue 3 from offset `base` on, in a lease of this number."""
    connection = connection or FakeConnection()
    connection.peer = peer
    world.call(connection)
    world.source.answer(answer([piece([record(message(), ID)] * messages, lease(number, base), offset=base)]))
    return connection


def known(world, *connections, offset=1002, topic="orders", queue=3):
    server = SimpleNamespace(connections=dict.fromkeys(connections))
    return world.pulls.deliveries.of_message(server, topic, queue, offset)


def test_the_client_that_got_a_message_is_known_by_connection_and_lease(world):
    one = get(world, 7)
    world.clock.advance(50)
    other = get(world, 8, "10.0.0.2:6", base=1004)
    (row,) = known(world, one, other)
    assert (row["peer"], row["application"], row["group"], row["lease"], row["open"]) == (
        "10.0.0.1:5", "shop", "billing", 7, True
    )  # fmt: skip
    assert [each["lease"] for each in known(world, one, other, offset=1004)] == [8]
    assert known(world, one, other, topic="refunds") == known(world, one, other, queue=2) == []


def test_deliveries_come_newest_first_and_those_of_ended_connections_stay(world):
    first = get(world, 7)
    first.leave()
    world.clock.advance(50)
    second = get(world, 9, "10.0.0.2:6")
    assert [(each["lease"], each["open"]) for each in known(world, second)] == [(9, True), (7, False)]


def test_a_reply_that_never_left_is_no_delivery(world):
    connection = get(world, 7)
    connection.leave(unsent=True)
    assert known(world) == []


def test_only_the_last_replies_of_a_connection_are_kept(world):
    connection = None
    for number in range(REPLIES_KEPT + 1):
        connection = get(world, number, connection=connection, base=1000 + 4 * number)
    assert known(world, connection, offset=1000) == []
    assert [each["lease"] for each in known(world, connection, offset=1004)] == [1]


def test_ended_connections_are_bounded(world):
    for number in range(ENDED_KEPT + 5):
        world.pulls.deliveries.ended("10.0.0.1:5", (SentReply(number, None, b""),), [])
    assert len(world.pulls.deliveries._ended) == ENDED_KEPT


@pytest.mark.parametrize(
    "query", [{}, {"topic": "orders", "queue": "-1", "offset": "5"}, {"topic": "orders", "queue": "1"}]
)
def test_a_question_without_a_place_is_refused_with_its_rule(query):
    (show,) = delivery_pages(lambda *_: []).values()
    assert show(OpsRequest("GET", query, b"", "", ""))[0] == "400 Bad Request"
    assert show(OpsRequest("POST", query, b"", "", ""))[0] == "405 Method Not Allowed"
    assert show(OpsRequest("GET", {"topic": "o", "queue": "1", "offset": "5"}, b"", "", "")) == (
        "200 OK",
        {"deliveries": []},
    )

"""Requests to ZooKeeper whose answers do not come."""

import pytest
from kazoo.handlers.gevent import SequentialGeventHandler
from kazoo.handlers.threading import SequentialThreadingHandler

from common.config.errors import StoreUnavailable, UncertainWrite
from common.config.zookeeper_connection import ZooKeeperConnection
from common.config.zookeeper_options import ZooKeeperOptions

OPTIONS = ZooKeeperOptions("127.0.0.1:1", session_timeout_s=0.02, connect_timeout_s=0.1)


@pytest.fixture(params=[SequentialThreadingHandler, SequentialGeventHandler], ids=["threads", "gevent"])
def asked(request):
    """A connection that is up, and what makes a request without an answer."""
    connection = ZooKeeperConnection(OPTIONS, lambda state: None)
    connection.client.handler = request.param()
    connection._connected.set()
    return connection, connection.client.handler.async_result


def test_a_read_without_an_answer_is_repeated_and_then_unavailable(asked):
    connection, made = asked
    results = []
    with pytest.raises(StoreUnavailable, match="no answer"):
        connection.ask(lambda: results.append(made()) or results[-1])
    assert len(results) > 1


def test_a_write_without_an_answer_is_uncertain(asked):
    connection, made = asked
    with pytest.raises(UncertainWrite):
        connection.ask(made, writes=True)


def test_an_answer_and_an_error_are_passed_on(asked):
    connection, made = asked
    good, bad = made(), made()
    good.set("value")
    bad.set_exception(KeyError("no node"))
    assert connection.ask_all([lambda: good, lambda: good]) == ["value", "value"]
    with pytest.raises(KeyError):
        connection.ask(lambda: bad)

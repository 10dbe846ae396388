"""Requests to ZooKeeper whose answers do not come; which server is dialled, and for how long."""

import pytest
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.gevent import SequentialGeventHandler
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler

from common.config import zookeeper_dialling
from common.config.errors import StoreUnavailable, UncertainWrite
from common.config.zookeeper_connection import ZooKeeperConnection
from common.config.zookeeper_dialling import with_short_dials
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


@pytest.fixture
def dialled(asked, monkeypatch):
    """A client's connection to servers of which the second is on this machine; the time that it gives a dial."""
    connection, _ = asked
    monkeypatch.setattr(zookeeper_dialling, "is_own_machine", lambda host: host == "192.0.2.2")
    connection.client.hosts = [(f"192.0.2.{number}", 2181) for number in (1, 2, 3)]
    return connection.client._connection


def test_the_server_of_this_machine_is_dialled_first_and_the_others_by_chance(dialled):
    orders = {tuple(host for host, _, _ in dialled._expand_client_hosts()) for _ in range(100)}
    assert orders == {("192.0.2.2", "192.0.2.1", "192.0.2.3"), ("192.0.2.2", "192.0.2.3", "192.0.2.1")}


def test_a_server_that_took_no_connection_is_left_out_for_twice_as_long_while_there_are_others(dialled, monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr(zookeeper_dialling.time, "monotonic", lambda: now_s[0])

    def create_connection(address, **options):
        now_s[0] += 0.5 if address[0] == "192.0.2.1" else 0.0
        raise TimeoutError if address[0] == "192.0.2.1" else ConnectionRefusedError

    monkeypatch.setattr(dialled.handler, "create_connection", create_connection)

    def dial(*numbers):
        for number in numbers:
            dialled._socket = None
            with pytest.raises(ConnectionDropped):
                dialled._connect("", f"192.0.2.{number}", 2181)
        return {host for host, _, _ in dialled._expand_client_hosts()}

    assert dial(1, 2) == {"192.0.2.2", "192.0.2.3"}
    now_s[0] += 1.0
    assert dial(2, 3) == {"192.0.2.1", "192.0.2.2", "192.0.2.3"}
    dialled.client.hosts = [("192.0.2.1", 2181)]
    assert dial(1) == {"192.0.2.1"}


def test_while_the_own_server_closes_connections_no_other_one_is_dialled_for_half_of_the_session(dialled, monkeypatch):
    now_s, attempts, own_closes = [100.0], [], [True]
    monkeypatch.setattr(zookeeper_dialling.time, "monotonic", lambda: now_s[0])

    def connect_attempt(connection, host, hostip, port, retry):
        attempts.append(hostip)
        connection._is_refused = own_closes[0] and hostip == "192.0.2.2"

    monkeypatch.setattr(ConnectionHandler, "_connect_attempt", connect_attempt)

    def round_at(at_s):
        now_s[0] = at_s
        attempts.clear()
        for host in ("192.0.2.2", "192.0.2.1", "192.0.2.3"):
            dialled._connect_attempt("", host, 2181, dialled.retry_sleeper)
        return len(attempts)

    half_s = OPTIONS.session_timeout_s / 2
    assert [round_at(100.0), round_at(100.0 + 0.9 * half_s), round_at(100.0 + half_s)] == [1, 1, 3]
    own_closes[0] = False
    assert round_at(101.0) == 3  # as it does not listen
    own_closes[0] = True
    assert round_at(102.0) == 1


@pytest.mark.parametrize("handler", [SequentialThreadingHandler, SequentialGeventHandler])
def test_a_server_that_does_not_answer_is_given_up_before_the_session_ends(handler, monkeypatch):
    given = []
    monkeypatch.setattr(handler, "create_connection", lambda self, *addresses, **options: given.append(options))
    with_short_dials(handler()).create_connection(address=("192.0.2.1", 2181), timeout=2.0, use_ssl=False)
    assert given == [{"address": ("192.0.2.1", 2181), "timeout": 0.5, "use_ssl": False}]

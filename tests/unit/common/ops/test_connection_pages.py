"""Connections of a proxy on the operator's port: listed by anybody who reaches it, closed with the cluster's key."""

from types import SimpleNamespace

import gevent
import pytest
from prometheus_client import CollectorRegistry

from common.admin import audit
from common.admin.administrator import Administrator
from common.admin.connections import ProxyPageError, close_connection, find_connection, list_connections
from common.admin.errors import StateConflict
from common.clock import SystemClock
from common.config.applying import process_name
from common.config.errors import EntryNotFound, InvalidEntry
from common.config.memory_store import MemoryConfigStore
from common.net.connection_list import STEP, TOPICS_SHOWN, ConnectionList, ConnectionUse
from common.net.server import Accepted
from common.operator_proof import WINDOW_MS, OperatorKeys, ProxyKey, proof, proof_fault
from common.ops import start_ops
from common.ops.connection_pages import connection_pages

KEY = ProxyKey(b"k" * 32, False)
KEYS = OperatorKeys(cluster=KEY.secret)
PROCESS = process_name("consumer_proxy", "127.0.0.1", 9_000)
READER = ConnectionUse("shop", "readers", ("orders", "stock"), True)
SENDER = ConnectionUse("till")


class OpenConnection:
    tls = None
    queued = 7

    def __init__(self, number: int, use: ConnectionUse = READER) -> None:
        self.peer, self.use, self.closed, self.reason = f"10.0.0.1:{number}", use, False, ""

    def close(self, reason: str) -> None:
        self.closed, self.reason = True, reason


class Proxy:
    """The server's table and the operator's port over it, in this process."""

    def __init__(self, *uses: ConnectionUse) -> None:
        self.open = [OpenConnection(number, use) for number, use in enumerate(uses, 1)]
        table = {each: Accepted(number, 1_000 + number) for number, each in enumerate(self.open, 1)}
        self.list = ConnectionList(
            SimpleNamespace(connections=table), "ab", lambda each: each.use, lambda use, topic: topic in use.topics
        )
        pages = connection_pages(self.list, KEY, PROCESS, SystemClock())
        self.ops = start_ops("127.0.0.1", 0, CollectorRegistry(), dict, pages)
        self.store = MemoryConfigStore()
        self.store.report_applied(PROCESS, {"ops_port": self.ops.port})
        self.admin = Administrator(self.store, "test")


@pytest.fixture
def proxies():
    """Makes proxies; the verbs block, so they run in a thread of their own beside the loop."""
    made = []

    def make(*uses):
        made.append(Proxy(*uses))
        return made[-1]

    yield make
    for each in made:
        each.ops.stop()


def aside(function, *arguments):
    return gevent.get_hub().threadpool.apply(function, arguments)


def listed(proxy, limit=10, **wanted):
    return aside(list_connections, proxy.store, wanted, limit)


def test_connections_are_listed_with_what_they_were_used_for_last_the_longest_open_first(proxies):
    told = listed(proxies(READER, SENDER))
    first, second = told.rows
    assert (first.id, first.peer, first.application, first.group, first.topics) == (
        "ab-1", "10.0.0.1:1", "shop", "readers", ("orders", "stock"),
    )  # fmt: skip
    assert (first.process, first.kind, first.is_waiting, first.since_ms) == (PROCESS, "consumer_proxy", True, 1_001)
    assert (second.application, second.group, second.topics, told.total, told.faults) == ("till", "", (), 2, [])


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ({"application": "till"}, ["ab-2"]),
        ({"group": "readers"}, ["ab-1"]),
        ({"topic": "stock"}, ["ab-1"]),
        ({"topic": "other"}, []),
        ({"id": "ab-2"}, ["ab-2"]),
        ({"application": "till", "group": "readers"}, []),
    ],
)
def test_a_list_is_narrowed_at_the_proxy(proxies, wanted, ids):
    assert [row.id for row in listed(proxies(READER, SENDER), **wanted).rows] == ids


def test_a_list_is_bounded_and_says_how_many_there_are(proxies):
    proxy = proxies(*[READER] * (3 * STEP))
    assert (len(listed(proxy, 5).rows), listed(proxy, 5).total) == (5, 3 * STEP)
    many = proxies(ConnectionUse("shop", "readers", tuple(f"t{number}" for number in range(99))))
    (row,) = listed(many).rows
    assert (len(row.topics), row.topic_count) == (TOPICS_SHOWN, 99)


def test_a_connection_is_closed_once_by_its_id_and_the_journal_names_it(proxies):
    proxy = proxies(READER, SENDER)
    assert aside(close_connection, proxy.admin, KEYS, "ab-2").application == "till"
    assert [each.closed for each in proxy.open] == [False, True]
    (record,) = audit.latest(proxy.store, kind="connection")
    assert (record["action"], record["names"], record["old"]["peer"]) == ("close", ["ab-2"], "10.0.0.1:2")
    with pytest.raises(EntryNotFound, match=r"ab-2.*closed already"):
        aside(close_connection, proxy.admin, KEYS, "ab-2")


def test_without_the_clusters_key_nothing_is_closed(proxies):
    proxy = proxies(READER)
    with pytest.raises(StateConflict, match="Penstock-Proof is wrong"):
        aside(close_connection, proxy.admin, OperatorKeys(cluster=b"x" * 32), "ab-1")
    assert not proxy.open[0].closed and audit.latest(proxy.store) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"process": "another"}, "wrong"),
        ({"body": b"ab-2"}, "wrong"),
        ({"path": "/other"}, "wrong"),
        ({"at": "1000001"}, "wrong"),
        ({"given": "ä"}, "wrong"),
        ({"at": "x"}, "clock"),
        ({"now_ms": 1_000_000 + WINDOW_MS + 1}, "clock"),
    ],
)
def test_a_proof_holds_for_one_process_path_time_and_body(change, words):
    given = proof(KEY.secret, "p", "/close", 1_000_000, b"ab-1")
    asked = {"process": "p", "path": "/close", "at": "1000000", "body": b"ab-1", "given": given, "now_ms": 1_000_000}
    fault = proof_fault(KEY, **{**asked, **change})
    assert words in fault if words else fault == ""


@pytest.mark.parametrize("id", ["", "x" * 41, "ä", "a\nb" * 20])
def test_an_id_of_another_form_is_refused_before_a_proxy_is_asked(id):
    with pytest.raises(InvalidEntry, match="use one of the list"):
        find_connection(MemoryConfigStore(), id)


def test_a_proxy_that_does_not_answer_is_named_and_the_others_are_listed(proxies):
    proxy = proxies(READER)
    gone = process_name("producer_proxy", "127.0.0.1", 9_001)
    proxy.store.report_applied(gone, {"ops_port": 1})
    told = listed(proxy)
    assert len(told.rows) == 1 and told.faults[0].startswith(
        f"{gone}: its operator's port does not answer at 127.0.0.1:1"
    )
    with pytest.raises(ProxyPageError, match="does not answer"):
        aside(find_connection, proxy.store, "ab-9")

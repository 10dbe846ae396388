"""A proxy taken out of service by its operator's port: by the cluster's key, and only from the state that was seen."""

import socket
from types import SimpleNamespace

import gevent
import pytest
from prometheus_client import CollectorRegistry

from common.admin import audit
from common.admin.administrator import Administrator
from common.admin.errors import StateConflict
from common.admin.proxies import drain, find_proxy, list_proxies, standing, undrain
from common.admin.proxy_pages import ProxyPageError, ask, ask_proved
from common.clock import SystemClock
from common.config.applying import process_name
from common.config.errors import EntryNotFound, InvalidEntry
from common.config.memory_store import MemoryConfigStore
from common.operator_proof import DRAIN_PATH, OperatorKeys, ProxyKey, machine_key
from common.ops import start_ops
from common.ops.drain_pages import DrainSwitch, drain_pages

KEYS = OperatorKeys(cluster=b"k" * 32)
BY_CLUSTER_KEY = ProxyKey(KEYS.cluster, False)
ADMIN = b"a" * 32


class OpenConnection:
    """A connection with this many bytes answered, and sent."""

    closed = False

    def __init__(self, busy):
        self.busy, self.queued, self.left = busy, 100, 100

    def answer(self, size=10):
        self.queued += size
        self.busy = False

    def call_and_be_sent_on(self):
        self.busy = True
        self.answer()


class Proxy:
    """A proxy without clients, and the operator's port over it, in this process."""

    def __init__(self, store, port, key=BY_CLUSTER_KEY):
        self.is_out, self.refused, self.kept = False, 3, 0
        self.sending, self.idle = OpenConnection(busy=True), OpenConnection(busy=False)
        self.server = SimpleNamespace(connections=[self.sending, self.idle])
        self.name = process_name("producer_proxy", "127.0.0.1", port)
        self.switch = DrainSwitch(self)
        pages = drain_pages(self.switch, key, self.name, SystemClock())
        self.ops = start_ops("127.0.0.1", 0, CollectorRegistry(), dict, pages)
        store.report_applied(self.name, {"ops_port": self.ops.port})

    def drain(self):
        self.is_out = True

    def undrain(self):
        self.is_out = False

    def refused_draining(self):
        return self.refused

    def left(self):
        return {"buffered": self.kept, "buffered_bytes": 9 * self.kept}


class Site:
    def __init__(self):
        self.store = MemoryConfigStore()
        self.admin = Administrator(self.store, "test")
        self.first, self.second = Proxy(self.store, 9_001), Proxy(self.store, 9_002)

    def ask(self, verb, *arguments):
        """Verbs block, so they run in a thread of their own beside the loop."""
        return gevent.get_hub().threadpool.apply(verb, arguments)

    def state(self):
        return self.ask(standing, self.store, self.first.name).state


@pytest.fixture
def site():
    made = Site()
    yield made
    for each in (made.first, made.second):
        each.ops.stop()


def test_a_proxy_is_drained_once_its_calls_have_ended_and_nothing_is_kept_any_more(site):
    first = site.first
    first.kept = 1
    assert site.ask(drain, site.admin, KEYS, first.name).state == "draining" and first.is_out
    first.refused += 4
    first.idle.call_and_be_sent_on()
    told = site.ask(standing, site.store, first.name)
    assert (told.calls, told.answers, told.passed_on, told.left["buffered_bytes"]) == (1, 0, 4, 9)
    first.sending.answer()
    told = site.ask(standing, site.store, first.name)
    assert (told.calls, told.answers, told.connections) == (0, 1, 2)
    first.sending.left = 110
    assert site.state() == "draining"
    first.kept = 0
    first.sending.call_and_be_sent_on()  # calls go on to come, and are passed on
    assert site.state() == "drained"
    assert site.ask(undrain, site.admin, KEYS, first.name).state == "serving" and not first.is_out
    records = [(each["action"], each["names"]) for each in audit.latest(site.store, kind="proxy")]
    assert records == [("undrain", [first.name]), ("drain", [first.name])]


def test_what_is_so_already_is_neither_changed_nor_recorded(site):
    site.ask(undrain, site.admin, KEYS, site.first.name)
    site.ask(drain, site.admin, KEYS, site.first.name)
    turn = site.first.switch.turn
    site.ask(drain, site.admin, KEYS, site.first.name)
    assert site.first.switch.turn == turn and len(audit.latest(site.store)) == 1


def test_a_change_needs_the_clusters_key_and_the_state_that_was_seen(site):
    first = site.first
    with pytest.raises(StateConflict, match="Penstock-Proof is wrong"):
        site.ask(drain, site.admin, OperatorKeys(cluster=b"x" * 32), first.name)
    address, clock, turn = ("127.0.0.1", first.ops.port), SystemClock(), first.switch.turn
    for body, status in ((b"away " + turn.encode(), 400), (b"out old", 409), (b"out", 409)):
        assert site.ask(ask_proved, address, first.name, DRAIN_PATH, body, KEYS, clock)[0] == status
    assert not first.is_out
    site.ask(drain, site.admin, KEYS, first.name)
    site.ask(undrain, site.admin, KEYS, first.name)
    again = site.ask(ask_proved, address, first.name, DRAIN_PATH, f"out {turn}".encode(), KEYS, clock)
    assert again[0] == 409 and "meanwhile" in again[1]["error"] and not first.is_out  # as heard by somebody in between
    assert site.ask(ask, address, "DELETE", DRAIN_PATH)[0] == 405


def test_the_key_of_a_machine_drains_its_proxies_and_no_others_and_the_clusters_key_drains_none_of_them(site):
    own, other = machine_key(ADMIN, socket.gethostname()), machine_key(ADMIN, "elsewhere")
    made = Proxy(site.store, 9_005, ProxyKey(own, True))
    far = Proxy(site.store, 9_006, ProxyKey(other, True))
    with pytest.raises(StateConflict, match=r"Penstock-Machine-Proof is wrong.*--admin-key"):
        site.ask(drain, site.admin, KEYS, made.name)
    with pytest.raises(StateConflict, match="Penstock-Machine-Proof is wrong"):
        site.ask(drain, site.admin, OperatorKeys(admin=ADMIN), far.name)  # it says that it is of this machine
    assert not made.is_out and not far.is_out
    site.ask(drain, site.admin, OperatorKeys(admin=ADMIN, cluster=b"x" * 32), made.name)
    site.ask(drain, site.admin, OperatorKeys(admin=b"x" * 32, cluster=KEYS.cluster), site.first.name)
    assert made.is_out and site.first.is_out
    for each in (made, far):
        each.ops.stop()


def test_a_proxy_is_found_by_its_name_its_address_or_as_the_only_one_of_its_kind(site):
    name = site.first.name
    for text in (name, "producer_proxy@127.0.0.1:9001", "127.0.0.1:9001"):
        assert find_proxy(site.store, text) == name
    with pytest.raises(InvalidEntry, match="several are meant"):
        find_proxy(site.store, "producer-proxy")
    with pytest.raises(EntryNotFound, match=r"use one of producer_proxy@127\.0\.0\.1:9001, "):
        find_proxy(site.store, "consumer-proxy")


def test_a_proxy_that_does_not_answer_or_does_not_know_the_page_is_listed_with_the_reason(site):
    site.second.ops.stop()
    other = start_ops("127.0.0.1", 0, CollectorRegistry(), dict)
    older = process_name("producer_proxy", "127.0.0.1", 9_003)
    site.store.report_applied(older, {"ops_port": other.port})
    told = [(each.state, each.fault) for each in site.ask(list_proxies, site.store)]
    assert told[0] == ("serving", "") and "does not answer at 127.0.0.1" in told[1][1]
    assert told[2] == ("", "its version cannot be drained")
    with pytest.raises(ProxyPageError, match="cannot be drained"):
        site.ask(drain, site.admin, KEYS, older)
    other.stop()

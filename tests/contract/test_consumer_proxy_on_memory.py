"""The consumer proxy as it is, sockets and Thrift included, on a store in memory."""

import time

import gevent
import pytest
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TClient
from thriftpy2.transport import TFramedTransport, TSocket

from common.clock import SystemClock
from common.config import ConfigView
from common.config.memory_store import MemoryConfigStore
from common.contract import Ack, Code, Consumer, Credential, Position, PullRequest, Verdict
from common.credential import mint
from common.memory_broker import MemoryBroker
from common.net import Limits, listen
from consumer_proxy.proxy import ConsumerProxy
from consumer_proxy.sources.memory import MemorySource
from engine.link.record import encode_record

SECRET = "s" * 43
ID = bytes(range(16))


class Site:
    """A proxy in this process; clients call from threads of their own."""

    def __init__(self):
        store = MemoryConfigStore()
        store.put("topic", "orders", {"queues": 2}, 0)
        store.put("group", "billing", {"topics": ["orders"]}, 0)
        keys = [{"key_id": "k1", "secret": SECRET, "created_at_ms": 1}]
        store.put("application", "shop", {"keys": keys, "grants": [["pull", "*"]]}, 0)
        self.view = ConfigView(store)
        self.broker = MemoryBroker()
        self.broker.create_topic("orders", 2)
        source = MemorySource(self.broker, SystemClock())
        self.proxy = ConsumerProxy([(listen("127.0.0.1", 0), None)], self.view, source, Limits(), b"k" * 32)

    def store(self, queue, *bodies):
        records = [encode_record(message(body), ID) for body in bodies]
        self.broker.append("orders", queue, records, time.time_ns() // 1_000_000)

    def pull(self, **fields):
        """A call of a stock client, which blocks a thread while the proxy's loop turns."""
        return gevent.get_hub().threadpool.apply(_call, (self.proxy.server.ports[0], fields))

    def close(self):
        self.proxy.stop()
        self.view.close()


def _call(port, fields):
    transport = TFramedTransport(TSocket("127.0.0.1", port, socket_timeout=20_000))
    transport.open()
    try:
        credential = Credential(**mint("shop", "k1", SECRET, time.time_ns() // 1_000_000)._asdict())
        stub = TClient(Consumer, TBinaryProtocol(transport))
        return stub.pull(PullRequest(**{"credential": credential, "group": "billing", **fields}))
    finally:
        transport.close()


def message(body):
    return b"\x0b\0\1\0\0\0\6orders\x0b\0\2" + len(body).to_bytes(4, "big") + body + b"\0"


@pytest.fixture
def site():
    made = Site()
    yield made
    made.close()


def test_messages_are_pulled_and_acknowledged(site):
    site.store(0, b"one", b"two")
    first = site.pull()
    assert (first.code, [each.message.body for each in first.deliveries]) == (Code.OK, [b"one", b"two"])
    assert [(each.queue, each.offset, each.attempt, each.id) for each in first.deliveries] == [
        (0, 0, 1, ID.hex()),
        (0, 1, 1, ID.hex()),
    ]
    done, again = (each.receipt for each in first.deliveries)
    second = site.pull(acks=[Ack(done), Ack(again, Verdict.RETRY, 0), Ack(b"junk")], wait_ms=5000)
    assert [each.code for each in second.ack_results] == [Code.OK, Code.OK, Code.STALE_RECEIPT]
    assert [(each.message.body, each.attempt) for each in second.deliveries] == [(b"two", 2)]


def test_a_long_poll_ends_when_a_message_is_stored(site):
    waiting = gevent.spawn(site.pull, wait_ms=10_000)
    with gevent.Timeout(5):
        while not site.proxy.pulls.waiting:
            gevent.sleep(0.005)
        site.store(1, b"one")
        assert [each.message.body for each in waiting.get().deliveries] == [b"one"]


def test_positions_are_read_and_reported(site):
    site.store(1, b"one", b"two")
    response = site.pull(positions=[Position("orders", 1, offset=1), Position("orders", 0)])
    assert [(each.message.body, each.receipt) for each in response.deliveries] == [(b"two", b"")]
    assert [(each.code, each.next_offset, each.end_offset) for each in response.positions] == [(0, 2, 2), (0, None, 0)]


def test_a_stop_answers_a_waiting_pull(site):
    waiting = gevent.spawn(site.pull, wait_ms=10_000)
    with gevent.Timeout(5):
        while not site.proxy.pulls.waiting:
            gevent.sleep(0.005)
        site.proxy.stop()
        assert waiting.get().deliveries == []

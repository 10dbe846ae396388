"""Both proxies as they are, sockets and Thrift included, on one broker in memory: what is sent to one is pulled from the other."""

import hashlib
import time

import gevent
import pytest
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TClient
from thriftpy2.transport import TFramedTransport, TSocket

from common.clock import SystemClock
from common.config import ConfigView
from common.config.memory_store import MemoryConfigStore
from common.contract import Ack, Code, Consumer, Credential, Message, Producer, PullRequest, SendRequest, Verdict
from common.credential import mint
from common.memory_broker import MemoryBroker
from common.net import Limits, listen
from consumer_proxy.proxy import ConsumerProxy
from consumer_proxy.pull.in_process import InProcessConsumer, whole_pieces
from consumer_proxy.sources.memory import MemorySource
from engine.client.brokers import Brokers
from engine.link.pull import PullScope
from producer_proxy.proxy import ProducerProxy
from producer_proxy.targets.memory import MemoryTarget

SECRET = "s" * 43
QUEUES = 4
DEADLINE_S = 10


class Site:
    """A producer proxy and a consumer proxy of one configuration and one broker; no engine."""

    def __init__(self) -> None:
        config = MemoryConfigStore()
        config.put("topic", "orders", {"queues": QUEUES}, 0)
        for group in ("billing", "audit"):
            config.put("group", group, {"topics": ["orders"]}, 0)
        keys = [{"key_id": "k1", "secret": SECRET, "created_at_ms": 1}]
        config.put("application", "shop", {"keys": keys, "grants": [["send", "*"], ["pull", "*"]]}, 0)
        self.view = ConfigView(config)
        self.broker = MemoryBroker()
        self.source = MemorySource(self.broker, SystemClock())
        target = MemoryTarget(self.broker, SystemClock().now_ms)
        brokers = Brokers(b"k" * 32, role="producer_proxy")
        self.producers = ProducerProxy(
            [(listen("127.0.0.1", 0), None)], self.view, brokers, targets={"orders": target}
        )  # fmt: skip
        self.consumers = ConsumerProxy([(listen("127.0.0.1", 0), None)], self.view, self.source, Limits(), b"k" * 32)

    def send(self, *messages: Message):
        return call(self.producers.server.ports[0], Producer, "send", SendRequest(messages=list(messages)))

    def pull(self, **fields):
        return call(self.consumers.server.ports[0], Consumer, "pull", PullRequest(group="billing", **fields))

    def close(self) -> None:
        self.producers.stop()
        self.consumers.stop()
        self.view.close()


def call(port: int, service, method: str, request):
    """A call of a stock client, which blocks a thread while the proxies' loop turns."""
    request.credential = Credential(**mint("shop", "k1", SECRET, time.time_ns() // 1_000_000)._asdict())
    return gevent.get_hub().threadpool.apply(_call, (port, service, method, request))


def _call(port: int, service, method: str, request):
    transport = TFramedTransport(TSocket("127.0.0.1", port, socket_timeout=20_000))
    transport.open()
    try:
        return getattr(TClient(service, TBinaryProtocol(transport)), method)(request)
    finally:
        transport.close()


@pytest.fixture
def site():
    made = Site()
    yield made
    made.close()


def test_all_messages_arrive_once_unchanged_and_in_order_within_their_key(site):
    sent = [Message(topic="orders", key=f"k{i % 7}", body=hashlib.sha256(b"%d" % i).digest()) for i in range(200)]
    results = [result for at in range(0, 200, 50) for result in site.send(*sent[at : at + 50]).results]
    assert {result.code for result in results} == {Code.OK}
    pulled, acks = [], []
    deadline = time.monotonic() + DEADLINE_S
    while len(pulled) < 200 and time.monotonic() < deadline:
        response = site.pull(max_messages=64, wait_ms=100, acks=acks)
        assert {each.code for each in response.ack_results or ()} <= {Code.OK}
        pulled += response.deliveries
        acks = [Ack(each.receipt, Verdict.DONE) for each in response.deliveries]
    assert {each.code for each in site.pull(acks=acks).ack_results} == {Code.OK}
    by_key = {f"k{k}": [m.body for m in sent if m.key == f"k{k}"] for k in range(7)}
    got: dict[str, list[bytes]] = {key: [] for key in by_key}
    for each in sorted(pulled, key=lambda each: (each.queue, each.offset)):
        got[each.message.key].append(each.message.body)
    assert got == by_key
    assert {each.id for each in pulled} == {result.id for result in results}
    assert site.pull().deliveries == []


def test_a_waiting_pull_gets_what_is_sent_meanwhile(site):
    waiting = gevent.spawn(site.pull, wait_ms=10_000)
    with gevent.Timeout(DEADLINE_S):
        while not site.consumers.pulls.waiting:
            gevent.sleep(0.005)
        (result,) = site.send(Message(topic="orders", body=b"late")).results
        (delivery,) = waiting.get().deliveries
    assert (delivery.message.body, delivery.id, delivery.offset) == (b"late", result.id, result.offset)


def test_a_send_without_messages_has_no_results(site):
    assert site.send().results == []


def test_a_client_gives_back_what_it_has_not_processed_without_an_attempt(site):
    site.send(Message(topic="orders", body=b"x"))
    (first,) = site.pull().deliveries
    (again,) = site.pull(acks=[Ack(first.receipt, Verdict.RELEASE)]).deliveries
    assert (again.offset, again.attempt) == (first.offset, 1)


def test_a_consumer_inside_the_process_pulls_the_same_messages_without_a_connection_or_a_frame(site):
    site.send(*(Message(topic="orders", key="k", body=b"%d" % i) for i in range(10)))
    consumer = InProcessConsumer(site.source, PullScope(b"audit", {"orders": QUEUES}), invisible_ms=30_000)
    answers: list = []
    consumer.pull(consumer.question(max_messages=10), answers.append)
    with gevent.Timeout(DEADLINE_S):
        while not answers:
            gevent.sleep(0.001)
    assert sum(piece.count for piece in answers[0].pieces()) == 10
    codes: list = []
    consumer.acknowledge(whole_pieces(answers[0]), codes.append)
    with gevent.Timeout(DEADLINE_S):
        while not codes:
            gevent.sleep(0.001)
    assert set(codes[0]) == {Code.OK}
    assert len(site.pull().deliveries) == 10, "another group has its own progress"

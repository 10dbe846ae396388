"""The bridge over real links, with a Kafka cluster in memory."""

import itertools
import time

import pytest

from common.address import Address
from common.config import ConfigView
from common.config.memory_store import MemoryConfigStore
from common.contract import Code, Message, encode_struct
from common.kafka.errors import ClusterUnreachable, LoginRefused
from common.keyhash import queue_of
from engine.client.dial import dial
from engine.link.errors import LinkError
from engine.link.frame import HEADER, HEADER_SIZE, frame
from engine.link.operations import ADMIN, PRODUCE
from engine.link.produce import (
    ANY_PARTITION,
    ProducedMessage,
    decode_produced,
    encode_produce,
)
from engine.link.proof import KAFKA_BRIDGE_ROLE
from kafka_bridge import cluster_client, connecting
from kafka_bridge.clusters import Clusters
from kafka_bridge.server import BridgeServer
from tests.services.memory_kafka import MemoryKafka, MemoryKafkaDriver
from tests.waiting import until

KEY = b"k" * 32
ID = bytes(16)


class Link:
    """A proxy's end, blocking."""

    def __init__(self, address, key=KEY, role=KAFKA_BRIDGE_ROLE):
        self.sock, self.hello = dial(address, key, role=role)
        self.sock.settimeout(10)
        self._ids = itertools.count(1)

    def send(self, op, payload) -> int:
        request_id = next(self._ids)
        self.sock.sendall(frame(op, request_id, payload))
        return request_id

    def receive(self) -> tuple[int, int, bytes]:
        size, _, _, code, request_id, _ = HEADER.unpack(self._read(HEADER_SIZE))
        return request_id, code, self._read(size + 4 - HEADER_SIZE)

    def call(self, op, payload) -> tuple[int, bytes]:
        request_id = self.send(op, payload)
        answered, code, answer = self.receive()
        assert answered == request_id
        return code, answer

    def produce(self, *messages, topics=("orders",), cluster="main", patience_ms=3000):
        code, answer = self.call(PRODUCE, encode_produce(cluster, topics, patience_ms, messages))
        assert code == Code.OK
        return decode_produced(answer, len(messages))

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.sock.recv(size - len(data))
            assert chunk, "closed"
            data += chunk
        return data


class BridgeDesk:
    """A bridge with the cluster `main`, and one link to it."""

    def __init__(self, tmp_path):
        self.kafka, self.store = MemoryKafka(orders=4, pay=1), MemoryConfigStore()
        self.version = self.store.put("kafka", "main", {"bootstrap": "k:9092"}, 0)
        self.view = ConfigView(self.store)
        self.clusters = Clusters(self.view, lambda cluster: MemoryKafkaDriver(self.kafka))
        self.address = Address(str(tmp_path / "bridge.sock"))
        self.server = BridgeServer(self.address, KEY, self.clusters)
        self.link = Link(self.address)

    @property
    def client(self):
        return self.clusters.named("main")

    def send(self, *messages, **fields):
        return self.link.produce(*[message(0, each) for each in messages], **fields)

    def send_held(self) -> int:
        """Send a message to `orders` without waiting for its answer; returns the request id."""
        one = message(0, Message(topic="orders"))
        return self.link.send(PRODUCE, encode_produce("main", ["orders"], 3000, [one]))

    def close(self):
        self.server.stop_accepting()
        self.clusters.close(1.0)
        self.server.stop()
        self.view.close()


@pytest.fixture
def desk(tmp_path):
    made = BridgeDesk(tmp_path)
    yield made
    made.close()


def message(topic: int, one: Message, partition=ANY_PARTITION) -> ProducedMessage:
    return ProducedMessage(topic, partition, None if one.id else ID, encode_struct(one))


def test_messages_are_stored_by_key_in_order_and_results_are_those_of_kafka(desk):
    sent = [Message(topic="orders", key=f"k{i % 5}", body=b"%d" % i) for i in range(40)]
    for each, result in zip(sent, desk.send(*sent), strict=True):
        assert (result.code, result.partition) == (Code.OK, queue_of(each.key.encode(), 4))
        stored = desk.kafka.partitions["orders"][result.partition][result.offset]
        assert (stored.key, stored.value) == (each.key.encode(), each.body)
        assert abs(stored.timestamp - time.time() * 1000) < 60_000


def test_messages_without_a_key_take_one_partition_per_request_and_all_in_turn(desk):
    seen = [{result.partition for result in desk.send(*[Message(topic="orders")] * 3)} for _ in range(8)]
    assert all(len(each) == 1 for each in seen) and set.union(*seen) == {0, 1, 2, 3}


def test_a_partition_that_the_proxy_chose_is_taken(desk):
    (result,) = desk.link.produce(message(0, Message(topic="orders", key="a"), partition=2))
    assert result.partition == 2


def test_a_topic_that_kafka_does_not_have_is_unavailable_beside_one_that_is_stored(desk, monkeypatch):
    monkeypatch.setattr(cluster_client, "MISSING_S", 0.0)
    one, two = Message(topic="orders", body=b"x"), Message(topic="later", body=b"y")

    def send_both():
        return desk.link.produce(message(1, two), message(0, one), topics=("orders", "later"))

    missing, stored = send_both()
    assert (missing.code, missing.sentence) == (
        Code.UNAVAILABLE,
        'kafka topic "later": it does not exist; nothing was stored',
    )
    assert stored.code == Code.OK and [each.value for each in desk.kafka.records("orders")] == [b"x"]
    desk.kafka.create("later", 1)
    assert [each.code for each in send_both()] == [Code.OK, Code.OK]


def test_a_missing_topic_is_not_asked_for_with_each_message(desk):
    assert desk.send(Message(topic="later"), topics=["later"])[0].code == Code.UNAVAILABLE
    desk.kafka.create("later", 1)
    assert desk.send(Message(topic="later"), topics=["later"])[0].code == Code.UNAVAILABLE
    until(lambda: desk.send(Message(topic="later"), topics=["later"])[0].code == Code.OK, "it is asked for again")


def test_a_message_that_cannot_be_a_record_is_refused_and_the_others_are_stored(desk):
    bad = Message(topic="orders", properties={"penstock-tag": "x"})
    results = desk.send(Message(topic="orders"), bad, Message(topic="orders"))
    assert [each.code for each in results] == [Code.OK, Code.INVALID, Code.OK]
    assert results[1].sentence.startswith('Message.properties: "penstock-tag"')


def test_a_refusal_of_kafka_comes_back_with_its_code_and_sentence(desk):
    desk.kafka.refusal = (int(Code.TIMEOUT), "NOT_ENOUGH_REPLICAS_AFTER_APPEND")
    (result,) = desk.send(Message(topic="orders"))
    assert (result.code, result.sentence) == (Code.TIMEOUT, "NOT_ENOUGH_REPLICAS_AFTER_APPEND")
    assert desk.client.counts == {int(Code.TIMEOUT): 1}


def test_a_request_without_an_answer_does_not_delay_later_ones(desk):
    desk.kafka.is_holding = True
    first = desk.send_held()
    until(lambda: desk.kafka.held == 1, "the record is in flight")
    assert desk.send(Message(topic="later"), topics=["later"])[0].code == Code.UNAVAILABLE
    desk.kafka.release()
    request_id, _, answer = desk.link.receive()
    assert (request_id, decode_produced(answer, 1)[0].code) == (first, Code.OK)


def test_while_the_cluster_is_away_sends_are_unavailable_at_once_and_later_stored_again(desk, monkeypatch):
    monkeypatch.setattr(cluster_client, "BACKOFF_S", 0.02)
    assert desk.send(Message(topic="orders"))[0].code == Code.OK
    desk.kafka.fault = ClusterUnreachable('kafka "main": no broker has answered')
    desk.version = desk.store.put("kafka", "main", {"bootstrap": "l:9092"}, desk.version)
    until(lambda: bool(desk.client.fault), "the client has no producer")
    (result,) = desk.send(Message(topic="orders"), patience_ms=60_000)
    assert (result.code, result.sentence) == (
        Code.UNAVAILABLE,
        'kafka "main": no broker has answered; nothing was stored',
    )
    assert desk.clusters.health() == {"kafka main": 'kafka "main": no broker has answered'}
    desk.kafka.fault = None
    until(lambda: desk.client.is_open, "the producer is open")
    assert desk.send(Message(topic="orders"))[0].code == Code.OK
    assert desk.kafka.opened[-1].bootstrap == ("l:9092",) and desk.kafka.closed == 1


def test_a_producer_that_works_no_more_is_replaced_by_another_one(desk):
    assert desk.send(Message(topic="orders"))[0].code == Code.OK
    desk.kafka.fatal_faults.append('kafka "main": the producer was fenced')
    (result,) = desk.send(Message(topic="orders"))
    assert (result.code, result.sentence) == (
        Code.UNAVAILABLE,
        'kafka "main": the producer was fenced; nothing was stored',
    )
    until(lambda: len(desk.kafka.opened) == 2 and desk.client.is_open, "another producer is open")
    assert desk.send(Message(topic="orders"))[0].code == Code.OK and desk.kafka.closed == 1


def test_a_producer_that_keeps_what_it_holds_is_replaced_without_another_message(desk, monkeypatch):
    monkeypatch.setattr(cluster_client, "LOOK_S", 0.02)
    desk.kafka.is_holding = True
    first = desk.send_held()
    until(lambda: desk.kafka.held == 1, "the record is in flight")
    desk.kafka.fatal_faults.append('kafka "main": no broker answers')
    request_id, _, _ = desk.link.receive()  # what the closed producer held has its result
    assert request_id == first
    until(lambda: len(desk.kafka.opened) == 2 and desk.client.is_open, "another producer is open")


@pytest.mark.parametrize("security", ["sasl_plaintext", "plaintext"])
def test_a_login_is_tried_apart_when_results_do_not_come_and_is_told_when_it_is_refused(
    desk, monkeypatch, tmp_path, security
):
    monkeypatch.setattr(cluster_client, "LOOK_S", 0.02)
    monkeypatch.setattr(cluster_client, "LOGIN_BACKOFF_S", 0.05)
    password = tmp_path / "password"
    password.write_text("secret")
    login = {"user": "u", "password_file": str(password)} if security.startswith("sasl") else {}
    definition = {"bootstrap": "l:9092", "security": security, **login}
    assert desk.send(Message(topic="orders"))[0].code == Code.OK
    desk.version = desk.store.put("kafka", "main", definition, desk.version)
    until(lambda: len(desk.kafka.opened) == 2 and desk.client.is_open, "the client follows")
    desk.kafka.is_holding, desk.kafka.stalled_s = True, 5.0
    desk.send_held()
    until(lambda: desk.kafka.held == 1, "the record is in flight")
    desk.kafka.fault = ClusterUnreachable('kafka "main": no broker answered')
    looks = desk.kafka.looks
    until(lambda: desk.kafka.looks > looks + 3, "the keeper has looked")
    assert desk.client.is_open and desk.kafka.held == 1, "a cluster that is away keeps its producer"
    desk.kafka.fault = LoginRefused('kafka "main": k:9092 refused the login as u')
    if not login:
        looks = desk.kafka.looks
        until(lambda: desk.kafka.looks > looks + 3, "the keeper has looked")
        assert desk.client.is_open, "without a login there is none to try"
        return
    until(lambda: desk.client.fault, "the refused login is told")
    desk.link.receive()  # what the closed producer held has its result
    (result,) = desk.send(Message(topic="orders"))
    assert (result.code, result.sentence) == (
        Code.UNAVAILABLE, 'kafka "main": k:9092 refused the login as u; nothing was stored',
    )  # fmt: skip
    assert desk.clusters.health() == {"kafka main": 'kafka "main": k:9092 refused the login as u'}
    desk.kafka.fault, desk.kafka.stalled_s, desk.kafka.is_holding = None, 0.0, False
    until(lambda: desk.client.is_open, "the login is given back")
    assert desk.send(Message(topic="orders"))[0].code == Code.OK


def test_a_password_that_changes_in_its_file_opens_another_producer_before_the_present_one_is_closed(
    desk, monkeypatch, tmp_path
):
    monkeypatch.setattr(cluster_client, "LOOK_S", 0.02)
    monkeypatch.setattr(cluster_client, "LOGIN_BACKOFF_S", 0.05)
    monkeypatch.setattr(connecting, "FILES_LOOK_S", 0.02)
    password = tmp_path / "password"
    password.write_text("first")
    definition = {"bootstrap": "l:9092", "security": "sasl_plaintext", "user": "u", "password_file": str(password)}
    desk.version = desk.store.put("kafka", "main", definition, desk.version)
    assert desk.send(Message(topic="orders"))[0].code == Code.OK
    opened, closed = len(desk.kafka.opened), desk.kafka.closed
    desk.kafka.fault = LoginRefused("not known there yet")
    password.write_text("second")
    until(lambda: desk.kafka.refused >= 2, "the new password is tried again")
    assert desk.send(Message(topic="orders"))[0].code == Code.OK and desk.kafka.closed == closed, (
        "the old one serves on"
    )
    desk.kafka.is_holding = True
    first = desk.send_held()
    until(lambda: desk.kafka.held == 1, "the record is in flight")
    desk.kafka.fault = None
    until(lambda: desk.kafka.closed == closed + 1, "the former producer is closed")
    request_id, code, _ = desk.link.receive()  # and has given its results before
    assert (request_id, code) == (first, Code.OK)
    until(lambda: desk.client.is_open, "another producer is open")
    assert desk.send(Message(topic="orders"))[0].code == Code.OK
    assert [each.password for each in desk.kafka.opened[opened:]] == ["second"]


def test_a_cluster_that_is_removed_is_unavailable(desk):
    assert desk.send(Message(topic="orders"))[0].code == Code.OK
    desk.store.delete("kafka", "main", desk.version)
    until(lambda: "removed" in desk.client.fault or "any more" in desk.client.fault, "the client follows")
    (result,) = desk.send(Message(topic="orders"))
    assert result.code == Code.UNAVAILABLE and "configuration" in result.sentence


def test_a_cluster_that_the_configuration_does_not_have_is_unavailable_by_name(desk):
    (result,) = desk.send(Message(topic="orders"), cluster="other")
    assert (result.code, result.sentence) == (
        Code.UNAVAILABLE,
        'kafka "other": the configuration does not have this cluster; nothing was stored',
    )


def test_more_than_may_wait_is_overloaded(desk, monkeypatch):
    monkeypatch.setattr(cluster_client, "WAITING_BYTES_MAX", 1)
    desk.send(Message(topic="orders"))
    desk.client.waiting_bytes = 1
    (result,) = desk.send(Message(topic="orders"))
    assert result.code == Code.OVERLOADED and "nothing was stored" in result.sentence
    desk.client.waiting_bytes = 0


def test_a_stopping_bridge_answers_what_it_has_taken_and_refuses_the_rest(desk):
    desk.kafka.is_holding = True
    first = desk.send_held()
    until(lambda: desk.kafka.held == 1, "the record is in flight")
    desk.server.stop_accepting()
    second = desk.send_held()
    answered, _, answer = desk.link.receive()
    assert (answered, decode_produced(answer, 1)[0].code) == (second, Code.UNAVAILABLE)
    desk.clusters.close(2.0)
    answered, _, answer = desk.link.receive()
    assert (answered, decode_produced(answer, 1)[0].code) == (first, Code.OK)
    with pytest.raises(OSError):
        Link(desk.address)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"key": b"x" * 32}, "AUTH: the Kafka bridge has another cluster key"),
        ({"role": "producer_proxy"}, "HELLO: this is a Kafka bridge, which serves the role kafka_bridge only"),
    ],
)
def test_only_a_proxy_with_the_clusters_key_is_served(desk, fields, told):
    with pytest.raises(LinkError, match=told):
        Link(desk.address, **fields)


def test_a_link_that_sends_something_else_is_told_so_and_closed(desk):
    assert desk.link.call(ADMIN, b"{}") == (
        Code.INVALID,
        b"operation 30: this Kafka bridge does not have it",
    )
    code, answer = desk.link.call(PRODUCE, b"\x01")
    assert code == Code.INVALID and answer.startswith(b"PRODUCE: 1 bytes are cut off or damaged")
    assert desk.link.sock.recv(1) == b""
    until(lambda: desk.server.links == 0, "the link is closed")

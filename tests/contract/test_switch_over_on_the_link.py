"""A switch between two real engines: what the first one stored and did not answer is found by the second one."""

import shutil
import socket
from contextlib import suppress

import gevent
import pytest
from gevent import socket as gevent_socket

import tests.contract.link_engine as link_tests
from engine.client.append import Destination
from engine.client.brokers import Brokers
from engine.client.dial import dial
from engine.link.append import MEMORY, encode_append
from engine.link.batch import encode_batch
from engine.link.frame import frame
from engine.link.operations import APPEND
from engine.link.record import split_records
from engine.log.format import pack_record
from engine.server.native import NATIVE
from tests.contract.link_engine import FORMS, KEY, Engine, turn_until

FSYNC_LANE = 1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(params=FORMS)
def kind(request):
    if request.param == "native" and not NATIVE:
        pytest.skip("the native form is not built")
    return request.param


def bodies(engine: Engine, topic_id: int) -> list[bytes]:
    return [
        message
        for piece in engine.log.read(topic_id, 0, 0, 100, 1 << 20)
        for _, message in split_records(piece.records)
    ]


def test_the_second_engine_answers_what_the_first_one_stored_and_stores_the_rest_in_order(kind, tmp_path, monkeypatch):
    first = Engine(tmp_path / "a", kind)
    topic_id = first.topic(queues=1)
    port = free_port()
    brokers = Brokers(KEY, role="producer_proxy")
    brokers.use_one((("127.0.0.1", first.server.port), ("127.0.0.1", port)))
    turn_until(lambda: brokers.connected)
    destination = Destination(b"orders", topic_id, 1, 2, 1000)
    results: list = []

    def send(number: int) -> None:
        encoded = b"%d\0" % number
        lanes = brokers.lanes[FSYNC_LANE]
        assert lanes.submit([(destination, b"k", bytes(15) + bytes([number]), encoded)], results.extend)
        gevent.sleep(0.02)

    send(0)
    turn_until(lambda: len(results) == 1)
    monkeypatch.setattr(first.log, "when_durable", lambda position, callback: None)
    send(1)
    end = first.log.end_position
    shutil.copytree(tmp_path / "a" / "log", tmp_path / "b" / "log")
    for number in (2, 3, 4):  # one more flies, and the rest waits
        send(number)
    assert first.log.end_position > end and bodies(first, topic_id) == [b"0\0", b"1\0", b"2\0"]
    first.close()
    monkeypatch.setattr(link_tests, "LinkServer", lambda node, host, _, form: link_server(node, host, port, form=form))
    second = Engine(tmp_path / "b", kind)
    turn_until(lambda: len(results) == 5)
    assert results == [(0, 0, number) for number in range(5)]
    assert bodies(second, topic_id) == [b"%d\0" % number for number in range(5)]
    assert brokers.listed[0].breaker.opened == 0
    brokers.close()
    second.close()


def test_a_link_of_a_lane_ends_the_earlier_one_and_nothing_of_that_is_stored(kind, tmp_path):
    engine = Engine(tmp_path / "a", kind)
    topic_id = engine.topic(queues=1)
    address = "127.0.0.1", engine.server.port
    links = [
        dial(address, KEY, role="producer_proxy", lane=lane, sockets=gevent_socket)[0]
        for lane in ("one", "two", "one", "")
    ]
    links[0].settimeout(5)
    assert links[0].recv(1) == b""  # closed
    batch = encode_batch(topic_id, 0, [pack_record(b"late")])
    with suppress(OSError):
        links[0].sendall(frame(APPEND, 1, encode_append(MEMORY, batch)))
    for link in links[1:]:
        link.sendall(frame(APPEND, 1, encode_append(MEMORY, batch)))
        assert link.recv(4)
    assert bodies(engine, topic_id) == [b"late"] * 3
    for link in links:
        link.close()
    engine.close()


link_server = link_tests.LinkServer

"""Answers of the link server, the same from the native form and from the reference, on a real log."""

import json
import os
import struct
import time
from dataclasses import replace

import gevent
import pytest

from engine.link import layout
from engine.link.acknowledgement import DONE, RETRY, AckRange
from engine.link.codes import DISK_FULL
from engine.link.proof import CONTROLLER_ROLE, REPLICA_ROLE
from engine.link.pull import encode_pull
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion
from engine.link.record import split_records
from engine.link.topic import encode_topics
from engine.log.disk import DiskLevel
from engine.server.native import NATIVE
from tests import link_bytes as raw
from tests.contract.link_engine import FORMS, CrampedEnv, CrampedFile, Engine, ack, greeting_of_a_start, turn_until


def test_a_greeting_names_the_log_the_group_the_start_and_the_positions_of_the_engine(tmp_path):
    first, second = greeting_of_a_start(tmp_path / "engine"), greeting_of_a_start(tmp_path / "engine")
    assert first.log_id == second.log_id
    assert first.epoch != second.epoch and first.epoch and second.epoch, "each start has its own epoch"
    assert second.durable_position > first.durable_position > 0


def test_batches_are_answered_one_by_one_with_code_and_offset(engine):
    topic = engine.topic()
    payload = raw.append(
        raw.MEMORY, raw.batch(topic, 0, [b"a\0", b"b\0"]), raw.batch(99, 0, [b"c\0"]), raw.batch(topic, 0, [b"d\0"])
    )
    code, answer = engine.ask(layout.APPEND, payload)
    assert (code, raw.results(answer)) == (0, [(0, 0), (102, 0), (0, 2)])


def test_an_fsync_append_is_answered_when_it_is_durable(engine):
    engine.store(engine.topic(), 3, durability=raw.FSYNC)
    assert engine.log.durable_position == engine.log.end_position


@pytest.mark.parametrize("durability", [3, 4])
def test_a_lone_master_serves_replicated_appends_by_its_disk(engine, durability):
    engine.store(engine.topic(), 3, durability=durability)
    assert engine.log.durable_position == engine.log.end_position


def test_appends_of_one_connection_are_answered_in_order_whatever_their_durability(engine):
    topic, link = engine.topic(), engine.raw()
    for request_id in range(1, 41):
        link.send(raw.APPEND, raw.append(1 + request_id % 2, raw.batch(topic, 0, [b"m\0"])), request_id)
    answers = [link.receive() for _ in range(40)]
    assert [request_id for _, _, request_id, _ in answers] == list(range(1, 41))
    assert [raw.results(payload)[0] for *_, payload in answers] == [(0, offset) for offset in range(40)]


def test_a_duplicate_is_told_the_place_of_the_first_copy_whoever_sends_it(engine):
    topic, first, second = engine.topic(), engine.raw(), engine.raw()
    frame = raw.append(
        raw.MEMORY, raw.batch(topic, 1, [b"m\0"]), raw.checked(topic, 1, b"a"), raw.checked(topic, 0, b"a")
    )
    assert raw.full_results(first.ask(raw.APPEND, frame)[1]) == [(0, 0, 0), (0, 0, 1), (2, 1, 1)]
    again = raw.append(raw.MEMORY, raw.checked(topic, 0, b"a"), raw.checked(topic, 0, b"b"))
    assert raw.full_results(second.ask(raw.APPEND, again)[1]) == [(2, 1, 1), (0, 0, 0)]
    status = engine.admin("status")
    assert status["messages"] == 3, "duplicates are not counted as stored"


def test_a_duplicate_is_answered_when_the_first_copy_is_as_durable_as_the_second_send_asks(engine):
    topic = engine.topic()
    link = engine.raw()
    link.ask(raw.APPEND, raw.append(raw.MEMORY, raw.checked(topic, 0, b"a")))
    answer = link.ask(raw.APPEND, raw.append(raw.FSYNC, raw.checked(topic, 0, b"a")))[1]
    assert raw.full_results(answer) == [(2, 0, 0)]
    assert engine.log.durable_position == engine.log.end_position


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x01", b"\x09" + bytes(7), struct.pack("<B3xI", 1, 0), struct.pack("<B3xI", 1, 0xFFFFFFFF) + bytes(480)],
)
def test_an_append_that_makes_no_sense_is_invalid_and_stores_nothing(engine, payload):
    before = engine.log.end_position
    assert engine.ask(layout.APPEND, payload)[0] == layout.INVALID
    assert engine.log.end_position == before


def test_refused_appends_are_told_why_and_logged_once_however_many_there_are(engine, caplog):
    topic = engine.topic()
    engine.log.retention.disk.check = lambda: DiskLevel.REFUSE
    engine.log.retention._check()
    for _ in range(200):
        code, sentence = engine.ask(layout.APPEND, raw.append(raw.FSYNC, raw.batch(topic, 0, [b"m\0"])))
        assert code == DISK_FULL and sentence.startswith(b"disk full: the disk of")
    assert caplog.text.count("APPEND refused") == 1


def test_pull_acknowledge_and_lag_go_together(engine):
    engine.store(engine.topic(), 5)
    codes, (piece,) = engine.pull(max_messages=3)
    assert (codes, piece.first_offset, piece.count, piece.attempt) == ([], 0, 3, 1)
    assert [message for _, message in split_records(piece.records)] == [b"m\0"] * 3
    assert engine.pull(max_messages=0, acks=[AckRange(piece.token, piece.first_delta, 3, DONE, -1)]) == ([0], [])
    row = engine.admin("lag", group="g")["queues"][0]
    assert (row["progress"], row["end"], row["in_flight"], row["lag"]) == (3, 5, 0, 2)


def test_a_lease_that_runs_out_comes_back_to_a_waiting_pull(engine):
    engine.store(engine.topic(), 1)
    engine.pull(invisible_ms=50)
    _, (piece,) = engine.pull(wait_ms=5_000)
    assert piece.attempt == 2


def test_a_waiting_pull_is_woken_by_an_append_of_another_connection(engine):
    topic = engine.topic()
    waiting = gevent.spawn(engine.pull, wait_ms=10_000)
    turn_until(lambda: engine.delivery.parked)
    engine.store(topic, 2)
    _, (piece,) = waiting.get(timeout=2)
    assert piece.count == 2


def test_what_a_closed_connection_waited_for_is_given_to_others(engine):
    topic, link = engine.topic(), engine.raw()
    link.send(raw.PULL, encode_pull("g", [("orders", 2)], wait_ms=30_000))
    turn_until(lambda: engine.delivery.parked)
    link.close()
    turn_until(lambda: not engine.delivery.parked)
    engine.store(topic, 1)
    assert engine.pull()[1][0].attempt == 1


def test_a_waiting_pull_can_be_withdrawn(engine):
    engine.topic()
    answers = []
    request = encode_pull("g", [("orders", 2)], wait_ms=30_000)
    request_id = engine.rpc.send(layout.PULL, request, lambda code, payload: answers.append((code, payload)))
    turn_until(lambda: engine.delivery.parked)
    engine.rpc.cancel(request_id)
    turn_until(lambda: answers)
    assert (answers, engine.delivery.parked) == ([(0, bytes(8))], 0)


def test_ten_thousand_waiting_pulls_are_served_one_message_each(engine):
    topic, answers = engine.topic(), []
    request = encode_pull("g", [("orders", 2)], max_messages=1, wait_ms=30_000)
    for _ in range(10_000):
        engine.rpc.send(layout.PULL, request, lambda code, payload: answers.append(payload))
    turn_until(lambda: engine.delivery.parked == 10_000)
    engine.store(topic, 7)
    turn_until(lambda: len(answers) >= 7)
    gevent.sleep(0)
    assert (len(answers), engine.delivery.parked) == (7, 9_993)


def test_an_append_that_comes_while_pulls_are_in_work_does_not_wait_for_all_of_them(engine, monkeypatch, request):
    if request.node.callspec.params["engine"] == "twin":
        pytest.skip("the twin takes frame by frame")
    topic_id = engine.topic()
    puller, appender = engine.raw(), engine.raw()
    positions, pull = [], engine.delivery.pull

    def slow(*arguments):
        if not positions:
            frame = raw.frame(raw.APPEND, raw.append(raw.MEMORY, raw.batch(topic_id, 0, [b"m\0"])))
            os.write(appender.sock.fileno(), frame)
        positions.append(engine.log.end_position)
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until:
            pass
        return pull(*arguments)

    monkeypatch.setattr(engine.delivery, "pull", slow)
    asked = encode_pull("g", [("orders", 2)], wait_ms=0)
    os.write(puller.sock.fileno(), b"".join(raw.frame(raw.PULL, asked, number) for number in range(1, 11)))
    turn_until(lambda: len(positions) == 10)
    assert appender.receive()[1] == 0
    assert positions[0] < positions[1], "stored before the next pull had its turn"
    assert [puller.receive()[2] for _ in range(10)] == list(range(1, 11))


def test_a_read_leases_nothing_and_reports_bounds(engine):
    engine.store(engine.topic(), 6)
    positions = [
        ReadPosition("orders", 0, offset=2, end_offset=5),
        ReadPosition("orders", 0),
        ReadPosition("orders", 0, offset=7),
        ReadPosition("orders", 0, offset=-1),
        ReadPosition("orders", 2, offset=0),
        ReadPosition("nothing", 0, offset=0),
        ReadPosition("orders", 0, at_time_ms=-2),
    ]
    answer = ReadAnswer.decode(engine.ask(layout.READ, ReadQuestion(positions).encode())[1])
    reports = answer.reports
    assert [report.code for report in reports] == [0, 0, 107, 107, 100, 102, 0]
    assert (reports[0].next_offset, reports[1].next_offset, reports[6].next_offset) == (5, None, 6)
    assert (reports[2].min_offset, reports[2].end_offset) == (0, 6)
    assert [(piece.first_offset, piece.count, piece.token) for piece in answer.pieces()] == [(2, 3, bytes(48))]
    assert engine.pull()[1][0].first_offset == 0


def test_a_read_waits_for_new_records(engine):
    topic = engine.topic()
    request = ReadQuestion([ReadPosition("orders", 1, offset=0)], wait_ms=10_000).encode()
    waiting = gevent.spawn(engine.ask, layout.READ, request)
    turn_until(lambda: engine.node.reads.waiting_queues)
    engine.store(topic, 2, queue=1)
    (piece,) = ReadAnswer.decode(waiting.get(timeout=2)[1]).pieces()
    assert piece.count == 2
    empty = ReadQuestion([ReadPosition("orders", 0, offset=0)], wait_ms=60).encode()
    assert list(ReadAnswer.decode(engine.ask(layout.READ, empty)[1]).pieces()) == []


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xff",
        b"\x01\x00g\xff\xff",
        encode_pull("g", [("orders", 2)])[:-5],
        encode_pull("g") + b"x",
        encode_pull("../x"),
    ],
)
def test_a_pull_that_makes_no_sense_is_invalid(engine, payload):
    code, sentence = engine.ask(layout.PULL, payload)
    assert code == layout.INVALID and sentence


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01" + bytes(64),
        bytes(64),
        raw.frame(raw.PULL),
        raw.frame(raw.APPEND, bytes(64)),
    ],
)
def test_garbage_and_strangers_are_closed(engine, garbage):
    link = engine.raw(key=None)
    link.sock.sendall(garbage)
    assert link.is_closed()


def test_a_wrong_cluster_key_is_refused_and_closed(engine):
    link = engine.raw(key=None)
    link.greet()
    assert link.ask(raw.AUTH, bytes(32))[0] == layout.UNAUTHENTICATED
    assert link.is_closed()


def test_a_flood_of_greetings_ends_with_the_second_one_and_only_strangers_make_room_for_strangers(engine):
    links = [engine.raw() for _ in range(3)]
    places = engine.server.places
    assert len(places.strangers) == 0
    flood = engine.raw(key=None)
    question = json.dumps({"version": layout.VERSION, "role": "test", "nonce": "00" * 16}).encode()
    flood.sock.sendall(raw.frame(raw.HELLO, question) * 500)
    assert flood.is_closed()
    crowd = [engine.raw(key=None) for _ in range(5)]
    turn_until(lambda: len(places.strangers) == 5)
    places.strangers.count_max = 5
    crowd.append(engine.raw(key=None))
    assert crowd[0].is_closed() and places.pushed_out == 1
    late = engine.raw()
    for link in (*links, late):
        assert link.ask(raw.ADMIN, b"{}")[0] != layout.OK, "it is answered, if only by a refusal"


def test_a_proof_without_a_challenge_is_refused(engine):
    link = engine.raw(key=None)
    assert link.ask(raw.AUTH, bytes(32))[0] == layout.UNAUTHENTICATED
    assert link.is_closed()


def test_another_version_is_refused_with_a_sentence(engine):
    link = engine.raw(key=None)
    code, sentence = link.ask(raw.HELLO, b'{"version": 9}')
    assert code == layout.INVALID and b"version 2" in sentence
    assert link.is_closed()


def test_a_frame_that_comes_byte_by_byte_is_answered(engine):
    link = engine.raw()
    for byte in raw.frame(raw.TOPIC, encode_topics([("orders", 2)]), 9):
        link.sock.sendall(bytes([byte]))
        gevent.sleep(0)
    assert link.receive()[1:3] == (0, 9)


def test_a_link_of_a_proxy_cannot_administer(engine):
    code, sentence = engine.raw().ask(raw.ADMIN, b'{"verb": "stop"}')
    assert (code, sentence) == (
        layout.FORBIDDEN,
        b"ADMIN: needs a link of the role admin, and this one has the role test",
    )


@pytest.mark.parametrize(
    ("role", "op", "needed"),
    [
        ("producer_proxy", layout.FETCH, b"FETCH: needs a link of the role replica"),
        ("consumer_proxy", layout.FOLLOW, b"FOLLOW: needs a link of the role replica"),
        ("producer_proxy", layout.HAND_OVER, b"HAND_OVER: needs a link of the role controller"),
        (CONTROLLER_ROLE, layout.FETCH, b"FETCH: needs a link of the role replica"),
        (CONTROLLER_ROLE, layout.APPEND, b"APPEND: needs a link of a proxy"),
        (REPLICA_ROLE, layout.APPEND, b"APPEND: needs a link of a proxy"),
        (REPLICA_ROLE, layout.READ, b"READ: needs a link of a proxy"),
    ],
)
def test_what_a_role_does_not_have_is_refused_with_a_sentence_and_counted(engine, role, op, needed):
    topic, end = engine.topic(), engine.log.end_position
    payload = raw.append(raw.MEMORY, raw.batch(topic, 0, [b"m"])) if op == layout.APPEND else b""
    code, sentence = engine.raw(role=role).ask(op, payload)
    assert code == layout.FORBIDDEN and sentence == needed + b", and this one has the role " + role.encode()
    assert engine.node.handshake.keys.forbidden == 1 and engine.log.end_position == end


def test_progress_and_receipts_survive_a_restart(engine, tmp_path, request):
    engine.store(engine.topic(), 6)
    _, (piece,) = engine.pull(max_messages=4)
    engine.pull(max_messages=0, acks=[ack(piece, count=2)])
    engine.close()
    again = Engine(tmp_path / "engine", request.node.callspec.params["engine"])
    try:
        codes, pieces = again.pull(acks=[ack(piece, first=3, count=1)])
        assert codes == [0]
        assert [(each.first_offset, each.count, each.attempt) for each in pieces] == [(4, 2, 1)], "a lease goes on"
        codes, pieces = again.pull(acks=[ack(piece, first=2, count=1)._replace(verdict=RETRY, delay_ms=0)])
        assert codes == [0]
        assert [(each.first_offset, each.count, each.attempt) for each in pieces] == [(2, 1, 2)]
    finally:
        again.close()
        engine.close = lambda: None


def test_progress_of_many_queues_is_written_in_slices_and_all_of_it(engine, monkeypatch):
    monkeypatch.setattr(engine.node, "_config", replace(engine.node._config, progress_cursors=1))
    topic = engine.topic("wide", 12)
    for queue in range(12):
        engine.store(topic, 1, queue=queue)
    _, pieces = engine.pull(topics=(("wide", 12),))
    assert len(pieces) == 12
    with gevent.Timeout(5):
        while engine.delivery.has_progress:
            gevent.sleep(0.005)
    assert len(list(engine.log.progress(b"gg\0"))) == 12


def test_a_connection_is_not_closed_before_what_it_appended_is_durable_and_answered(engine, monkeypatch):
    topic_id, link = engine.topic(), engine.raw()
    synced = []
    monkeypatch.setattr(engine.log, "when_durable", lambda position, callback: synced.append(callback))
    link.send(raw.APPEND, raw.append(raw.FSYNC, raw.batch(topic_id, 0, [b"m\0"])), 7)
    turn_until(lambda: synced)
    for connection in list(engine.server.connections):
        connection.close_when_sent()
    gevent.sleep(0.01)
    for callback in synced:
        callback()
    assert link.receive()[2] == 7
    assert link.is_closed()


@pytest.mark.parametrize("form", FORMS)
def test_a_full_disk_refuses_appends_with_a_sentence_and_takes_them_again_when_there_is_room(
    form, tmp_path, monkeypatch
):
    if form == "native" and not NATIVE:
        pytest.skip("the native form is not built")
    engine = Engine(tmp_path / "engine", form, CrampedEnv())
    try:
        topic = engine.topic()
        payload = raw.append(raw.MEMORY, raw.batch(topic, 0, [b"m\0"]))
        monkeypatch.setattr(CrampedFile, "full", True)
        code, sentence = engine.ask(layout.APPEND, payload)
        assert (code, b"No space" in sentence) == (DISK_FULL, True)
        assert engine.pull(max_messages=0) == ([], [])
        monkeypatch.setattr(CrampedFile, "full", False)
        code, answer = engine.ask(layout.APPEND, payload)
        assert (code, raw.results(answer)) == (0, [(0, 0)])
        assert engine.pull()[1][0].first_offset == 0
    finally:
        engine.close()

"""A real engine process: stop, kill, restart, keys, locks."""

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

from engine.client import admin
from engine.link.acknowledgement import RETRY, AckRange
from engine.link.errors import LinkError
from engine.link.pieces import AnswerPiece
from engine.link.pull import decode_answer, encode_pull
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion
from engine.link.record import split_records
from engine.link.topic import encode_topics
from tests import link_bytes as raw
from tests.waiting import until

KEY = b"the cluster's key, 32 bytes long"
ADMIN_SECRET = b"the operators' key, 32 bytes too"


class EngineProcess:
    """`python -m engine` on a directory; restartable."""

    def __init__(self, data, *options: str) -> None:
        self.data, self.options = data, options
        self.key_file = data.parent / "cluster.key"
        self.admin_key_file = data.parent / "admin.key"
        for path, key in ((self.key_file, KEY), (self.admin_key_file, ADMIN_SECRET)):
            path.touch(0o600)
            path.write_bytes(key)
        self.start()

    def command(self) -> list[str]:
        base = [sys.executable, "-m", "engine", "--data", str(self.data), "--listen", "127.0.0.1:0"]
        keys = ["--cluster-key", str(self.key_file), "--admin-key", str(self.admin_key_file)]
        return [*base, *keys, "--segment-mib", "8", *self.options]

    def start(self) -> None:
        reading, writing = os.pipe()
        self.process = subprocess.Popen([*self.command(), "--ready-fd", str(writing)], pass_fds=[writing])
        os.close(writing)
        with os.fdopen(reading) as ready:
            line = ready.readline()
        assert line, f"the engine ended with {self.process.wait(10)}"
        self.facts = json.loads(line)
        self.address = (self.facts["host"], self.facts["port"])

    def link(self) -> raw.RawLink:
        return raw.RawLink(self.facts["port"], KEY)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.facts['ops_port']}/metrics", timeout=5) as page:
            lines = page.read().decode().splitlines()
        return {line.split()[0]: float(line.split()[1]) for line in lines if line and not line.startswith("#")}


@pytest.fixture
def engine(tmp_path):
    made = EngineProcess(tmp_path / "engine")
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.wait(10)


def topic(link: raw.RawLink, name: str = "orders", queues: int = 2) -> int:
    code, payload = link.ask(raw.TOPIC, encode_topics([(name, queues)]))
    assert code == 0, payload
    return json.loads(payload)["topics"][0]["id"]


def store(link: raw.RawLink, topic_id: int, messages: list[bytes], durability: int = raw.FSYNC, queue: int = 0) -> int:
    code, payload = link.ask(raw.APPEND, raw.append(durability, raw.batch(topic_id, queue, messages)))
    assert code == 0, payload
    ((batch_code, base_offset),) = raw.results(payload)
    assert batch_code == 0
    return base_offset


def pull(link: raw.RawLink, **options) -> tuple[list[int], list[AnswerPiece]]:
    code, payload = link.ask(raw.PULL, encode_pull("g", [("orders", 2)], **options))
    assert code == 0, payload
    return decode_answer(payload)


def whole(piece: AnswerPiece) -> AckRange:
    return AckRange(piece.token, piece.first_delta, piece.count)


def end_position(engine: EngineProcess, beyond: int = -1) -> int:
    """The log's end; 0 while it has not grown beyond."""
    found = admin.status(engine.address, ADMIN_SECRET)["end_position"]
    return found if found > beyond else 0


def test_messages_come_out_as_they_went_in_and_come_back_until_they_are_acknowledged(engine):
    link = engine.link()
    store(link, topic(link), [b"one\0", b"two\0"])
    _, (piece,) = pull(link, invisible_ms=200)
    assert [message for _, message in split_records(piece.records)] == [b"one\0", b"two\0"]
    expired_from = time.monotonic()
    _, (again,) = pull(link, wait_ms=5_000)
    assert again.attempt == 2
    assert time.monotonic() - expired_from < 1.2
    assert pull(link, max_messages=0, acks=[whole(piece), whole(again)])[0] == [106, 0]
    figures = engine.metrics()
    assert figures["penstock_engine_redeliveries_total"] == 2
    assert figures["penstock_engine_acks_total"] == 2


def test_a_clean_stop_keeps_progress_and_ends_with_zero(engine):
    link = engine.link()
    store(link, topic(link), [b"m\0"] * 10)
    _, (piece,) = pull(link, max_messages=6)
    pull(link, max_messages=0, acks=[whole(piece)])
    assert engine.end() == 0
    engine.start()
    _, pieces = pull(engine.link())
    assert [(piece.first_offset, piece.count, piece.attempt) for piece in pieces] == [(6, 4, 1)]


def test_a_kill_redelivers_only_what_was_not_acknowledged_and_written(engine):
    link = engine.link()
    store(link, topic(link), [b"m\0"] * 10)
    position = end_position(engine)
    _, (piece,) = pull(link, max_messages=6)
    position = until(lambda: end_position(engine, position), "the lease is written")
    pull(link, max_messages=0, acks=[whole(piece)._replace(count=4)])
    until(lambda: end_position(engine, position), "the acknowledgement is written")
    engine.end(signal.SIGKILL)
    engine.start()
    link = engine.link()
    codes, pieces = pull(link, acks=[whole(piece)._replace(first=4, count=1)])
    assert codes == [0], "a receipt from before the kill still counts"
    assert [(piece.first_offset, piece.count) for piece in pieces] == [(6, 4)], "the other lease goes on"
    codes, (again,) = pull(link, acks=[whole(piece)._replace(first=5, count=1, verdict=RETRY, delay_ms=0)])
    assert codes == [0]
    assert (again.first_offset, again.count, again.attempt) == (5, 1, 2)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_leases_and_delays_go_on_over_a_restart_however_it_ends(engine, ending):
    link = engine.link()
    store(link, topic(link), [b"m\0"] * 10)
    _, (piece,) = pull(link, max_messages=6, invisible_ms=60_000)
    later = whole(piece)._replace(count=2, verdict=RETRY, delay_ms=60_000)
    position = end_position(engine)
    assert pull(link, max_messages=0, acks=[later])[0] == [0]
    if ending == signal.SIGKILL:
        until(lambda: end_position(engine, position), "the delay is written")
    engine.end(ending)
    engine.start()
    link = engine.link()
    _, (fresh,) = pull(link)
    assert (fresh.first_offset, fresh.count, fresh.attempt) == (6, 4, 1)
    assert pull(link, acks=[whole(piece)._replace(first=2, count=4)]) == ([0], [])


def test_a_kill_under_load_loses_nothing_that_was_acknowledged_as_synced(engine):
    acknowledged: dict[int, bytes] = {}
    topic_id = topic(engine.link())

    def produce(name: int) -> None:
        link, number = engine.link(), 0
        try:
            while True:
                body = struct.pack("<II", name, number) + b"\0"
                acknowledged[store(link, topic_id, [body])] = body
                number += 1
        except OSError:
            return

    producers = [threading.Thread(target=produce, args=(name,)) for name in range(4)]
    for producer in producers:
        producer.start()
    until(lambda: len(acknowledged) > 500, "load")
    engine.end(signal.SIGKILL)
    for producer in producers:
        producer.join(10)
    engine.start()
    found = dict(read_all(engine.link()))
    assert len(acknowledged) > 500
    assert {offset: found.get(offset) for offset in acknowledged} == acknowledged


def read_all(link: raw.RawLink):
    """(offset, message) of everything in queue 0."""
    offset = 0
    while True:
        request = ReadQuestion([ReadPosition("orders", 0, offset)], max_messages=5_000, max_bytes=8 << 20).encode()
        pieces = list(ReadAnswer.decode(link.ask(raw.READ, request)[1]).pieces())
        if not pieces:
            return
        for piece in pieces:
            yield from enumerate((message for _, message in split_records(piece.records)), piece.first_offset)
            offset = piece.first_offset + piece.count


def test_appends_in_flight_are_answered_before_a_clean_stop(engine):
    link = engine.link()
    topic_id = topic(link)
    for request_id in range(1, 101):
        link.send(raw.APPEND, raw.append(raw.FSYNC, raw.batch(topic_id, 0, [b"m\0"])), request_id)
    assert link.receive()[2] == 1
    engine.process.send_signal(signal.SIGTERM)
    answered = 1
    try:
        while True:
            link.receive()
            answered += 1
    except ConnectionError:
        pass
    assert engine.process.wait(20) == 0
    engine.start()
    stored = sum(1 for _ in read_all(engine.link()))
    assert answered == stored


def test_a_wrong_cluster_key_is_refused(engine):
    with pytest.raises((LinkError, ConnectionError)):
        admin.status(engine.address, b"x" * 32)
    assert admin.status(engine.address, ADMIN_SECRET)["connections"] >= 1


def test_a_second_engine_on_the_directory_says_so_in_one_line_and_leaves_the_first_alone(engine):
    second = subprocess.run(engine.command(), capture_output=True, text=True, timeout=30)
    assert second.returncode != 0
    assert len(second.stderr.strip().splitlines()) == 1 and "held by another engine" in second.stderr
    assert admin.status(engine.address, ADMIN_SECRET)["connections"] >= 1


def test_wrong_options_are_all_named_at_once(tmp_path):
    command = [sys.executable, "-m", "engine", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
    wrong = ["--cluster-key", str(tmp_path / "none"), "--segment-mib", "0", "--progress-ms", "1"]
    told = subprocess.run([*command, *wrong], capture_output=True, text=True, timeout=30)
    assert told.returncode == 2
    assert all(name in told.stderr for name in ("--cluster-key", "--segment-mib", "--progress-ms"))


def test_an_operator_can_stop_the_engine_over_the_link(engine):
    admin.stop(engine.address, ADMIN_SECRET)
    assert engine.process.wait(20) == 0


def text(field: int, value: bytes) -> bytes:
    return struct.pack(">bhi", 11, field, len(value)) + value


def fill(engine, first: int, count: int) -> None:
    """Messages of 4 KiB with ids and keys, in queue 1."""
    with_names = [
        text(2, bytes(4096)) + text(3, b"key-%d" % (number % 100)) + text(6, b"id-%d" % number) + b"\0"
        for number in range(first, first + count)
    ]
    link = engine.link()
    topic_id = topic(link)
    for at in range(0, count, 50):
        store(link, topic_id, with_names[at : at + 50], raw.MEMORY, queue=1)


def message_command(engine, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-P", "-m", "penstock", "message", *arguments, "--topic", "orders", "-o", "json"]
    where = ["--data", str(engine.data.parent), "--engine", f"{engine.address[0]}:{engine.address[1]}"]
    return subprocess.run([*command, *where], capture_output=True, text=True, timeout=60, check=True)


def found_offsets(told: subprocess.CompletedProcess) -> list[int]:
    return [each["offset"] for each in json.loads(told.stdout)]


def test_files_of_names_are_made_behind_the_log_and_messages_found_by_them_also_after_a_kill(tmp_path):
    engine = EngineProcess(tmp_path / "engine", "--segment-mib", "1")

    def made() -> bool:
        kinds = [path.suffix for path in (tmp_path / "engine" / "log").iterdir()]
        return kinds.count(".mid") == kinds.count(".key") == kinds.count(".idx") >= 3

    try:
        fill(engine, 0, 1000)
        until(made, "files of names beside every full segment", 30)
        until(lambda: engine.metrics()["penstock_engine_name_files_made_total"] >= 6, "each to be counted", 10)
        assert engine.end(signal.SIGKILL) == -signal.SIGKILL
        engine.start()
        fill(engine, 1000, 50)
        for number in (0, 500, 1049):
            told = message_command(engine, "show", f"id-{number}")
            assert (found_offsets(told), told.stderr) == ([number], "")
        assert found_offsets(message_command(engine, "find", "--key", "key-7")) == list(range(7, 1050, 100))
        assert engine.metrics()["penstock_engine_look_ups_total"] == 4
    finally:
        engine.end(signal.SIGKILL)


def test_an_engine_without_look_up_has_no_files_and_the_command_says_that_it_reads(tmp_path):
    engine = EngineProcess(tmp_path / "engine", "--look-up", "none")
    try:
        fill(engine, 0, 200)
        for told, offsets in (
            (message_command(engine, "show", "id-7"), [7]),
            (message_command(engine, "find", "--key", "key-7"), [7, 107]),
        ):
            assert found_offsets(told) == offsets and "reading" in told.stderr and "--look-up" in told.stderr
    finally:
        engine.end(signal.SIGKILL)


def test_a_family_that_does_not_exist_is_refused(tmp_path):
    (tmp_path / "key").touch(0o600)
    (tmp_path / "key").write_bytes(KEY)
    command = [sys.executable, "-m", "engine", "--data", str(tmp_path / "e"), "--listen", "127.0.0.1:0"]
    told = subprocess.run(
        [*command, "--cluster-key", str(tmp_path / "key"), "--look-up", "id,body"], capture_output=True
    )
    assert told.returncode != 0 and b"look_up" in told.stderr and b"Traceback" not in told.stderr

"""`Consumer.run` of each SDK: slow handlers, leases, stops and outages. One behaviour, described in clients/README.md."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.clients.access import Access, of_fake, of_running
from tests.e2e.clients.conftest import LANGUAGES_IN_LONG_TESTS
from tests.services import thrift_toolchains
from tests.services.fake_penstock import FakePenstock, FakeProxy, consumer_thrift
from tests.waiting import until

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "clients" / "python"))

from penstock_client import Message, Producer

MESSAGES = 40
WITH_WORKERS = [each for each in LANGUAGES_IN_LONG_TESTS if each != "php"]  # which has one thread


@dataclass
class Worker:
    """One `work` program; its output goes to files, so that a test can look at it while it runs."""

    process: subprocess.Popen
    out: Path
    errors: Path
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def lines(self) -> list[list[str]]:
        """Topic, queue, offset and attempt of each handled message."""
        return [line.split("\t") for line in self.out.read_text().splitlines() if line[:1] != "{"]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.wait()

    def wait(self) -> None:
        assert self.process.wait(30) == 0, self.errors.read_text()
        self.counts = json.loads(self.out.read_text().splitlines()[-1])


class Workers:
    """Starts `work` in one language for one application."""

    def __init__(self, language: str, access: Access, folder: Path) -> None:
        self._language, self._access, self._folder = language, access, folder
        self.started: list[Worker] = []

    def start(self, topics: str, *arguments: object) -> Worker:
        common = ("--endpoints", self._access.consumer, "--app", self._access.app, "--key-id", self._access.key_id)
        line = [*thrift_toolchains.program(self._language, "work"), *common, "--topic", topics, "--group", "clients.g"]
        out, errors = (self._folder / f"{len(self.started)}.{kind}" for kind in ("out", "errors"))
        with out.open("wb") as stdout, errors.open("wb") as stderr:
            process = subprocess.Popen(
                [*line, *map(str, arguments)],
                env=thrift_toolchains.environment(PENSTOCK_SECRET=self._access.secret),
                stdout=stdout,
                stderr=stderr,
            )
        self.started.append(Worker(process, out, errors))
        return self.started[-1]

    def handled(self) -> list[tuple[str, ...]]:
        """Topic, queue and offset of all handled messages, of all workers."""
        return sorted(tuple(line[:3]) for worker in self.started for line in worker.lines)

    def close(self) -> None:
        for worker in self.started:
            worker.process.kill()
            worker.process.wait()


@pytest.fixture
def fake_workers(language: str, fake: FakePenstock, tmp_path: Path) -> Iterator[Workers]:
    fake.wait_ms_max = 300  # a stop waits for the pull in progress
    made = Workers(language, of_fake(fake), tmp_path)
    yield made
    made.close()


def send(access: Access, topic: str, count: int = MESSAGES, key: str | None = None) -> None:
    messages = (Message(topic=topic, body=b"x", key=key) for _ in range(count))
    with Producer(access.producer, access.app, access.key_id, access.secret) as producer:
        assert all(result.ok for result in producer.send_all(messages))


def stop_all(workers: Workers) -> None:
    for worker in workers.started:
        worker.process.send_signal(signal.SIGTERM)
    for worker in workers.started:
        worker.wait()


@pytest.mark.parametrize("language", LANGUAGES_IN_LONG_TESTS, indirect=True)
def test_two_slow_consumers_handle_each_message_once(penstock_up, language: str, tmp_path: Path):
    access = of_running(penstock_up)
    workers = Workers(language, access, tmp_path)
    topic = access.topic(f"loop.{language}")
    send(access, topic)
    try:
        for _ in range(2):
            workers.start(topic, "--handle-ms", 100, "--lease-ms", 1_000)
        until(lambda: len(workers.handled()) >= MESSAGES, "all messages handled", 30)
        stop_all(workers)
    finally:
        workers.close()
    assert len(workers.handled()) == len(set(workers.handled())) == MESSAGES
    assert all(worker.lines and worker.counts["refused"] == 0 for worker in workers.started)


@pytest.mark.parametrize("language", LANGUAGES_IN_LONG_TESTS, indirect=True)
def test_the_loop_outlives_kills_of_the_engine_and_of_its_proxy(penstock_up, language: str, tmp_path: Path):
    access = of_running(penstock_up)
    workers = Workers(language, access, tmp_path)
    topic = access.topic(f"loop.kills.{language}")
    send(access, topic)
    try:
        worker = workers.start(topic, "--handle-ms", 20, "--lease-ms", 1_000, "--deadline-ms", 500)
        until(lambda: len(workers.handled()) >= 5, "a few messages handled", 30)
        killed = {name: penstock_up.kill(name) for name in ("engine", "consumer_proxy")}
        for name, pid in killed.items():
            penstock_up.wait_replaced(name, pid)
        until(lambda: len(set(workers.handled())) == MESSAGES, "all messages handled", 30)
        worker.stop()
    finally:
        workers.close()


def test_a_handler_that_takes_longer_than_the_lease_keeps_its_message(fake: FakePenstock, fake_workers: Workers):
    fake.store.lease_ms = 1_000  # the group's setting, which the answer tells
    send(of_fake(fake), "t", 2)
    for _ in range(2):
        fake_workers.start("t", "--handle-ms", 2_500)
    until(lambda: len(fake_workers.handled()) >= 2, "both messages handled", 30)
    stop_all(fake_workers)
    assert len(fake_workers.handled()) == len(fake.store.done) == 2
    assert [worker.counts["refused"] for worker in fake_workers.started] == [0, 0]


def test_a_stop_gives_back_what_no_handler_has_seen_without_an_attempt(access: Access, language: str, tmp_path: Path):
    workers = Workers(language, access, tmp_path)
    topic = access.topic(f"loop.stop.{language}")
    send(access, topic)
    try:
        first = workers.start(topic, "--handle-ms", 50, "--lease-ms", 6_000)
        until(lambda: len(first.lines) >= 4, "a few messages handled", 30)
        first.stop()
        assert len(first.lines) < MESSAGES
        second = workers.start(topic)
        until(lambda: len(workers.handled()) >= MESSAGES, "the others handled by another consumer", 5)
        second.stop()
    finally:
        workers.close()
    assert len(set(workers.handled())) == len(workers.handled()) == MESSAGES
    assert {line[3] for worker in workers.started for line in worker.lines} == {"1"}
    assert [worker.counts["refused"] for worker in workers.started] == [0, 0]


@pytest.mark.parametrize("language", WITH_WORKERS, indirect=True)
def test_several_workers_handle_at_a_time_and_keep_the_order_of_a_key(fake: FakePenstock, fake_workers: Workers):
    fake.store.lease_ms = 1_000  # shorter than a handler takes, so that each lease is extended beside pulls
    send(of_fake(fake), "t", 8)
    send(of_fake(fake), "keyed", 4, key="k")
    many = fake_workers.start("t", "--handle-ms", 1_200, "--workers", 4)
    ordered = fake_workers.start("keyed", "--handle-ms", 200, "--workers", 4)
    until(lambda: len(fake_workers.handled()) >= 12, "all messages handled", 30)
    stop_all(fake_workers)
    assert len(set(fake_workers.handled())) == len(fake_workers.handled()) == len(fake.store.done) == 12
    assert (many.counts["busiest"], many.counts["refused"]) == (4, 0)
    assert (ordered.counts["busiest"], ordered.counts["refused"]) == (1, 0)
    assert [line[2] for line in ordered.lines] == ["0", "1", "2", "3"]


def test_an_outage_longer_than_the_deadline_does_not_end_the_loop(fake: FakePenstock, fake_workers: Workers):
    worker = fake_workers.start("t", "--deadline-ms", 100)
    until(lambda: fake.consumers[0].calls, "the worker pulls", 30)
    gone = fake.consumers[0]
    gone.close()
    until(lambda: "no pull succeeds" in worker.errors.read_text(), "the outage is told", 30)
    send(of_fake(fake), "t")
    back = FakeProxy(fake, consumer_thrift.Consumer, gone.port)
    fake.consumers.append(back)
    until(lambda: len(fake_workers.handled()) >= MESSAGES, "all messages handled", 30)
    worker.stop()
    assert len(fake_workers.handled()) == MESSAGES
    assert "pulling again" in worker.errors.read_text()


def test_an_outage_beyond_its_bound_ends_the_loop_with_the_reason(fake: FakePenstock, fake_workers: Workers):
    fake.consumers[0].close()
    worker = fake_workers.start("t", "--deadline-ms", 100, "--outage-ms", 300)
    assert worker.process.wait(30) == 1
    assert "UNAVAILABLE" in worker.errors.read_text()


def test_a_topic_that_is_missing_is_told_and_the_others_are_handled(fake: FakePenstock, fake_workers: Workers):
    fake.store.missing = {"gone"}
    send(of_fake(fake), "t", 3)
    worker = fake_workers.start("gone,t")
    until(lambda: len(worker.lines) >= 3, "the messages of the other topic", 30)
    fake.store.missing = {"gone", "t"}  # now the whole pull is refused
    until(lambda: "topic t gives nothing" in worker.errors.read_text(), "both are told", 30)
    fake.store.missing = set()
    until(lambda: worker.errors.read_text().count("is served again") == 2, "both are back", 30)
    worker.stop()
    errors = worker.errors.read_text()
    assert errors.count("topic gone gives nothing: UNKNOWN_TOPIC: gone") == 1

"""A proxy is killed under a client's feet: the SDK goes on by itself, and nothing that it reported as sent is missing."""

import subprocess
from pathlib import Path

import pytest

from tests.e2e.clients.access import Access, of_running
from tests.e2e.clients.conftest import LANGUAGES_IN_LONG_TESTS, Finished, Run, Seen, digests
from tests.services import thrift_toolchains

LINES = 40_000  # in calls of one message: three seconds of the fastest client, so that the kill comes in the middle


@pytest.fixture
def running(penstock_up) -> Access:
    return of_running(penstock_up)


def common(access: Access, endpoints: str, topic: str) -> list[str]:
    return ["--endpoints", endpoints, "--app", access.app, "--key-id", access.key_id, "--topic", topic]


@pytest.mark.parametrize("language", LANGUAGES_IN_LONG_TESTS, indirect=True)
def test_a_producer_outlives_its_proxy(penstock_up, running: Access, run: Run, language: str, tmp_path: Path):
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(LINES)))
    topic = running.topic(f"kill.{language}")
    sending = [*common(running, running.producer, topic), "--file", str(path), "--batch", "1"]
    producer = subprocess.Popen(
        [*thrift_toolchains.program(language, "demo_producer"), *sending],
        env=thrift_toolchains.environment(PENSTOCK_SECRET=running.secret),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with producer:
        progress = producer.stdout.readline()
        penstock_up.kill("producer_proxy")
        out, errors = producer.communicate(timeout=50)
    finished = Finished(producer.returncode, progress + out, errors)
    assert finished.status == 0, errors
    assert finished.report["sent"] == LINES
    assert finished.report["retried"] >= 1
    pulling = ("--group", f"{topic}.readers", "--count", LINES)
    pulled = run(language, "demo_consumer", running.secret, *common(running, running.consumer, topic), *pulling)
    assert pulled.status == 0, pulled.errors
    # The call that was cut may be stored twice; every other line is there once.
    by_line = {delivery.line: delivery.digest for delivery in Seen.parse(pulled.out)}
    assert [by_line[number] for number in range(LINES)] == digests(path)

"""The demo applications: a file with awkward lines goes from one language to another, and every line arrives once."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.clients.access import Access
from tests.e2e.clients.conftest import Run, Seen, assert_each_line_once_in_order_per_key
from tests.services import thrift_toolchains

KEYS = 7
PAIRS = [("php", "go"), ("cpp", "php"), ("go", "cpp"), ("python", "python")]


def arguments(access: Access, endpoints: str, topic: str) -> tuple[str, ...]:
    return ("--endpoints", endpoints, "--app", access.app, "--key-id", access.key_id, "--topic", topic)


@pytest.mark.parametrize(
    ("producer", "consumer", "transport"),
    [(*pair, transport) for pair in PAIRS for transport in ("framed", "buffered")]
    + [
        ("java", "node", "framed"),
        ("node", "java", "buffered"),
        ("rust", "csharp", "framed"),
        ("csharp", "rust", "buffered"),
    ],
)
def test_every_line_of_a_file_arrives_once_and_in_order_per_key(
    access: Access, run: Run, lines_file: Path, producer: str, consumer: str, transport: str
):
    topic = access.topic(f"demo.{producer}.{consumer}.{transport}")
    buffered = ["--buffered"] if transport == "buffered" else []
    sending = ("--file", lines_file, "--keys", KEYS, "--batch", 50, *buffered)
    sent = run(producer, "demo_producer", access.secret, *arguments(access, access.producer, topic), *sending)
    assert sent.status == 0, sent.errors
    count = len(lines_file.read_bytes().split(b"\n"))
    assert sent.report["sent"] == count
    assert set(sent.report) == {"sent", "retried", "seconds", "p50_ms", "p99_ms"}
    pulling = ("--group", f"{topic}.readers", "--count", count, "--max", 64, *buffered)
    pulled = run(consumer, "demo_consumer", access.secret, *arguments(access, access.consumer, topic), *pulling)
    assert pulled.status == 0, pulled.errors
    seen = Seen.parse(pulled.out)
    assert len(seen) == count
    assert_each_line_once_in_order_per_key(seen, lines_file, KEYS)


def test_a_consumer_that_is_told_to_stop_acknowledges_what_it_printed(fake, language: str, run: Run, lines_file: Path):
    common = ("--app", fake.app, "--key-id", fake.key_id, "--topic", "t")
    run(language, "demo_producer", fake.secret, "--endpoints", fake.producer_endpoints, *common, "--file", lines_file)
    wanted = 1_000_000  # more than there is, so that only the signal ends it
    pulling = ("--endpoints", fake.consumer_endpoints, *common, "--group", "g", "--count", str(wanted), "--max", "10")
    consumer = subprocess.Popen(
        [*thrift_toolchains.program(language, "demo_consumer"), *pulling],
        env=thrift_toolchains.environment(PENSTOCK_SECRET=fake.secret),
        stdout=subprocess.PIPE,
        text=True,
    )
    with consumer:
        first = consumer.stdout.readline()  # it is at work
        consumer.send_signal(signal.SIGTERM)
        printed = [first, *consumer.stdout.readlines()]
        assert consumer.wait(timeout=20) == 0
    assert len(fake.store.done) == len(printed)

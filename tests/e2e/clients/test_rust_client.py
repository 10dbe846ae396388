"""What only the Rust client has: the batching producer, and unit tests of its own."""

import subprocess
import time

from tests.e2e.clients.conftest import Run
from tests.services import thrift_toolchains
from tests.services.fake_penstock import FakePenstock

LINGER_MS = 60_000  # longer than the test: only what else ends the wait can send


def send(run: Run, fake: FakePenstock, *arguments: object) -> None:
    where = ("--endpoints", fake.producer_endpoints, "--app", fake.app, "--key-id", fake.key_id, "--topic", "t")
    sent = run("rust", "send", fake.secret, *where, *arguments)
    assert sent.status == 0, sent.errors


def calls(fake: FakePenstock) -> list[list[bytes]]:
    return [[message.body for message in call.messages] for proxy in fake.producers for call in proxy.calls]


def test_messages_wait_for_others_and_go_in_one_call_in_their_order(fake: FakePenstock, run: Run):
    thrift_toolchains.build("rust")
    began = time.monotonic()
    send(run, fake, "--linger-ms", 300, "a", "b", "c")
    assert calls(fake) == [[b"a", b"b", b"c"]]
    assert time.monotonic() - began >= 0.3


def test_enough_bytes_go_without_waiting(fake: FakePenstock, run: Run):
    thrift_toolchains.build("rust")
    send(run, fake, "--linger-ms", LINGER_MS, "--batch-bytes", 1, "a", "b")
    assert sorted(body for call in calls(fake) for body in call) == [b"a", b"b"]


def test_the_unit_tests_of_the_rust_client_pass():
    thrift_toolchains.build("rust")
    done = subprocess.run(
        ["cargo", "test", "--quiet", "--locked", "--lib", "--target-dir", "build"],
        cwd=thrift_toolchains.CLIENTS / "rust",
        env=thrift_toolchains.environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr

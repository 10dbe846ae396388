"""TLS from every SDK: it works with the right authority and sends nothing to a proxy that cannot prove its name."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.clients.conftest import Run
from tests.services.fake_penstock import FakePenstock
from tests.services.self_signed import self_signed


@pytest.fixture
def authority(tmp_path: Path) -> tuple[Path, Path]:
    return self_signed(tmp_path, "127.0.0.1")


@pytest.fixture
def fake_with_tls(authority) -> Iterator[FakePenstock]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority)
    with FakePenstock(ssl_context=context) as fake:
        yield fake


def send(run: Run, language: str, fake: FakePenstock, ca: Path):
    where = ("--endpoints", fake.producer_endpoints, "--app", fake.app, "--key-id", fake.key_id, "--topic", "t")
    return run(language, "send", fake.secret, *where, "--tls-ca", ca, "--deadline-ms", 1_000, "hello")


def test_a_message_and_its_delivery_travel_over_tls(fake_with_tls, authority, run: Run, language):
    fake = fake_with_tls
    sent = send(run, language, fake, authority[0])
    assert sent.status == 0, sent.errors
    where = ("--endpoints", fake.consumer_endpoints, "--app", fake.app, "--key-id", fake.key_id, "--topic", "t")
    tls = ("--tls-ca", authority[0], "--group", "g", "--wait-ms", 50)
    pulled = run(language, "pull", fake.secret, *where, *tls)
    assert pulled.status == 0, pulled.errors
    assert pulled.out.strip().endswith("hello")


def test_nothing_is_sent_to_a_proxy_whose_certificate_nobody_trusts(fake_with_tls, tmp_path, run: Run, language):
    stranger, _ = self_signed(tmp_path, "stranger.example")
    assert send(run, language, fake_with_tls, stranger).status == 1
    assert fake_with_tls.producers[0].calls == []


def test_nothing_is_sent_to_a_proxy_whose_certificate_has_another_name(tmp_path, run: Run, language):
    chain, key = self_signed(tmp_path, "other.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    with FakePenstock(ssl_context=context) as fake:
        assert send(run, language, fake, chain).status == 1
        assert fake.producers[0].calls == []

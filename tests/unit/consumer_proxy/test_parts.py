"""The small parts: counts, the command line, and that no bytes whatever go without their one answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from common.contract import Ack, Code, Position, PullRequest, encode_call
from common.names import NAME_CHARS_MAX
from common.wire.calls import ACKS_MAX, POSITIONS_MAX
from consumer_proxy.options import parse
from consumer_proxy.pull.reply_format import (
    ACK_RESULT_SIZE,
    ACK_SENTENCES,
    ACK_SENTENCES_MAX,
    DELIVERY_OVERHEAD_MAX,
    REPLY_BYTES_MAX,
)
from consumer_proxy.settings import Settings
from consumer_proxy.stats import Stats, StatsCollector
from tests.unit.consumer_proxy import fakes
from tests.unit.consumer_proxy.pieces import receipt
from tests.unit.consumer_proxy.world import World


def test_the_metrics_show_what_was_counted():
    stats = Stats()
    stats.pulls = 3
    stats.answered(Code.OK, 0.0005, 100)
    stats.answered(Code.TIMEOUT, 3.5, 20)
    registry = CollectorRegistry()
    registry.register(StatsCollector(stats, lambda: 4, lambda: 5, lambda: True))
    page = generate_latest(registry).decode()
    for line in (
        "penstock_consumer_pulls_total 3.0",
        "penstock_consumer_parked 4.0",
        "penstock_consumer_connections 5.0",
        "penstock_consumer_reply_bytes_total 120.0",
        'penstock_consumer_codes_total{code="TIMEOUT"} 1.0',
        'penstock_consumer_pull_seconds_bucket{le="2.5"} 1.0',
        'penstock_consumer_pull_seconds_bucket{le="+Inf"} 2.0',
    ):
        assert line in page.splitlines()


def test_settings_name_every_fault_at_once():
    assert Settings().faults() == []
    assert len(Settings(messages_max=0, bytes_max=1 << 30, wait_ms_max=-1).faults()) == 3


def test_the_command_line_names_every_fault_at_once(tmp_path, capsys):
    needed = ["--listen", "127.0.0.1:0", "--engine", "[::1]:9", "--config", "file:///x"]
    with pytest.raises(SystemExit) as ended:
        parse(
            [*needed, "--cluster-key", str(tmp_path / "none"), "--tls-listen", "127.0.0.1:0", "--connections-max", "0"]
        )
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert all(text in said for text in ("--tls-listen needs", "no such file", "connections_max"))
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_bytes(b"k")
    assert parse([*needed, "--cluster-key", str(key)]).engine == ("::1", 9)


@pytest.fixture(scope="module")
def world():
    made = World()
    yield made
    made.view.close()


@settings(max_examples=400)
@given(data=st.data())
def test_whatever_bytes_come_there_is_one_answer_and_nothing_raises(world, data):
    request = PullRequest(
        world.credential(),
        "billing",
        ["orders"],
        acks=[Ack(receipt(0)), Ack(receipt(1), 1, 5, "no")],
        positions=[Position("orders", 1, 2)] if data.draw(st.booleans()) else None,
    )
    frame = bytearray(encode_call("pull", 1, request))
    for _ in range(data.draw(st.integers(0, 6))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    connection = fakes.FakeConnection()
    world.pulls.on_call(connection, bytes(frame[: data.draw(st.integers(12, len(frame)))]))
    for _, answer_later, details in world.held:  # the brake keeps answers to wrong credentials back
        answer_later(*details)
    world.held.clear()
    asked = len(world.source.asked)
    world.source.asked.clear()
    assert len(connection.replies) + asked == 1


def test_the_largest_allowed_pull_fits_into_a_reply():
    largest = Settings()
    sentence = max(map(len, ACK_SENTENCES.values())) + 7
    acks = ACKS_MAX * ACK_RESULT_SIZE + ACK_SENTENCES_MAX * sentence
    reports = POSITIONS_MAX * (NAME_CHARS_MAX + 300)
    deliveries = largest.bytes_max + largest.messages_max * DELIVERY_OVERHEAD_MAX
    assert deliveries + acks + reports + 1000 <= REPLY_BYTES_MAX

"""Handing out requests, by both forms on one real log: those whose time is over are passed over, the rest is remembered."""

import pytest

from common.reply_token import ReplyToken, ReplyTokens
from engine.link.codes import NO_REPLY
from engine.link.integers import U32
from engine.link.record import HAS_ID, HAS_TRAILER
from engine.log.format import pack_batch
from engine.replies.requests import Requests
from tests.unit.engine.delivery._world import FORMS, WALL0
from tests.unit.engine.delivery.test_forms import Pair, make_pair  # noqa: F401

pytestmark = pytest.mark.skipif(len(FORMS) == 1, reason="no native modules here")
TOKENS = ReplyTokens(b"k")


@pytest.fixture
def pair(make_pair) -> Pair:  # noqa: F811
    return make_pair(8 << 10, lambda pair: Requests(lambda: WALL0 + pair.now_ms, lambda: pair.now_ms))


def ask(pair, wait_ms, call=1, body=b"m\0", id16=b"i" * 16) -> bytes:
    token = TOKENS.make(ReplyToken(call, 7, 0, wait_ms))  # the asker's clock is of 1970
    record = bytes([HAS_TRAILER | (HAS_ID if id16 else 0)]) + (id16 or b"") + body + token
    batch = pack_batch(0, pair.topic.id, 0, [U32.pack(len(record)) + record])
    assert pair.log.append(batch, 1, WALL0 + pair.now_ms)[0][0] == 0
    woken = pair.log.take_woken()
    for delivery in pair.forms:
        delivery.on_woken(woken, pair.now_ms)
    return token


def expired(pair) -> list[int]:
    return [delivery.requests.expired for delivery in pair.forms]


def test_a_request_is_handed_out_as_long_as_somebody_waits(pair):
    pair.store(0, [5])
    token = ask(pair, 1_000)
    pair.store(0, [5])
    assert pair.pull() == [0, 1, 2]
    assert [delivery.requests.outcome(token) for delivery in pair.forms] == [NO_REPLY] * 2
    assert expired(pair) == [0, 0]


def test_a_request_that_failed_is_not_handed_out_to_a_slower_group_and_one_that_has_it_keeps_it(pair):
    ask(pair, 1_000, call=1)
    assert pair.pull(group="quick") == [0] and pair.pull(group="early") == [0]
    for delivery in pair.forms:
        for record in [piece.records for piece in pair.log.read(pair.topic.id, 0, 0, 1, 1 << 20)]:
            delivery.requests.failed("quick", record)
    assert pair.pull(group="late") == [0], "another group has it and may reply"
    for delivery in pair.forms:
        for group in ("early", "late"):
            for record in [piece.records for piece in pair.log.read(pair.topic.id, 0, 0, 1, 1 << 20)]:
                delivery.requests.failed(group, record)
    assert pair.pull(group="slow") == []
    assert expired(pair) == [1, 1]


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("between", [0, 600])
def test_a_request_whose_time_is_over_is_counted_as_done(pair, before, between):
    """`between` large batches push it into an older segment, which is read another way."""
    if before:
        pair.store(0, [5])
    ask(pair, 10, call=1)
    ask(pair, 10, call=2, id16=None)
    pair.turn(10)
    for _ in range(between):
        pair.store(1, [90])
    pair.store(0, [5])
    while pair.pull(most=1_000):
        pass
    cursors = pair.progress()
    assert cursors[0].next_offset == before + 3
    assert expired(pair) == [2, 2]
    assert [range_[:2] for range_ in cursors[0].ranges] == [(0, 1)] * before + [(before + 2, before + 3)]


def test_a_request_that_comes_back_after_its_deadline_is_passed_over(pair):
    ask(pair, 4_000)
    pair.store(0, [5])
    assert pair.pull() == [0, 1]
    pair.turn(6_000)
    assert pair.pull() == [1]
    assert expired(pair) == [1, 1]


def test_a_request_shares_its_batch_with_nobody(pair):
    record = (2 + 41).to_bytes(4, "little") + b"\x02m\0" + b"t" * 40
    plain = (3).to_bytes(4, "little") + b"\0m\0"
    for records in ([record, plain], [plain, record], [record, record]):
        assert pair.log.append(pack_batch(0, pair.topic.id, 0, records), 1, WALL0)[0][0] == 100
    short = (41).to_bytes(4, "little") + b"\x02" + b"t" * 40
    assert pair.log.append(pack_batch(0, pair.topic.id, 0, [short]), 1, WALL0)[0][0] == 100
    assert pair.log.append(pack_batch(0, pair.topic.id, 0, [record]), 1, WALL0)[0][0] == 0

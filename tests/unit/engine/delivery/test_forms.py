"""Both forms of delivery's hot parts on one real log: the same bytes for the same life, and for damage, old segments, large messages."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.contract import Message
from engine.config import LogConfig
from engine.delivery.delivery import Delivery
from engine.delivery.progress import NONE_YOUNG, encode
from engine.delivery.progress_writer import YOUNG_MS
from engine.delivery.pull import AckRange, PullRequest
from engine.delivery.settings import DeliverySettings
from engine.env.real import RealEnv
from engine.link.acknowledgement import DONE, EXTEND, REJECT, RELEASE, RETRY
from engine.link.pieces import PIECE
from engine.log import open_log
from engine.log.format import KIND_MESSAGES, pack_batch, pack_record
from tests.unit.engine.delivery._world import FORMS, WALL0, Policies
from tests.unit.engine.delivery.thrift_bytes import encoded

pytestmark = pytest.mark.skipif(len(FORMS) == 1, reason="no native modules here")
QUEUES = 3
TOPICS = [("orders", QUEUES)]


class Pair:
    """One log, a delivery of each form on it; every step is done by both and has to give the same."""

    def __init__(self, directory, segment_bytes: int, requests=lambda pair: None) -> None:
        self.log = open_log(RealEnv(), str(directory), LogConfig(segment_bytes=segment_bytes).checked())
        (self.topic,) = self.log.create_topics(TOPICS)
        self.now_ms = 1_000
        self.given: list[tuple[bytes, int, int]] = []
        self.policies = Policies()
        settings = DeliverySettings(older_us=1_000_000_000)  # how long reads took is no part of the answer here
        self.forms = [
            Delivery(
                self.log,
                b"k" * 32,
                lambda: WALL0 + self.now_ms,
                settings,
                form,
                self.policies,
                lambda: 0.5,
                requests=requests(self),
            )
            for form in FORMS
        ]

    def store(self, queue: int, sizes: list[int]) -> None:
        self.append(queue, [pack_record(bytes([at % 251]) * size) for at, size in enumerate(sizes)])

    def put(self, queue: int, keys: str) -> None:
        """Store messages with these keys, a character each; `-` is none."""
        messages = [Message(topic="orders", key=None if key == "-" else key, body=b"b" * 99) for key in keys]
        self.append(queue, [pack_record(encoded(message)) for message in messages])

    def order(self, order: int, on_failure: int) -> None:
        # Both are loaded before the first one writes progress at once, which the other one would read.
        for delivery in self.forms:
            delivery.group("g").cursors(self.topic, 0)
        self.policies.set(order=order, on_failure=on_failure, attempts_max=3)

    def append(self, queue: int, records: list[bytes]) -> None:
        data = pack_batch(KIND_MESSAGES, self.topic.id, queue, records)
        assert self.log.append(data, 1, WALL0)[0][0] == 0
        self.wake()

    def wake(self) -> None:
        woken = self.log.take_woken()
        for delivery in self.forms:
            delivery.on_woken(woken, self.now_ms)

    def pull(self, most: int = 32, most_bytes: int = 0, acks=(), group: str = "g") -> list[int]:
        request = PullRequest(group, TOPICS, b"orders", most, most_bytes, 0, 5_000, 0, list(acks))
        answers: list = []
        for delivery in self.forms:
            delivery.pull(request, self.now_ms, answers.append)
        native, twin = answers
        assert b"".join(native.pieces) == b"".join(twin.pieces)
        assert (native.piece_count, native.ack_codes) == (twin.piece_count, twin.ack_codes)
        return self._remember(b"".join(native.pieces))

    def _remember(self, data: bytes) -> list[int]:
        at, offsets = 0, []
        while at < len(data):
            token, first, delta, _, count, _, _, size, _ = PIECE.unpack_from(data, at)
            self.given.append((token, delta, count))
            offsets += range(first, first + count)
            at += PIECE.size + size
        return offsets

    def turn(self, ms: int) -> None:
        self.now_ms += ms
        for delivery in self.forms:
            delivery.on_time(self.now_ms)
        self.wake()

    def progress(self) -> list:
        cursors = [delivery.group("g").cursors(self.topic, 0) for delivery in self.forms]
        at = self.now_ms, WALL0 + self.now_ms, 7
        for young_ms in (WALL0 + self.now_ms - YOUNG_MS, NONE_YOUNG):
            native, twin = [[cursor.progress(*at, young_ms) for cursor in side] for side in cursors]
            assert native == twin
            for side, values in zip(cursors, (native, twin), strict=True):
                encoded = [cursor.encoded_progress(*at, young_ms) for cursor in side]
                assert encoded == [encode(value) for value in values]
        return native


@pytest.fixture
def make_pair(tmp_path_factory):
    made = []

    def make(segment_bytes: int = 64 << 10, requests=lambda pair: None) -> Pair:
        made.append(Pair(tmp_path_factory.mktemp("log"), segment_bytes, requests))
        return made[-1]

    yield make
    for pair in made:
        pair.log.close()


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("store"),
            st.integers(0, QUEUES - 1),
            st.lists(st.sampled_from([2, 100, 3_000, 9_000]), min_size=1, max_size=5),
        ),
        st.tuples(st.just("pull"), st.integers(1, 40), st.sampled_from([0, 1, 500, 20_000])),
        st.tuples(
            st.just("ack"),
            st.integers(0, 99),
            st.integers(0, 3),
            st.sampled_from([DONE, DONE, RETRY, EXTEND, REJECT, RELEASE]),
        ),
        st.tuples(st.just("turn"), st.sampled_from([10, 900, 6_000])),
        st.tuples(st.just("put"), st.integers(0, QUEUES - 1), st.text("ab-", min_size=1, max_size=9)),
        st.tuples(st.just("order"), st.integers(0, 2), st.integers(0, 2)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_a_random_life_gives_the_same_bytes_in_both_forms(make_pair, steps):
    pair = make_pair()
    for what, *values in steps:
        if what == "ack":
            if pair.given:
                token, delta, count = pair.given[values[0] % len(pair.given)]
                pair.pull(0, acks=[AckRange(token, delta, max(1, count - values[1]), values[2], -1, b"")])
        else:
            getattr(pair, what)(*values)
    pair.progress()


def test_a_backlog_over_many_segments_is_handed_out_in_order_by_both_forms(make_pair):
    pair = make_pair()
    for _ in range(60):
        pair.store(1, [2_000] * 3)
    offsets = []
    while got := pair.pull(most=7):
        offsets += got
    assert offsets == list(range(180))


def test_both_forms_step_over_a_damaged_batch(make_pair):
    pair = make_pair(1 << 20)
    for _ in range(3):
        pair.store(0, [500] * 4)
    with open(pair.log.segments.active.path, "r+b") as file:
        data = file.read()
        file.seek(data.index(bytes([3]) * 500, data.index(bytes([3]) * 500) + 500))
        file.write(b"x")
    assert pair.pull(most=100) == [0, 1, 2, 3, 8, 9, 10, 11]


def test_both_forms_keep_away_from_what_a_topics_own_retention_has_taken(make_pair, monkeypatch):
    pair = make_pair()
    if not hasattr(pair.log, "floors"):
        pytest.skip("this log knows no retention of topics")
    monkeypatch.setattr(type(pair.log.start_offsets), "of", lambda self, topic_id, queue: 5)
    pair.store(0, [100] * 4)
    pair.store(0, [100] * 4)
    assert pair.pull() == [5, 6, 7]


@pytest.mark.parametrize("group", ["g", "g" * 90, "g" * 95, "g" * 96, "ü" * 120])
def test_both_forms_make_the_same_token_and_take_the_other_ones(group):
    native, twin = [form.Receipts(b"k" * 32, group) for form in FORMS]
    fields = (65_535, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 1 << 62, 1 << 61)
    token = twin.make(*fields)
    assert native.make(*fields) == token
    assert native.check(token) == twin.check(token) == fields
    assert native.check(token[:-1] + b"\0") is None
    assert native.check(token[:-1]) is None

"""The open requests of a proxy, by a clock that the test turns: every row of both tables of docs/design/0013-request-reply.md.

Each test runs on both forms.
"""

import random
from hashlib import blake2b
from typing import NamedTuple

import pytest

from common.clock import FakeClock
from common.contract import Code
from common.reply_token import ReplyTokens, bind_token, key_of, read_token, reply_key
from engine.client.rpc import LOST
from engine.link import layout
from engine.link.errors import LinkDown
from producer_proxy.requests import grouped
from producer_proxy.requests import requests as requests_module
from producer_proxy.requests.requests import OUTCOME_MS_MAX

try:
    from producer_proxy.requests import _requests as native_module
except ImportError:
    native_module = None  # type: ignore[assignment]

KEY = b"k" * 32
REPLY_KEY, OTHER_KEY = reply_key(KEY, "shop"), reply_key(KEY, "bank")
PLACE = ("shop", b"orders", b"id-1", 3, 17)


class Rpc:
    """A link that remembers what was sent on it; the test answers."""

    def __init__(self):
        self.sent, self.told, self.is_down = [], [], False

    def attend(self, on_up, on_unasked):
        self.on_up, self.on_unasked = on_up, on_unasked
        on_up()

    def send(self, op, payload, callback):
        if self.is_down:
            raise LinkDown("down")
        self.sent.append((op, payload, callback))

    def tell(self, op, payload):
        self.told.append((op, *layout.FORWARDED_BODY.unpack(payload)))


class RequestAsker:
    def __init__(self):
        self.is_gone, self.heard = False, []

    def tell(self, code, reply):
        self.heard.append((code, reply))


class Desk:
    def __init__(self, form):
        self.clock, self.rpc, self.woken = FakeClock(), Rpc(), 0
        self.requests = form.OpenRequests(self.rpc, KEY, self.clock, self._wake, lambda size: b"i" * size)

    def _wake(self):
        self.woken += 1

    def ask(self, wait_ms=1_000, stored=True, **stored_as):
        """(asker, open request) of one that is stored."""
        asker = RequestAsker()
        opened = self.requests.open(asker, wait_ms)
        if stored:
            opened.stored(**stored_as)
        return asker, opened

    def forward(self, opened, reply=b"reply", code=layout.OK, number=5):
        """The broker passes on a reply, or says that the consumer failed; returns what it is told."""
        self.rpc.told.clear()
        self.rpc.on_unasked(layout.FORWARD_HEAD.pack(number, code) + opened.token + reply)
        return [told[2] for told in self.rpc.told]

    def turn(self, ms):
        self.clock.advance(ms)
        return self.requests.on_time()

    def asked_fate(self):
        """The callback of the question why there was no reply."""
        op, _, callback = self.rpc.sent[-1]
        assert op == layout.OUTCOME
        return lambda code: callback(layout.OK, layout.U16.pack(code))


@pytest.fixture(params=["native", "pure"])
def desk(request):
    form = native_module if request.param == "native" else requests_module
    if form is None:
        pytest.skip("the native form is not built in this run")
    return Desk(form)


# -- what an asker is told


def test_a_reply_ends_the_request_with_ok(desk):
    asker, opened = desk.ask()
    assert desk.forward(opened, b"answer") == [Code.OK]
    assert asker.heard == [(Code.OK, b"answer")]


def test_a_token_names_one_call_of_this_process_until_its_deadline_and_has_its_mac(desk):
    _, first = desk.ask(wait_ms=700)
    _, second = desk.ask()
    token = ReplyTokens(KEY).check(first.token)
    assert token is not None and (token.reply_by_ms, token.wait_ms) == (desk.clock.now_ms() + 700, 700)
    assert token.instance == read_token(second.token).instance == int.from_bytes(b"i" * 8, "little")
    assert token.call != read_token(second.token).call


@pytest.mark.parametrize("code", [Code.NO_CONSUMER, Code.NO_REPLY, Code.CONSUMER_FAILED])
def test_after_the_deadline_the_engine_says_why_there_was_no_reply(desk, code):
    asker, opened = desk.ask()
    desk.turn(999)
    assert asker.heard == []
    desk.turn(1 + requests_module.TICK_MS)
    desk.asked_fate()(code)
    assert asker.heard == [(code, None)]
    assert desk.forward(opened) == [Code.STALE_RECEIPT]
    assert desk.requests.late == 1


def test_an_engine_that_does_not_say_leaves_it_at_no_reply(desk):
    asker, _ = desk.ask()
    desk.turn(1_010)
    assert desk.turn(OUTCOME_MS_MAX - 20) and asker.heard == []
    assert not desk.turn(30)
    assert asker.heard == [(Code.NO_REPLY, None)]
    desk.asked_fate()(Code.NO_CONSUMER)
    assert len(asker.heard) == 1


def test_a_link_that_broke_meanwhile_leaves_it_at_no_reply_without_a_question(desk):
    asker, _ = desk.ask()
    desk.rpc.on_up()
    desk.turn(1_010)
    assert asker.heard == [(Code.NO_REPLY, None)]
    assert [op for op, _, _ in desk.rpc.sent] == [layout.LISTEN, layout.LISTEN]


def test_a_link_that_is_down_at_the_deadline_leaves_it_at_no_reply(desk):
    asker, _ = desk.ask()
    desk.rpc.is_down = True
    desk.turn(1_010)
    assert asker.heard == [(Code.NO_REPLY, None)]


def test_a_consumers_failure_is_told_at_once(desk):
    asker, opened = desk.ask()
    assert desk.forward(opened, b"", Code.CONSUMER_FAILED, number=0) == []
    assert asker.heard == [(Code.CONSUMER_FAILED, None)]
    assert desk.forward(opened) == [Code.STALE_RECEIPT]


def test_a_reply_that_comes_before_the_word_of_the_append_waits_for_it(desk):
    asker, opened = desk.ask(stored=False)
    assert desk.forward(opened, b"quick") == [Code.OK]
    assert asker.heard == []
    opened.stored()
    assert asker.heard == [(Code.OK, b"quick")]


def test_a_request_that_was_not_stored_waits_for_nothing(desk):
    asker, opened = desk.ask(stored=False)
    opened.end()
    assert desk.forward(opened) == [Code.STALE_RECEIPT]
    desk.turn(1_010)
    assert asker.heard == [] and [op for op, _, _ in desk.rpc.sent] == [layout.LISTEN]


def test_the_word_of_the_append_behind_the_deadline_still_brings_the_reason(desk):
    asker, opened = desk.ask(stored=False)
    desk.turn(1_010)
    opened.stored()
    desk.asked_fate()(Code.NO_CONSUMER)
    assert asker.heard == [(Code.NO_CONSUMER, None)]


def test_a_proxy_that_stops_tells_those_who_wait_that_nobody_knows(desk):
    waiting, _ = desk.ask()
    answered, opened = desk.ask()
    desk.forward(opened, b"answer")
    desk.requests.release()
    assert waiting.heard == [(Code.TIMEOUT, None)]
    assert answered.heard == [(Code.OK, b"answer")]
    assert desk.requests.is_idle


def test_an_asker_that_has_gone_is_asked_nothing_for(desk):
    asker, opened = desk.ask()
    asker.is_gone = True
    assert desk.forward(opened) == [Code.STALE_RECEIPT]
    desk.turn(1_010)
    assert asker.heard == [(Code.NO_REPLY, None)] and [op for op, _, _ in desk.rpc.sent] == [layout.LISTEN]


def test_nothing_is_kept_behind_the_deadline(desk):
    for offset in range(10):
        _, opened = desk.ask(place=("shop", b"orders", b"id-%d" % offset, 3, offset))
        desk.forward(opened, b"r" * 1_000)
    assert desk.requests.waiting == 10
    assert not desk.turn(1_010)
    assert desk.requests.waiting == 0
    for offset in range(10):
        copy, _ = desk.ask(place=("shop", b"orders", b"id-%d" % offset, 3, offset), is_duplicate=True)
        assert copy.heard == [(Code.DUPLICATE, None)]


def test_what_is_kept_of_replies_is_bounded_and_free_again_behind_the_deadline(desk, monkeypatch):
    monkeypatch.setattr(requests_module, "KEPT_BYTES_MAX", 250)

    def kept(first_offset):
        places = [("shop", b"orders", b"id-%d" % offset, 3, offset) for offset in range(first_offset, first_offset + 3)]
        for place in places:
            desk.forward(desk.ask(place=place)[1], b"r" * 100)
        copies = [desk.ask(place=place, is_duplicate=True)[0] for place in places]
        return [copy.heard[0][0] for copy in copies]

    assert kept(0) == [Code.OK, Code.OK, Code.DUPLICATE]
    desk.turn(1_010)
    assert kept(10) == [Code.OK, Code.OK, Code.DUPLICATE]


def test_a_full_table_opens_no_more(desk, monkeypatch):
    monkeypatch.setattr(requests_module, "OPEN_MAX", 3)
    opened = [desk.requests.open(RequestAsker(), 1_000) for _ in range(5)]
    assert [each is None for each in opened] == [False] * 3 + [True] * 2


# -- a request that is sent again under its id


def test_a_copy_of_a_request_that_is_open_gets_the_same_reply(desk):
    first, opened = desk.ask(place=PLACE)
    second, _ = desk.ask(place=PLACE, is_duplicate=True)
    desk.forward(opened, b"one")
    assert first.heard == second.heard == [(Code.OK, b"one")]


def test_a_copy_keeps_the_request_waiting_when_the_first_asker_has_gone(desk):
    first, opened = desk.ask(place=PLACE)
    second, _ = desk.ask(place=PLACE, is_duplicate=True)
    first.is_gone = True
    assert desk.forward(opened, b"one") == [Code.OK]
    assert second.heard == [(Code.OK, b"one")]


def test_a_copy_of_a_request_that_was_answered_gets_the_reply_that_is_kept(desk):
    _, opened = desk.ask(place=PLACE)
    desk.forward(opened, b"one")
    second, _ = desk.ask(place=PLACE, is_duplicate=True)
    assert second.heard == [(Code.OK, b"one")]


def test_a_copy_by_another_application_is_a_duplicate_and_gets_no_reply(desk):
    _, first = desk.ask(place=PLACE)
    desk.forward(first, b"for the shop only")
    copy, _ = desk.ask(place=("other", *PLACE[1:]), is_duplicate=True)
    assert copy.heard == [(Code.DUPLICATE, None)]


@pytest.mark.parametrize("why", ["unknown", "past", "too large", "failed"])
def test_a_copy_of_what_is_not_known_here_is_a_duplicate(desk, why, monkeypatch):
    if why != "unknown":
        monkeypatch.setattr(requests_module, "KEPT_BYTES_MAX", 2 if why == "too large" else 100)
        _, opened = desk.ask(place=PLACE)
        desk.forward(opened, b"one", Code.CONSUMER_FAILED if why == "failed" else Code.OK)
        if why == "past":
            desk.turn(1_010)
    second, _ = desk.ask(place=PLACE, is_duplicate=True)
    assert second.heard == [(Code.DUPLICATE, None)]


def test_a_copys_own_deadline_counts_and_the_engine_is_asked_about_the_first(desk):
    first, opened = desk.ask(wait_ms=5_000, place=PLACE)
    second, _ = desk.ask(wait_ms=100, place=PLACE, is_duplicate=True)
    desk.turn(110)
    assert desk.rpc.sent[-1][1] == opened.token
    desk.asked_fate()(Code.NO_REPLY)
    assert second.heard == [(Code.NO_REPLY, None)]
    assert desk.forward(opened, b"later") == [Code.OK]
    assert first.heard == [(Code.OK, b"later")]


# -- what a replier is told


class Replier:
    def __init__(self, desk, token, timeout_ms=3_000, key=REPLY_KEY):
        self.heard = []
        code = desk.requests.pass_on(token, key, b"reply", self.heard.append, timeout_ms)
        if code is not None:
            self.heard.append(code)


def test_a_reply_goes_to_the_broker_and_its_word_is_the_repliers(desk):
    _, opened = desk.ask()
    for code in (Code.OK, Code.DUPLICATE, Code.STALE_RECEIPT, Code.UNAVAILABLE):
        replier = Replier(desk, bind_token(opened.token, REPLY_KEY))
        op, payload, callback = desk.rpc.sent[-1]
        assert (op, payload, replier.heard) == (layout.REPLY, opened.token + b"reply", [])
        callback(code, b"")
        assert replier.heard == [code]
    desk.turn(5_000)
    assert desk.requests.replies == 4


def test_a_reply_whose_link_broke_may_have_been_passed_on(desk):
    _, opened = desk.ask()
    replier = Replier(desk, opened.token)
    desk.rpc.sent[-1][2](Code.UNAVAILABLE, LOST)
    assert replier.heard == [Code.TIMEOUT]


@pytest.mark.parametrize("token", [b"", b"short", b"x" * 40, b"x" * 41])
def test_a_token_that_is_not_of_this_cluster_is_invalid(desk, token):
    assert Replier(desk, token).heard == [Code.INVALID]


def test_a_token_with_any_bit_altered_is_invalid(desk):
    _, opened = desk.ask()
    for token in (opened.token, bind_token(opened.token, REPLY_KEY)):
        for bit in range(320):
            altered = bytearray(token)
            altered[bit // 8] ^= 1 << bit % 8
            assert Replier(desk, bytes(altered)).heard == [Code.INVALID]


def test_a_token_counts_for_the_application_that_pulled_the_request_and_no_other(desk):
    _, opened = desk.ask()
    bound = bind_token(opened.token, REPLY_KEY)
    assert Replier(desk, bound, key=OTHER_KEY).heard == [Code.INVALID]
    assert Replier(desk, bind_token(opened.token, OTHER_KEY)).heard == [Code.INVALID]
    assert [each for each in desk.rpc.sent if each[0] == layout.REPLY] == []
    assert Replier(desk, bound).heard == []


def test_a_token_as_it_is_stored_counts_for_all_because_earlier_consumer_proxies_pass_it_on(desk):
    _, opened = desk.ask()
    for key in (REPLY_KEY, OTHER_KEY):
        Replier(desk, opened.token, key=key)
        assert desk.rpc.sent[-1][:2] == (layout.REPLY, opened.token + b"reply")


def test_a_reply_past_the_deadline_by_more_than_clocks_may_differ_is_refused_here_and_counted(desk):
    _, opened = desk.ask(wait_ms=100)
    desk.clock.advance(100 + requests_module.CLOCKS_MS)
    assert Replier(desk, opened.token).heard == [Code.STALE_RECEIPT]
    assert desk.requests.late == 1


@pytest.mark.parametrize("ahead_ms", [-59_000, 59_000])
def test_the_waiting_proxy_and_not_the_repliers_clock_says_whether_a_reply_is_late(desk, ahead_ms):
    _, opened = desk.ask(wait_ms=100)
    desk.clock.step(ahead_ms)
    assert Replier(desk, opened.token).heard == []
    assert desk.rpc.sent[-1][:2] == (layout.REPLY, opened.token + b"reply")


def test_without_a_link_the_replier_may_come_again(desk):
    _, opened = desk.ask()
    desk.rpc.is_down = True
    assert Replier(desk, opened.token).heard == [Code.UNAVAILABLE]


def test_silence_of_the_broker_is_a_timeout_once(desk):
    _, opened = desk.ask()
    replier = Replier(desk, opened.token, timeout_ms=50)
    desk.turn(60)
    desk.rpc.sent[-1][2](Code.OK, b"")
    assert replier.heard == [Code.TIMEOUT]


def test_a_second_reply_is_a_duplicate_until_the_deadline_and_late_from_then_on(desk):
    _, opened = desk.ask()
    codes = [desk.forward(opened)[0] for _ in range(3)]
    desk.turn(1_010)
    assert [*codes, *desk.forward(opened)] == [Code.OK, Code.DUPLICATE, Code.DUPLICATE, Code.STALE_RECEIPT]


def test_both_forms_make_the_same_token_and_take_each_others():
    if native_module is None:
        pytest.skip("the native form is not built in this run")
    native, pure = Desk(native_module), Desk(requests_module)
    tokens = [[desk.ask(wait_ms=wait_ms)[1].token for wait_ms in (1, 700, 300_000)] for desk in (native, pure)]
    assert tokens[0] == tokens[1]


def test_a_token_of_another_version_that_is_properly_signed_is_invalid(desk):
    _, opened = desk.ask()
    body = b"\x03" + opened.token[1:24]
    mac = blake2b(body, key=key_of(KEY), digest_size=16).digest()
    assert Replier(desk, body + mac).heard == [Code.INVALID]


def test_both_forms_do_the_same_whatever_happens():
    if native_module is None:
        pytest.skip("the native form is not built in this run")
    for seed in range(150):
        native, pure = [_played(random.Random(seed), Desk(form)) for form in (native_module, requests_module)]
        assert native == pure, f"seed {seed}"


def _played(draw, desk):
    """What was heard, told and sent in a drawn run."""
    open_ones, heard, told = [], [], []
    for number in range(40):
        what = draw.choice(
            ["ask", "ask", "copy", "reply", "reply", "fail", "time", "gone", "link", "fate", "pass on", "late store"]
        )
        place = (b"t", b"id", 0, draw.randrange(3)) if draw.random() < 0.5 else None
        if what in ("ask", "copy", "late store"):
            stored_as = {"place": place, "is_duplicate": what == "copy"}
            asker, opened = desk.ask(draw.choice([20, 100, 1_000]), what != "late store", **stored_as)
            open_ones.append((asker, opened))
            heard.append(asker.heard)
            continue
        if what == "time":
            desk.turn(draw.choice([1, 5, 30, 200]))
        elif what == "link":
            desk.rpc.on_up()
        elif what == "pass on":
            token = draw.choice([each.token for _, each in open_ones] or [b""])
            if token and draw.random() < 0.6:
                token = bind_token(token, draw.choice([REPLY_KEY, REPLY_KEY, OTHER_KEY]))
            replier = Replier(desk, token, 50)
            heard.append(replier.heard)
        elif what == "fate":
            asked = [each for each in desk.rpc.sent if each[0] in (layout.OUTCOME, layout.REPLY)]
            if asked:
                op, _, callback = draw.choice(asked)
                callback(0, layout.U16.pack(Code.NO_CONSUMER) if op == layout.OUTCOME else b"")
        elif open_ones:
            asker, opened = draw.choice(open_ones)
            if what == "gone":
                asker.is_gone = True
            else:
                told += desk.forward(opened, b"r%d" % number, Code.CONSUMER_FAILED if what == "fail" else Code.OK)
    desk.requests.release()
    sent = [(op, payload) for op, payload, _ in desk.rpc.sent]
    states = [(each.code, each.reply, each.waits) for _, each in open_ones]
    return (
        heard,
        told,
        sent,
        states,
        desk.requests.waiting,
        desk.requests.late,
        desk.requests.replies,
        desk.requests.is_idle,
    )


class Broker(NamedTuple):
    name: str
    rpc: Rpc


class MovingGroup:
    """A broker group whose address an operator changes."""

    name, cluster_key, only = "g1", KEY, None

    def __init__(self):
        self.move()

    def move(self):
        self.rpc = Rpc()
        self.listed = [Broker(self.name, self.rpc)]

    def numbered(self, number):
        return self.listed[0]


@pytest.mark.parametrize("form", [requests_module] if native_module is None else [requests_module, native_module])
def test_requests_that_are_open_when_their_group_gets_another_address_are_answered(form, monkeypatch):
    monkeypatch.setattr(grouped, "OpenRequests", form.OpenRequests)
    clock, group = FakeClock(), MovingGroup()
    requests = grouped.GroupedRequests(group, clock)
    asker, late = RequestAsker(), RequestAsker()
    opened, other = requests.open(asker, 0, 300), requests.open(late, 0, 300)
    opened.stored()
    other.stored()
    group.move()
    requests.follow()
    assert group.rpc.sent[0][0] == layout.LISTEN, "replies come over the new link"
    group.rpc.on_unasked(layout.FORWARD_HEAD.pack(1, layout.OK) + opened.token + b"reply\0")
    assert asker.heard == [(Code.OK, b"reply\0")]
    clock.advance(400)
    requests._on_tick()
    assert late.heard == [(Code.NO_REPLY, None)] and requests.is_idle
    requests.close()

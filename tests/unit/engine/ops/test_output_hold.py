"""Output hold: no output leaves before what it shows is confirmed, and all of it leaves after."""

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ops import native, output_hold

FORMS = {"reference": output_hold.OutputHold} | ({"native": native.OutputHold} if native.NATIVE else {})


@pytest.fixture(params=FORMS)
def form(request) -> type:
    return FORMS[request.param]


class Link:
    """A connection: `sent` is the position up to which its output has left, `shown` the log's end per flush."""

    def __init__(self) -> None:
        self.sent = self.queued = 0
        self.shown: list[tuple[int, int]] = []  # (position, end of the log when it was noted)
        self.released: list[int] = []

    def release(self, position: int) -> None:
        self.released.append(position)
        self.sent = max(self.sent, position)


class Broker:
    """A log that grows, and its links."""

    def __init__(self, form: type, links: int) -> None:
        self.end = self.confirmed = 0
        self.hold = form(lambda: self.end)
        self.links = [Link() for _ in range(links)]

    def flush(self, link: Link, size: int = 10) -> None:
        link.queued += size
        link.shown.append((link.queued, self.end))
        if self.hold.note(link, link.queued):
            link.sent = link.queued

    def confirm(self, position: int) -> None:
        self.confirmed = max(self.confirmed, position)
        self.hold.confirm(position)

    def check(self) -> None:
        for link in self.links:
            covered = [queued for queued, end in link.shown if end <= self.confirmed]
            assert link.sent <= max(covered, default=0), "something left before it was confirmed"
            assert link.sent == max(covered, default=0), "something that is confirmed has not left"
            assert link.released == sorted(link.released)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 50)),
        st.tuples(st.just("flush"), st.integers(0, 3)),
        st.tuples(st.just("confirm"), st.integers(-30, 60)),
        st.tuples(st.just("close"), st.integers(0, 3)),
    ),
    max_size=120,
)


@pytest.mark.parametrize("name", FORMS)
@given(STEPS)
def test_output_leaves_exactly_when_all_that_it_may_show_is_confirmed(name, steps):
    broker = Broker(FORMS[name], 4)
    for kind, number in steps:
        if kind == "append":
            broker.end += number
        elif kind == "flush":
            broker.flush(broker.links[number])
        elif kind == "confirm":
            broker.confirm(min(broker.confirmed + number, broker.end))
        else:
            gone, broker.links[number] = broker.links[number], Link()
            broker.hold.drop(gone)
            gone.release = None  # a closed link is not released
        broker.check()
    broker.confirm(broker.end)
    broker.check()
    assert len(broker.hold) == 0
    assert [link.sent for link in broker.links] == [link.queued for link in broker.links]


def test_a_lower_position_than_before_changes_nothing(form):
    broker = Broker(form, 1)
    broker.end = 10
    broker.confirm(10)
    broker.confirm(5)
    assert broker.hold.confirmed == 10
    broker.flush(broker.links[0])
    assert broker.links[0].sent == 10


def test_flushes_of_one_link_at_one_end_of_the_log_are_one_entry_whatever_other_links_do(form):
    broker = Broker(form, 3)
    broker.end = 100
    for _ in range(1_000):
        for link in broker.links:
            broker.flush(link)
    assert len(broker.hold) == 3
    broker.end = 200
    broker.flush(broker.links[0])
    assert len(broker.hold) == 4
    broker.confirm(100)
    assert [link.released for link in broker.links] == [[10_000]] * 3


def test_a_flush_behind_held_output_is_held_even_when_the_log_seems_shorter(form):
    broker = Broker(form, 1)
    broker.end = 100
    broker.flush(broker.links[0])
    broker.end = 0
    broker.flush(broker.links[0])
    assert broker.links[0].sent == 0
    broker.confirm(100)
    assert broker.links[0].sent == 20


def test_closed_links_are_forgotten_while_nothing_is_confirmed(form):
    broker = Broker(form, 1)
    seen = []
    for _ in range(10_000):
        broker.end += 1
        broker.flush(broker.links[0])
        link = Link()
        broker.flush(link)
        seen.append(weakref.ref(link))
        broker.hold.drop(link)
    del link
    gc.collect()
    assert not any(each() for each in seen)
    for _ in range(10_000):
        link = Link()
        broker.flush(link)
        broker.hold.drop(link)
    assert len(broker.hold) <= 2 * 10_000 + 2
    broker.confirm(broker.end)
    assert len(broker.hold) == 0 and broker.links[0].sent == 100_000


def test_a_dropped_link_that_held_nothing_changes_nothing(form):
    broker = Broker(form, 1)
    broker.hold.drop(broker.links[0])
    broker.end = 5
    broker.flush(broker.links[0])
    broker.confirm(5)
    assert broker.links[0].sent == 10

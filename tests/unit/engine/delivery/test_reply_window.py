"""Answers stop where the window of their link ends: nothing is leased that the other end has no room for."""

import pytest

from engine.delivery.reply_window import NO_LIMIT, RESERVE_BYTES, SHARE, SMALL_BYTES, ReplyWindow
from engine.log.format import pack_record
from tests.unit.common.filter.stored import stored
from tests.unit.engine.delivery._world import FORMS, World, offsets

MIB = 1 << 20
KIB = 1 << 10


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def world(request):
    return World(request.param)


class CountedAnswers(list):
    """The answers of one pull, counted against the window as the server does."""

    def __init__(self, window: ReplyWindow) -> None:
        self._window = window

    def append(self, answer) -> None:
        super().append(answer)
        self._window.sent += sum(piece.size for piece in answer[1])


class Link:
    """A link with a window."""

    def __init__(self, world: World, room: int) -> None:
        self.world, self.window, self.answers = world, world.form.ReplyWindow(), []
        self.window.raise_to(room)

    def pull(self, **options):
        got = CountedAnswers(self.window)
        self.world.pull(answers=got, window=self.window, **{"most": 1000, "most_bytes": 12 * MIB, **options})
        self.answers.append(got)
        return got

    def give_room(self, size: int) -> None:
        self.window.raise_to(self.window.limit + size)
        self.world.delivery.on_room(self.window, self.world.now_ms)


def test_a_large_pull_takes_a_share_of_the_room_and_the_next_one_a_share_of_the_rest(world):
    world.store(world.topic(), 400, size=100 * KIB)
    link = Link(world, 32 * MIB)
    for _ in range(5):
        room = link.window.limit - link.window.sent
        (answer,) = link.pull()
        assert room // SHARE - 100 * KIB < sum(piece.size for piece in answer[1]) <= room // SHARE


def test_pulls_beyond_the_room_wait_and_lease_nothing_until_there_is_room(world):
    topic = world.topic()
    world.store(topic, 40, size=MIB)
    link = Link(world, RESERVE_BYTES + 3 * MIB)
    for _ in range(10):
        link.pull(wait_ms=10_000)
    served = [got for got in link.answers if got]
    assert len(served) == 3 and len(link.window.waiting) == 7
    assert world.delivery.counts.deliveries == 3
    link.give_room(MIB)
    assert len([got for got in link.answers if got]) == 4, "the longest wait comes first"
    assert link.answers[3] and not link.answers[4]


def test_a_small_pull_is_answered_at_once_while_large_ones_wait_for_room(world):
    world.store(world.topic(), 40, size=MIB)
    world.store(world.topic("small"), 5)
    link = Link(world, RESERVE_BYTES + MIB)
    for _ in range(5):
        link.pull(wait_ms=10_000)
    assert link.window.waiting
    (answer,) = link.pull(topics=[("small", 1)], group="other")
    assert offsets(answer[1]) == [0, 1, 2, 3, 4]


def test_a_pull_that_waits_for_room_is_answered_empty_when_its_time_is_over(world):
    world.store(world.topic(), 5, size=MIB)
    link = Link(world, 100 * KIB)
    got = link.pull(wait_ms=500)
    world.turn(600)
    assert got == [([], [])] and not link.window.waiting
    assert world.delivery.counts.deliveries == 0 and world.delivery.parked == 0


def test_a_pull_without_wait_time_still_waits_for_room_as_the_queues_are_not_empty(world):
    world.store(world.topic(), 1, size=MIB)
    link = Link(world, 100 * KIB)
    got = link.pull()
    assert got == []
    link.give_room(RESERVE_BYTES + 2 * MIB)
    assert offsets(got[0][1]) == [0]


def test_a_link_without_room_does_not_hold_back_another_links_pulls_of_the_same_group(world):
    topic = world.topic()
    full, free = Link(world, 100 * KIB), Link(world, 32 * MIB)
    waiting = [full.pull(wait_ms=10_000), free.pull(wait_ms=10_000)]
    world.store(topic, 1, size=MIB)
    assert not waiting[0] and offsets(waiting[1][0][1]) == [0]
    world.store(topic, 1, size=MIB)
    full.give_room(RESERVE_BYTES + 2 * MIB)
    assert offsets(waiting[0][0][1]) == [1]


def test_a_cancelled_pull_no_longer_waits_for_room(world):
    world.store(world.topic(), 2, size=MIB)
    link = Link(world, 100 * KIB)
    got = []
    pull = world.pull(answers=got, window=link.window, wait_ms=10_000)
    world.delivery.cancel(pull)
    link.give_room(32 * MIB)
    assert got == [] and not link.window.waiting


def test_what_others_took_meanwhile_lets_a_pull_wait_for_new_messages_again(world):
    topic = world.topic()
    world.store(topic, 1, size=MIB)
    link = Link(world, 100 * KIB)
    got = link.pull(wait_ms=10_000)
    assert offsets(world.give()) == [0]
    link.give_room(32 * MIB)
    assert got == [] and not link.window.waiting
    world.store(topic, 1)
    assert offsets(got[0][1]) == [1]


def test_a_full_connection_takes_small_answers_only(world):
    world.store(world.topic(), 2, size=MIB)
    world.store(world.topic("small"), 2)
    link = Link(world, NO_LIMIT)
    link.window.is_full = True
    large, small = link.pull(wait_ms=10_000), link.pull(topics=[("small", 1)], group="other")
    assert large == [] and offsets(small[0][1]) == [0, 1]
    link.window.is_full = False
    link.give_room(0)
    assert offsets(large[0][1]) == [0, 1]


def test_a_filtered_pull_is_bound_by_the_window_too(world):
    world.policies.set(filters={"": "kind = 'a'"})
    topic = world.topic()
    record = pack_record(stored({"kind": "a", "rest": "r" * MIB}))
    world.log.store(topic, 0, [record] * 5, world.wall_ms)
    link = Link(world, RESERVE_BYTES + SMALL_BYTES + MIB + KIB)
    first = link.pull(wait_ms=10_000)
    second = link.pull(wait_ms=10_000)
    assert offsets(first[0][1]) == [0] and second == []
    link.give_room(32 * MIB)
    assert second[0][1][0].first == 1


def test_the_limit_never_falls():
    window = ReplyWindow()
    window.raise_to(100)
    window.raise_to(50)
    assert window.limit == 100
    window.raise_to(150)
    assert window.limit == 150

"""Order by key while a topic gets more queues: a key's old queue is finished before its new one is dispatched."""

from collections import Counter
from contextlib import contextmanager
from errno import EIO
from random import Random

import pytest

from common.contract import Message
from common.keyhash import queue_of
from common.retry import DelayList
from engine.config import LogConfig
from engine.delivery.key_moves import WINDOW_MS
from engine.delivery.policy import KEY, NONE
from engine.env.simulated import SimulatedEnv
from engine.errors import DiskFullError, UnreadableError
from engine.link.acknowledgement import DONE, RETRY
from engine.log import open_log
from engine.log.format import KIND_MESSAGES, pack_batch, pack_record, split_records
from engine.log.memory import MemoryLog
from tests.unit.engine.delivery._world import FORMS, WALL0, World
from tests.unit.engine.delivery.thrift_bytes import decoded, encoded

KEYS = [f"k{number}" for number in range(10)]


class Growing(World):
    """A topic that grows. Each message's body counts the messages of its key."""

    def __init__(self, form, queues=1, order=KEY, **settings):
        super().__init__(form, **settings)
        self.queues = queues  # as the senders know it
        self.made = queues  # as the engine has it
        self.orders = self.topic(queues=queues)
        self.policies.set(order=order, attempts_max=1_000, retry=DelayList((100,)))
        self.sent = Counter()

    def send(self, *keys):
        for key in keys:
            body = str(self.sent[key]).encode()
            self.sent[key] += 1
            message = encoded(Message(topic="orders", body=body, key=key))
            self.append(queue_of(key.encode(), self.queues), message)
        self.delivery.on_woken(self.log.take_woken(), self.now_ms)

    def append(self, queue, message):
        self.log.store(self.orders, queue, [pack_record(message)], self.wall_ms)

    def grow(self, queues, senders_follow=True):
        """The first proxy that follows the definition makes the engine add the queues."""
        self.log.create_topics([("orders", queues)])
        self.made = queues
        if senders_follow:
            self.queues = queues

    def take(self, most=100, acks=(), invisible_ms=10_000):
        """(piece, key, number of the key's message) of each delivery."""
        _, pieces = self.pull((("orders", self.made),), acks, most=most, invisible_ms=invisible_ms)
        found = []
        for piece in pieces:
            for index, raw in enumerate(split_records(piece.records)):
                message = decoded(raw)
                found.append((piece.ack(index, 1), message.key, int(message.body)))
        return found

    def drain(self, most=3):
        """All deliveries in order, each acknowledged with the next pull."""
        found, acks = [], []
        for _ in range(10_000):
            taken = self.take(most, acks)
            acks = [ack for ack, _, _ in taken]
            found += [(key, number) for _, key, number in taken]
            if not taken and sum(self.sent.values()) <= len(found):
                return found
            self.turn(20)
        raise AssertionError(f"{sum(self.sent.values()) - len(found)} messages never came")


class GrowingOnDisk(Growing):
    """The same on a real log, on a simulated disk. Each restart is a kill, or a power cut after a sync."""

    def __init__(self, form, queues, **settings):
        self.env, self.config = SimulatedEnv(), LogConfig(segment_bytes=8_192)
        self.env.clock_ms = WALL0
        self.random = Random(1)
        super().__init__(form, queues, **settings)

    def restart(self):
        if not isinstance(self.log, MemoryLog) and self.random.random() < 0.5:
            self.log.when_durable(self.log.end_position, lambda: None)
            self.env.crash(self.random)
        else:
            self.env.end_process()
        self.log = open_log(self.env, "/data", self.config)
        super().restart()

    def turn(self, ms):
        self.env.clock_ms += ms
        super().turn(ms)

    def append(self, queue, message):
        batch = pack_batch(KIND_MESSAGES, self.orders, queue, [pack_record(message)])
        ((code, _),) = self.log.append(batch, 1, self.wall_ms)
        assert code == 0


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def form(request):
    return request.param


def in_order(found):
    return all(
        [number for k, number in found if k == key] == sorted(number for k, number in found if k == key) for key in KEYS
    )


def test_a_backlog_from_before_the_growth_comes_first(form):
    world = Growing(form)
    world.send(*KEYS * 5)
    world.grow(8)
    world.send(*KEYS * 5)
    found = world.drain()
    assert len(found) == 100
    assert in_order(found)


def test_without_an_order_nothing_waits(form):
    world = Growing(form, order=NONE)
    world.send("k0")
    world.grow(8)
    world.send("k0")
    assert len(world.take()) == 2


def test_a_key_with_a_leased_message_waits_and_the_others_flow(form):
    world = Growing(form)
    world.send("k0", "k1")
    (stuck, key, _), (other, _, _) = world.take()
    assert key == "k0"
    world.grow(8)
    world.send("k0", "k1")
    assert queue_of(b"k0", 8) and queue_of(b"k1", 8)
    world.turn(WINDOW_MS)
    assert [(key, number) for _, key, number in world.take(acks=[other])] == [("k1", 1)]
    world.take(acks=[stuck])
    world.turn(20)
    assert [(key, number) for _, key, number in world.take()] == [("k0", 1)]


def test_the_order_holds_for_a_sender_that_follows_the_growth_later(form):
    world = Growing(form)
    world.send("k0")
    world.grow(8, senders_follow=False)
    world.send("k0")
    world.turn(WINDOW_MS - 1)
    world.send("k0")
    world.queues = 8
    world.send("k0")
    assert world.drain() == [("k0", number) for number in range(4)]


def test_after_the_old_queues_are_done_nothing_is_asked_any_more(form):
    world = Growing(form)
    world.send(*KEYS)
    world.grow(4)
    world.send(*KEYS)
    world.drain()
    world.turn(WINDOW_MS)
    assert not world.delivery.group("g").moves
    cursors = world.delivery.group("g").topics[world.orders]
    assert [cursor.keys.moves for cursor in cursors] == [None] * 4


def test_a_reset_to_the_beginning_keeps_the_order_again(form):
    world = Growing(form)
    world.send(*KEYS * 3)
    world.grow(4)
    world.send(*KEYS * 3)
    world.drain()
    world.turn(WINDOW_MS)
    group = world.delivery.group("g")
    for cursor in list(group.topics[world.orders]):
        world.delivery.move(group, cursor, 0, world.now_ms)
    assert in_order(world.drain())


def test_more_held_messages_than_may_wait_do_not_stop_the_group(form):
    world = Growing(form, queues=2, waiting_max=8)
    world.send(*KEYS * 3)
    world.grow(5)
    world.send(*KEYS * 20)  # within the window, so all of them wait at first
    found = world.drain()
    assert len(found) == 230
    assert in_order(found)


def test_a_growth_outlives_a_restart(form):
    world = Growing(form)
    world.send(*KEYS * 2)
    world.grow(8)
    world.send(*KEYS * 2)
    world.restart()
    found = world.drain()
    assert len(found) == 40
    assert in_order(found)


def test_the_order_holds_over_a_growth_that_a_crash_prevented_and_that_happens_later(form, monkeypatch):
    world = Growing(form, queues=2)
    world.send("k0")

    def crash(wanted):
        raise DiskFullError("the process ends here")

    with monkeypatch.context() as patch:
        patch.setattr(world.log.growth, "_create", crash)
        with pytest.raises(DiskFullError):
            world.grow(5)
    world.restart()
    ((first, *_),) = world.take()  # the group follows the record that the crash has left
    world.turn(WINDOW_MS)
    world.send(*KEYS[1:] * 5)
    held = world.take(most=1)
    world.grow(5)
    world.send(*KEYS[1:] * 5)
    world.turn(WINDOW_MS)
    found = [*held, *world.take(acks=[first])]
    assert in_order([(key, number) for _, key, number in found])
    acks = [ack for ack, _, _ in found]
    while taken := world.take(acks=acks):
        found, acks = found + taken, [ack for ack, _, _ in taken]
        world.turn(20)
    assert in_order([(key, number) for _, key, number in found]) and len(found) == 90


@pytest.fixture
def unreadable(monkeypatch):
    """As a context: the disk cannot read the records of growths."""

    @contextmanager
    def fail(world):
        def refuse(topic_id):
            raise OSError(EIO, "the view cannot be read")

        with monkeypatch.context() as patch:
            patch.setattr(world.log.growth, "of", refuse)
            yield

    return fail


def test_a_growth_that_a_start_cannot_read_at_first_is_followed(form, unreadable):
    world = Growing(form)
    world.send(*KEYS * 2)
    world.grow(8)
    world.send(*KEYS * 2)
    world.restart()
    with unreadable(world), pytest.raises(OSError):
        world.take()
    assert in_order(world.drain())


def test_a_topic_does_not_grow_while_its_earlier_growths_cannot_be_read(form, unreadable):
    world = Growing(form, queues=2)
    world.grow(3)
    world.take(0)
    world.send(*KEYS * 3)
    with unreadable(world), pytest.raises(OSError):
        world.grow(8)
    assert world.log.topic("orders").queues == 3
    world.grow(8)
    world.send(*KEYS * 3)
    assert in_order(world.drain())


def test_a_group_gets_its_order_once_the_growths_can_be_read(form, unreadable):
    world = Growing(form, order=NONE)
    world.send("k0")
    (first, *_), *_ = world.take()
    world.grow(8)
    world.policies.set(order=KEY)
    with unreadable(world):
        world.turn(20)
        assert world.delivery.group("g").policy.order == NONE
    world.turn(20)
    assert world.delivery.group("g").policy.order == KEY
    world.send("k0")
    world.turn(WINDOW_MS)
    assert world.take() == []
    world.take(acks=[first])
    world.turn(20)
    assert [number for _, _, number in world.take()] == [1]


def test_messages_that_wait_for_another_queue_come_after_a_change_of_the_attempts(form):
    world = Growing(form)
    world.send("k0")
    ((first, *_),) = world.take()
    world.grow(8)
    world.send("k0")
    assert world.take() == []
    world.policies.set(attempts_max=999)
    world.turn(WINDOW_MS)
    world.take(acks=[first])
    world.turn(20)
    assert [number for _, _, number in world.take()] == [1]


def test_a_reset_changes_nothing_while_growths_cannot_be_read(form, unreadable):
    world = Growing(form)
    world.send("k0")
    ((first, *_),) = world.take()
    group = world.delivery.group("g")
    (cursor,) = group.topics[world.orders]
    with unreadable(world), pytest.raises(OSError):
        world.delivery.move(group, cursor, 0, world.now_ms)
    assert world.pull(acks=[first], most=0)[0] == [0]


def test_the_window_of_late_senders_ends_once_the_time_of_messages_can_be_looked_up(form, monkeypatch):
    def refuse(*_):
        raise UnreadableError("the view cannot be read")

    world = Growing(form)
    world.send("k0")
    world.take()
    world.grow(8)
    world.send("k0")
    with monkeypatch.context() as patch:
        patch.setattr(world.log, "offset_at_time", refuse)
        world.turn(WINDOW_MS)
        assert world.take() == []
    world.turn(20_000)
    assert world.drain() == [("k0", 0), ("k0", 1)]


@pytest.mark.parametrize("seed", range(60))
def test_a_keys_message_comes_only_after_all_earlier_ones_are_done(form, seed):
    """Random growths, late senders, verdicts, expiries and kills: the rule of order by key, over all queues."""
    check_order(Growing, form, seed)


@pytest.mark.parametrize("seed", range(12))
def test_the_order_holds_on_a_log_of_many_segments_whose_engine_is_killed_and_loses_its_power(form, seed):
    check_order(GrowingOnDisk, form, seed)


def check_order(world_type, form, seed):
    random = Random(seed)
    waiting_max = random.choice((4, 16, 4_096))
    world = world_type(form, queues=random.choice((1, 2, 3)), waiting_max=waiting_max)
    done: dict[str, set[int]] = {key: set() for key in KEYS}
    held = []
    late_ms = 0
    for _ in range(250):
        action = random.choices(("send", "take", "ack", "turn", "grow", "kill"), (30, 25, 25, 15, 1.5, 1.5))[0]
        if action == "send":
            if world.queues != world.made and world.now_ms >= late_ms:
                world.queues = world.made
            world.send(*random.choices(KEYS, k=random.randint(1, 6)))
        elif action == "take":
            taken = world.take(random.randint(1, 10), invisible_ms=random.choice((50, 10_000)))
            for _, key, number in taken:
                assert set(range(number)) <= done[key], (key, number, sorted(done[key]))
            held += taken
        elif action == "ack" and held:
            ack, key, number = held.pop(random.randrange(len(held)))
            verdict = random.choice((DONE, DONE, RETRY))
            (code,), _ = world.pull(acks=[ack._replace(verdict=verdict)], most=0)
            if verdict == DONE and code == 0:
                done[key].add(number)
        elif action == "turn":
            world.turn(random.choice((1, 20, 60, 500)))
        elif action == "grow" and world.made < 20 and world.queues == world.made:
            world.grow(world.made + random.randint(1, 6), senders_follow=False)
            # Where few messages may wait, one of a late sender may be overtaken: see key_moves.py.
            late_ms = world.now_ms + (random.randrange(WINDOW_MS) if waiting_max > 1_000 else 0)
        elif action == "kill":
            if random.random() < 0.5:
                world.delivery.write_progress()
            world.restart()
    world.queues = world.made
    for _ in range(3_000):
        if all(len(done[key]) == world.sent[key] for key in KEYS):
            return
        world.turn(100)
        taken = world.take(50)
        for ack, key, number in taken:
            assert set(range(number)) <= done[key], (key, number)
            (code,), _ = world.pull(acks=[ack], most=0)
            assert code == 0
            done[key].add(number)
    raise AssertionError({key: (len(done[key]), world.sent[key]) for key in KEYS})

"""Order by key and by queue: who waits for whom, what a failing message holds up, and what a restart keeps."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, multiple, rule

from common.contract import Message
from common.retry import DelayList
from engine.delivery import dead_letter, key_order
from engine.delivery.policy import KEY, NONE, PARK, QUEUE, STOP
from engine.link.acknowledgement import DONE, REJECT, RETRY
from engine.link.codes import OK
from engine.log.format import pack_record, whole_records
from tests.unit.engine.delivery._world import FORMS, World, offsets
from tests.unit.engine.delivery.thrift_bytes import encoded


def record(key: str | None, assigned_id: bytes = b"") -> bytes:
    return pack_record(encoded(Message(topic="orders", body=b"b", key=key)), assigned_id)


class Ordered(World):
    """A world whose messages have keys: `put("abca")` stores four."""

    def __init__(self, form, order=KEY, **settings):
        super().__init__(form, **settings)
        self.orders = self.topic()
        self.policies.set(order=order, attempts_max=3, retry=DelayList((100,)))

    def put(self, keys, queue=0):
        self.log.store(self.orders, queue, [record(None if key == "-" else key) for key in keys], self.wall_ms)
        self.delivery.on_woken(self.log.take_woken(), self.now_ms)

    def done(self, *pieces):
        assert set(self.pull(acks=[piece.ack() for piece in pieces], most=0)[0]) <= {OK}


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def form(request):
    return request.param


@pytest.fixture
def world(form):
    return Ordered(form)


def test_the_second_message_of_a_key_waits_for_the_first_and_other_keys_flow(world):
    world.put("aab-b")
    pieces = world.give()
    assert offsets(pieces) == [0, 2, 3]
    assert world.give() == []
    world.done(pieces[0])
    again = world.give()
    assert (offsets(again), again[0].attempt) == ([1], 1)


def test_consecutive_messages_of_different_keys_are_one_lease(world):
    world.put("abcd")
    world.put("efa")
    leases = {piece.lease for piece in world.give()}
    assert len(leases) == 1


def test_messages_without_a_key_wait_for_nobody(world):
    world.put("----")
    assert offsets(world.give(most=2)) + offsets(world.give()) == [0, 1, 2, 3]


def test_a_waiting_pull_gets_the_next_of_a_key_when_the_one_before_is_done(world):
    world.put("aa")
    pieces = world.give()
    answers = []
    world.pull(wait_ms=5_000, answers=answers)
    assert answers == []
    world.done(*pieces)
    assert offsets(answers[0][1]) == [1]


def test_a_failing_key_holds_up_itself_alone(world):
    world.put("aabc")
    world.done(*world.give()[1:])
    world.turn(10_020)
    (piece,) = world.give()
    assert (list(piece.offsets), piece.attempt) == ([0], 2)
    world.put("ad")
    assert offsets(world.give()) == [5]


def test_after_the_last_attempt_a_key_goes_on_behind_its_dead_letter(world):
    world.put("aa")
    for _ in range(3):
        (piece,) = world.give()
        assert list(piece.offsets) == [0]
        world.pull(acks=[piece.ack(verdict=RETRY)], most=0)
        world.turn(120)
    assert world.delivery.counts.dead_letters == 1
    assert offsets(world.give()) == [1]


def test_a_key_goes_on_only_when_the_dead_letter_before_is_durable(world):
    world.put("aa")
    world.log.is_durable_at_once = False
    world.pull(acks=[world.give()[0].ack(verdict=REJECT)], most=0)
    assert world.give() == []
    world.log.make_durable()
    assert offsets(world.give()) == [1]


def test_a_parked_key_is_tried_on_and_on_while_others_flow(world):
    world.policies.set(on_failure=PARK)
    world.put("aab")
    world.done(*world.give()[1:])
    for attempt in range(2, 12):
        world.turn(10_020)
        (piece,) = world.give()
        assert (list(piece.offsets), piece.attempt) == ([0], attempt)
    world.done(piece)
    assert offsets(world.give()) == [1]


def test_a_key_is_parked_only_while_there_is_room_for_what_waits_behind_it(form):
    world = Ordered(form, waiting_max=3)
    world.policies.set(on_failure=PARK)
    world.put("aaab" + "a" * 5 + "c")
    assert offsets(world.give()) == [0, 3]
    assert world.give() == []
    for _ in range(2):
        world.turn(10_020)
        world.give(most=1)
    world.turn(10_020)
    world.turn(20)
    assert world.delivery.counts.dead_letters == 1
    assert 1 in offsets(world.give())


def test_a_message_that_stops_the_queue_is_tried_alone_until_it_is_done(world):
    world.policies.set(on_failure=STOP)
    world.put("aab")
    world.done(*world.give()[1:])
    for attempt in range(2, 4):
        world.turn(10_020)
        assert world.give()[0].attempt == attempt
        world.put("c")
        world.done(*world.give())
    world.turn(10_020)
    world.put("d")
    (piece,) = world.give()
    assert (list(piece.offsets), piece.attempt) == ([0], 4)
    assert world.give() == []
    world.done(piece)
    assert offsets(world.give()) == [1, 5]


def test_in_queue_order_one_run_is_out_at_a_time(form):
    world = Ordered(form, QUEUE)
    world.put("abcdef")
    (first,) = world.give(most=3)
    assert world.give() == []
    world.pull(acks=[first.ack(0, 2), first.ack(2, 1, RETRY)], most=0)
    assert world.give() == []
    world.turn(120)
    (again,) = world.give()
    assert (list(again.offsets), again.attempt) == ([2], 2)
    answers = []
    world.pull(wait_ms=5_000, answers=answers)
    world.done(again)
    assert offsets(answers[0][1]) == [3, 4, 5]


def test_in_queue_order_a_message_that_is_never_done_ends_as_a_dead_letter_and_the_queue_goes_on(form):
    world = Ordered(form, QUEUE)
    world.put("ab")
    for _ in range(3):
        assert offsets(world.give(most=1)) == [0]
        world.turn(10_020)
    assert offsets(world.give()) == [1]


def test_many_messages_of_one_key_wait_within_the_bound_and_all_come_in_order(form):
    world = Ordered(form, waiting_max=10)
    world.put("a" * 100)
    taken = []
    while pieces := world.give(most=50):
        assert len(offsets(pieces)) == 1
        taken += offsets(pieces)
        (cursor,) = world.delivery.group("g").topics[world.orders]
        assert cursor.keys.waiting <= 10
        world.done(*pieces)
    assert taken == list(range(100))


def test_a_restart_keeps_the_order_of_what_was_open(world):
    world.put("abab")
    held = world.give()
    assert offsets(held) == [0, 1]
    world.delivery.write_progress()
    world.turn(10)
    world.restart()
    assert world.give() == []
    world.done(held[0])
    assert offsets(world.give()) == [2, 3]


def test_a_receipt_from_before_a_restart_counts_for_a_message_that_waits_again(world):
    world.put("aa")
    (first,) = world.give()
    world.delivery.write_progress()
    world.delivery._progress._room = -(1 << 40)  # too much was written at once of late
    world.done(first)
    (second,) = world.give()
    world.turn(10)
    world.restart()
    assert world.give() == []
    assert world.pull(acks=[second.ack()], most=0)[0] == [OK]
    world.turn(10_300)
    assert offsets(world.give()) == [0]


def test_after_a_restart_nothing_is_handed_out_before_its_records_can_be_read(world, monkeypatch):
    world.put("aa")
    world.give()
    world.delivery.write_progress()
    world.turn(11_000)
    world.restart()
    monkeypatch.setattr(world.log, "read", lambda *_: [])
    assert world.give() == []
    monkeypatch.undo()
    world.put("b")
    assert offsets(world.give()) == [0, 2]


def test_an_order_that_is_asked_for_later_holds_from_then_on(form):
    world = Ordered(form, NONE)
    world.put("aa")
    pieces = world.give(invisible_ms=1_000)
    assert offsets(pieces) == [0, 1]
    world.policies.set(order=KEY)
    world.put("ab")
    assert offsets(world.give()) == [3]
    world.done(*pieces)
    assert offsets(world.give()) == [2]


def test_an_order_that_is_given_up_lets_go_what_waited(world):
    world.put("aaa")
    world.give()
    world.policies.set(order=NONE)
    assert offsets(world.give()) == [1, 2]


def test_retention_takes_a_head_away_and_the_next_of_its_key_goes_on(world):
    world.put("aaab")
    world.give(invisible_ms=1_000)
    world.log.retain(world.orders, 0, 2)
    world.put("c")
    assert 2 in offsets(world.give()) + offsets(world.give())


def test_a_moved_group_forgets_who_waited(world):
    world.put("aa")
    world.give()
    group = world.delivery.group("g")
    world.delivery.move(group, group.topics[world.orders][0], 0, world.now_ms)
    (piece,) = world.give()
    assert list(piece.offsets) == [0]
    world.done(piece)
    assert offsets(world.give()) == [1]


# -- keys in records


def numbers(data: bytes) -> set[int]:
    found = {key_order.key_number(data)}
    if len(FORMS) > 1:
        from engine.delivery import _key_order

        found.add(_key_order.key_number(data))
    return found


@given(st.one_of(st.none(), st.text(max_size=20)), st.one_of(st.just(b""), st.binary(min_size=16, max_size=16)))
def test_a_keys_number_is_the_same_in_both_forms_whatever_stands_around_it(key, assigned_id):
    (number,) = numbers(record(key, assigned_id))
    assert (number == key_order.NO_KEY) == (key is None)
    assert numbers(pack_record(encoded(Message(topic="t", key=key, properties={"a": "b"}, id="x")))) == {number}


@given(st.binary(max_size=40))
def test_whatever_the_bytes_are_both_forms_agree_and_nothing_breaks(payload):
    assert len(numbers(pack_record(payload))) == 1


# -- a random life


class OrderModel(RuleBasedStateMachine):
    """Strict order by key over acknowledgements, rejections, expiries and restarts whose progress is a step old."""

    form = FORMS[0]
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.world = self.new_world(in_flight_max=60, ranges_max=40, waiting_max=12, quantum_bytes=500)
        self.keys: list[str] = []
        self.over: set[int] = set()
        self.out: dict[int, int] = {}  # offset -> until when
        self.lease_at_restart = 0
        self.holder: dict[int, int] = {}  # offset -> lease, of those handed out since the last restart

    def new_world(self, **options) -> Ordered:
        return Ordered(self.form, **options)

    @rule(keys=st.text("abc-", min_size=1, max_size=12))
    def store(self, keys):
        self.world.put(keys)
        self.keys += keys

    @rule(target=leases, most=st.integers(1, 20))
    def pull(self, most):
        pieces = self.world.give(most=most, invisible_ms=2_000)
        for piece in pieces:
            for offset in piece.offsets:
                self._check(offset)
                self.out[offset], self.holder[offset] = self.world.now_ms + 2_000, piece.lease
        return multiple(*pieces)

    def _check(self, offset) -> None:
        self._bury()
        assert offset not in self.over
        assert self.out.get(offset, 0) <= self.world.now_ms
        if self.keys[offset] != "-":
            before = [at for at in range(offset) if self.keys[at] == self.keys[offset]]
            assert set(before) <= self.over, "an earlier message of the key is neither done nor dead"

    def _bury(self) -> None:
        topic = self.world.log.topic("_dlq.g")
        pieces = self.world.log.read(topic.id, 0, 0, 10_000, 1 << 24) if topic else []
        for piece in pieces:
            for letter in whole_records(piece.records):
                self.over.add(int(dead_letter.parse(letter).origin["offset"]))

    @rule(lease=consumes(leases), verdict=st.sampled_from([DONE, DONE, DONE, RETRY, REJECT]), part=st.integers(1, 20))
    def acknowledge(self, lease, verdict, part):
        count = min(part, lease.count)
        self._bury()
        before = self._open()
        (code,), _ = self.world.pull(acks=[lease.ack(0, count, verdict)], most=0)
        named = range(lease.first, lease.first + count)
        mine = {offset for offset in named if self.holder.get(offset, lease.lease) == lease.lease}
        if lease.lease <= self.lease_at_restart:
            mine = (before - self._open()) & set(named)  # what the log keeps of a lease is not known here
            self.out.update(dict.fromkeys(named, 0))
        if verdict == DONE:
            self.over |= mine
            assert (code == OK) == all(offset in self.over for offset in named)
        self.holder.update(dict.fromkeys(mine, lease.lease))  # of two from before a restart, the first that speaks
        self.out.update(dict.fromkeys(mine, 0))
        self._bury()

    def _open(self) -> set[int]:
        """What the engine counts as not done."""
        (cursor,) = self.world.delivery.group("g").cursors(self.world.log.topic("orders"), 0)
        ranges = [range(each.first, each.end) for each in cursor.in_flight.ranges]
        early = {offset for first, end in cursor.early for offset in range(first, end)}
        return {offset for each in ranges for offset in each} | set(range(cursor.next_offset, len(self.keys))) - early

    @rule(ms=st.sampled_from([50, 500, 2_500]))
    def wait(self, ms):
        self.world.turn(ms)

    @rule()
    def restart(self):
        self.world.delivery.write_progress()
        self.world.turn(1)
        self.world.restart()
        self.lease_at_restart = max(self.holder.values(), default=self.lease_at_restart)
        self.holder.clear()

    def teardown(self):
        """However it went, everything comes to its end."""
        for _ in range(300):
            self.world.turn(31_000)
            pieces = self.world.give(most=1_000)
            self._bury()
            if not pieces and len(self.over) == len(self.keys):
                break
            self.world.done(*pieces)
            self.over.update(offsets(pieces))
        assert self.over == set(range(len(self.keys)))


class TwinOrderModel(OrderModel):
    form = FORMS[-1]


SETTINGS = settings(max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
TestOrderModel = OrderModel.TestCase
TestTwinOrderModel = TwinOrderModel.TestCase
TestOrderModel.settings = TestTwinOrderModel.settings = SETTINGS

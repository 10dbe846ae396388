"""Order by key among the messages that a filter lets through, with filters asked alone and together."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from common.contract import Message
from engine.delivery.policy import KEY, QUEUE
from engine.log.format import pack_record
from tests.unit.engine.delivery._world import FORMS, offsets
from tests.unit.engine.delivery.test_order import SETTINGS, Ordered, OrderModel
from tests.unit.engine.delivery.thrift_bytes import encoded


class Sifted(Ordered):
    """`put("aAb")`: three messages of the keys a, a and b, of which the second is not for any group."""

    def __init__(self, form, order=KEY, **settings):
        super().__init__(form, order, **settings)
        self.policies.set(filters={"": "kind = 'lower'"})

    def put(self, keys, queue=0):
        self.log.store(self.orders, queue, [self._record(key) for key in keys], self.wall_ms)
        self.delivery.on_woken(self.log.take_woken(), self.now_ms)

    def _record(self, key: str) -> bytes:
        properties = {"kind": "upper" if key.isupper() else "lower"}
        return pack_record(
            encoded(Message(topic="orders", body=b"b", key=None if key == "-" else key.lower(), properties=properties))
        )


@pytest.fixture(
    params=[(form, least) for form in FORMS for least in (1, 24)], ids=lambda each: f"{each[0].name}-{each[1]}"
)
def options(request):
    form, least = request.param
    return {"form": form, "shared_filters_min": least}


def test_what_a_filter_passes_over_is_in_nobodys_way(options):
    world = Sifted(**options)
    world.put("AaAab")
    pieces = world.give()
    assert offsets(pieces) == [1, 4]
    world.done(pieces[0])
    assert offsets(world.give()) == [3]


def test_a_message_that_waits_for_its_key_stays_when_another_group_has_been_through_the_queue(options):
    world = Sifted(**options)
    world.put("-")
    world.give(group="g")
    world.give(group="h")
    world.put("aAaBaAb")
    assert offsets(world.give(group="h")) == [1, 7]
    first = world.give()
    assert offsets(first) == [1, 7]
    assert world.give() == []
    for offset in (3, 5):
        world.done(first[0])
        first = world.give()
        assert offsets(first) == [offset]


def test_a_message_that_waits_is_let_go_when_its_filter_no_longer_wants_it(options):
    world = Sifted(**options)
    world.put("aab")
    (piece, _) = world.give(most=1) + world.give()
    world.policies.set(filters={"": "kind = 'upper'"})
    world.put("A")
    world.done(piece)
    assert offsets(world.give()) == [3]
    (cursor,) = world.delivery.group("g").topics[world.orders]
    assert (cursor.keys.waiting, cursor.in_flight.messages) == (0, 2)


def test_in_queue_order_the_next_that_passes_comes_when_the_one_before_is_done(options):
    world = Sifted(order=QUEUE, **options)
    world.put("aAAb")
    (first,) = world.give(most=1)
    assert world.give() == []
    world.done(first)
    assert offsets(world.give()) == [3]


class SiftedOrderModel(OrderModel):
    """The same strict model: what is not for the group counts as over from the start. A second group shares what its filter finds."""

    def __init__(self) -> None:
        super().__init__()
        self.other: list[int] = []

    def new_world(self, **options):
        return Sifted(self.form, shared_filters_min=1, **options)

    @rule(keys=st.text("abcABC-", min_size=1, max_size=12))
    def store(self, keys):
        self.world.put(keys)
        self.over.update(at for at, key in enumerate(keys, len(self.keys)) if key.isupper())
        self.keys += keys

    @rule(most=st.integers(1, 20))
    def another_group_takes(self, most):
        pieces = self.world.give(group="other", most=most)
        self.other += offsets(pieces)
        assert set(self.world.pull(group="other", acks=[piece.ack() for piece in pieces], most=0)[0]) <= {0}

    def teardown(self):
        super().teardown()
        before = -1
        while len(self.other) > before:
            before = len(self.other)
            self.another_group_takes(1_000)
        wanted = [at for at, key in enumerate(self.keys) if not key.isupper()]
        assert sorted(self.other) == wanted
        for name in "abc":
            of_key = [at for at in self.other if self.keys[at] == name]
            assert of_key == sorted(of_key)


class TwinSiftedOrderModel(SiftedOrderModel):
    form = FORMS[-1]


TestSiftedOrderModel = SiftedOrderModel.TestCase
TestTwinSiftedOrderModel = TwinSiftedOrderModel.TestCase
TestSiftedOrderModel.settings = TestTwinSiftedOrderModel.settings = SETTINGS

"""The view: scans over changed keys and stored ones."""

from hypothesis import given
from hypothesis import strategies as st

from engine.env.simulated import SimulatedEnv
from engine.log.view import View
from engine.log.view_layer import INSERTED_MAX, ViewLayer

KEYS = st.binary(min_size=1, max_size=3)


@given(st.lists(st.one_of(st.tuples(st.just("put"), KEYS), st.tuples(st.just("scan"), st.tuples(KEYS, KEYS)))))
def test_a_layer_finds_its_keys_in_order_whenever_they_came(steps):
    layer = ViewLayer()
    for what, value in steps:
        if what == "put":
            layer.changes[value] = b"x"
        else:
            start, end = value
            assert layer.between(start, end) == sorted(key for key in layer.changes if start <= key < end)


def test_many_new_keys_are_sorted_together():
    layer = ViewLayer()
    for number in reversed(range(INSERTED_MAX * 3)):
        layer.changes[b"%06d" % number] = None
    assert layer.between(b"000100", b"000103") == [b"000100", b"000101", b"000102"]


def test_a_scan_looks_at_the_keys_of_its_range_and_not_at_all_that_changed():
    class Counted(bytes):
        compared = 0

        def __lt__(self, other):
            Counted.compared += 1
            return bytes.__lt__(self, other)

    view = View(SimulatedEnv().open_store("/v", 1 << 20))
    view.put_all((Counted(b"g%06d" % number), b"v") for number in range(20_000))
    assert list(view.scan(b"g000007", b"g000009")) == [(b"g000007", b"v"), (b"g000008", b"v")]
    Counted.compared = 0
    view.put(Counted(b"f"), b"v")
    assert list(view.scan(b"g000009", b"g00001")) == [(b"g000009", b"v")]
    assert Counted.compared < 200

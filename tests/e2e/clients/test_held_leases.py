"""The rules of a run over its leases, on the Python client; each language has the same ones."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "clients" / "python"))

from penstock_client.contract import Delivery, Message
from penstock_client.held import HeldLeases

LEASE_S = 6.0


def deliveries(*receipts: bytes) -> list[Delivery]:
    return [Delivery(receipt=receipt) for receipt in receipts]


def held_of(*receipts: bytes, extend_max_s: float = 3600.0, workers: int = 1) -> HeldLeases:
    held = HeldLeases(extend_max_s, workers)
    held.pulled(deliveries(*receipts), LEASE_S, 0.0)
    return held


def receipts(held: HeldLeases, now_s: float) -> list[bytes]:
    return [each.delivery.receipt for each in held.to_extend(now_s)]


def test_a_pull_asks_for_one_message_and_then_for_what_is_handled_in_a_third_of_a_lease():
    held = held_of(b"a", b"b")
    assert held.wanted(32) == 1
    held.end(held.begin(0.0), 0.5)
    assert held.wanted(32) == 4
    assert held.wanted(3) == 3
    held.end(held.begin(0.0), 60.0)
    assert held.wanted(32) == 1


def test_a_handler_that_takes_no_time_asks_for_the_most():
    held = held_of(b"a")
    held.end(held.begin(0.0), 0.0)
    assert held.wanted(32) == 32


def test_a_lease_is_extended_below_two_thirds_and_those_below_five_sixths_go_with_it():
    held = held_of(b"a")
    held.begin(0.0)  # in its handler, and extended as those that wait
    held.pulled(deliveries(b"b"), LEASE_S, 0.9)
    held.pulled(deliveries(b"c"), LEASE_S, 1.5)
    assert not held.is_due(2.0)
    assert held.is_due(2.1)
    assert receipts(held, 2.1) == [b"b", b"a"]


def test_a_lease_is_not_extended_beyond_its_bound():
    held = held_of(b"a", extend_max_s=3.0)
    assert receipts(held, 2.9) == [b"a"]
    assert receipts(held, 3.0) == []


def test_what_has_expired_or_was_refused_an_extension_is_not_handled():
    held = held_of(b"a", b"b", b"c")
    first, second, _ = held.to_extend(3.0)
    first.is_lost = True
    second.until_s = 9.0
    begun = held.begin(6.5)
    assert begun.delivery.receipt == b"b"
    held.end(begun, 0.1)
    assert held.begin(6.5) is None


def test_several_workers_begin_what_has_no_key_in_a_handler_and_a_pull_asks_for_the_free_ones():
    held = HeldLeases(3600.0, workers=3)
    keyed = [Delivery(receipt=name, message=Message(topic="t", key=key)) for name, key in ((b"a", "k"), (b"b", "k"))]
    held.pulled([*keyed, Delivery(receipt=b"c", message=Message(topic="t"))], LEASE_S, 0.0)
    first, other = held.begin(0.0), held.begin(0.0)
    assert (first.delivery.receipt, other.delivery.receipt, held.begin(0.0)) == (b"a", b"c", None)
    assert not held.has_room  # the second of the key waits for a handler
    held.end(first, 1.0)
    assert held.begin(0.0).delivery.receipt == b"b"
    assert held.has_room
    assert held.wanted(32) == 2


def test_a_release_gives_back_what_waits_and_not_what_is_handled():
    held = held_of(b"a", b"b", b"c")
    held.begin(0.0)
    assert [delivery.receipt for delivery in held.release()] == [b"b", b"c"]
    assert held.release() == []

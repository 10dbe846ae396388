"""Connections whose credential has not verified: what they may take, and what ends them."""

import random
import time
from collections import Counter

import gevent
import pytest

from common.net import Limits
from common.net.places import Places
from common.net.places_metrics import PlacesMetrics
from common.net.strangers import BoundedStrangers, network_of, strangers_of
from common.readiness import Note
from tests.services.fake_broker import wait_until
from tests.unit.common.net.test_connections import call, client, framed, is_closed, read_exactly, serve

__all__ = ["serve"]  # fixture


def verdict(connection, frame):
    """Serve a call as a proxy does whose clients send their credential in the body."""
    if b"good" in frame:
        connection.trust()
    elif b"bad" in frame:
        connection.distrust()
    connection.reply(frame)


def ask(sock, body=b"good"):
    sock.sendall(framed(call(body)))
    return read_exactly(sock, 4 + len(call(body)))


def ask_for(sock, seconds, body):
    """Whether the connection lasts as long while it calls."""
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            ask(sock, body)
            gevent.sleep(0.05)
    except (OSError, AssertionError):
        return False
    return True


def test_a_stranger_has_the_greeting_deadline_whatever_it_sends(serve):
    server = serve(verdict)
    began = time.monotonic()
    assert not ask_for(client(server), 3, b"bad")
    assert time.monotonic() - began < 2
    assert ask_for(client(server), 1.2, b"good")


def test_a_client_whose_credential_is_refused_later_has_the_greeting_deadline_to_show_a_valid_one(serve):
    server = serve(verdict)
    revoked, renewed = client(server), client(server)
    for sock in (revoked, renewed):
        ask(sock)
    wait_until(lambda: len(server.places.strangers) == 0)
    ask(revoked, b"bad")
    ask(renewed, b"bad")
    assert len(server.places.strangers) == 2
    ask(renewed)
    assert len(server.places.strangers) == 1
    assert not ask_for(revoked, 3, b"bad")
    assert ask_for(renewed, 0.8, b"good")


def test_strangers_push_each_other_out_and_never_a_client(serve):
    server = serve(verdict, Limits(connections_max=40, greeting_deadline_s=60))
    first = client(server)
    ask(first)
    strangers = [client(server) for _ in range(60)]
    for sock in strangers[-16:]:
        ask(sock, b"bad")
    assert len(server.places.strangers) == 16 and server.places.pushed_out == 44
    assert all(is_closed(each) for each in strangers[:44])
    late = []
    for _ in range(39):
        late.append(client(server))
        ask(late[-1])
    assert len(server.connections) == 40 and not server.places.refused, "clients take the places of strangers, too"
    assert is_closed(client(server)) and server.places.refused == 1
    for sock in (first, *late):
        ask(sock)


def test_a_call_in_progress_of_a_stranger_that_is_pushed_out_is_answered_into_the_void(serve):
    waiting = []
    server = serve(lambda connection, frame: waiting.append(connection), Limits(connections_max=1))
    old = client(server)
    old.sendall(framed(call()))
    wait_until(lambda: waiting)
    new = client(server)
    assert is_closed(old)
    waiting[0].reply(b"late")
    new.sendall(framed(call()))
    wait_until(lambda: len(waiting) == 2)
    waiting[1].reply(b"fine")
    assert read_exactly(new, 8)[4:] == b"fine"


class Closable:
    def __init__(self, peer):
        self.peer, self.closed = peer, ""

    def close(self, reason):
        self.closed = reason


def test_the_bound_per_address_closes_that_addresses_oldest_stranger_only():
    places = Places(1_024)
    assert (places.strangers.count_max, places.strangers.per_address_max) == (256, 64)
    other = Closable("10.0.0.9:1")
    places.accept(other, is_tls=False)
    crowd = [Closable(f"10.0.0.1:{port}") for port in range(100)]
    for each in crowd:
        places.accept(each, is_tls=False)
    assert [bool(each.closed) for each in crowd] == [True] * 36 + [False] * 64 and not other.closed
    places.on_trust(crowd[-1], True)
    places.accept(Closable("10.0.0.1:999"), is_tls=False)
    assert places.pushed_out == 36, "clients of the address do not count"


def test_all_strangers_together_have_a_bound_and_the_oldest_goes():
    places = Places(1_024)
    crowd = [Closable(f"10.0.{number}.1:1") for number in range(200)] + [
        Closable(f"10.1.{number}.1:1") for number in range(57)
    ]
    for each in crowd:
        places.accept(each, is_tls=False)
    assert [each for each in crowd if each.closed] == crowd[:1]


def test_a_crowd_pushes_out_its_own_and_no_stranger_of_another_address():
    strangers = BoundedStrangers(1_000, 250)
    assert strangers.add("honest", "10.0.0.9") is None
    pushed_out = []
    for number in range(10_000):
        leaves = strangers.add(number, f"10.0.1.{number % 200}")
        if leaves is not None:
            strangers.remove(leaves)
            pushed_out.append(leaves)
    assert len(strangers) == 1_000 and "honest" in strangers
    assert pushed_out == sorted(pushed_out), "the oldest go first"
    assert strangers.add("another", "10.0.0.8") not in ("honest", None)


def test_the_counts_of_addresses_follow_every_change():
    chance, strangers, model = random.Random(3), BoundedStrangers(40, 9), {}
    for number in range(5_000):
        if chance.random() < 0.6:
            address = str(chance.choice([1, 2, 3, 3, 3, *range(30)]))
            leaves = strangers.add(number, address)
            model[number] = address
            most = max(Counter(model.values()).values())
            if leaves is not None:
                assert model[leaves] == address or Counter(model.values())[model[leaves]] >= most - 1
                strangers.remove(leaves)
                del model[leaves]
        elif model:
            gone = chance.choice([*model])
            strangers.remove(gone)
            del model[gone]
        assert len(strangers) == len(model) <= 40 and all(each in strangers for each in model)
        if model:
            most = max(Counter(model.values()).values())
            assert Counter(model.values())[model[strangers.first_to_go()]] == most


def test_strangers_over_tls_have_a_smaller_bound_because_of_their_memory():
    places = Places(20_000)
    plain = Closable("10.0.0.1:1")
    places.accept(plain, is_tls=False)
    crowd = [Closable(f"10.{number // 200}.{number % 200}.1:1") for number in range(1_010)]
    for each in crowd:
        places.accept(each, is_tls=True)
    assert [each for each in crowd if each.closed] == crowd[:10] and not plain.closed
    for each in crowd[10:]:
        places.on_trust(each, True)
    assert len(places.strangers) == 1


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("", ""),
    ],
)
def test_an_address_is_one_of_ipv4_or_a_network_of_ipv6(host, network):
    assert network_of(host) == network


@pytest.mark.parametrize(("connections", "bounds"), [(1, (1, 1)), (20, (16, 16)), (20_000, (5_000, 1_250))])
def test_strangers_get_a_quarter_of_the_places(connections, bounds):
    found = strangers_of(connections)
    assert (found.count_max, found.per_address_max) == bounds


def test_a_stranger_that_leaves_or_is_no_stranger_changes_nothing_for_others():
    strangers = BoundedStrangers(2, 2)
    assert strangers.add("a", "x") is None and strangers.add("b", "x") is None
    strangers.remove("a")
    strangers.remove("a")
    assert strangers.add("c", "y") is None and strangers.first_to_go() == "b"
    assert strangers.add("d", "y") == "b"


def test_full_places_are_a_note_of_readyz_and_metrics():
    places = Places(1)
    assert places.health() is True
    first = Closable("10.0.0.1:1")
    places.accept(first, is_tls=False)
    assert places.make_room() and first.closed
    assert isinstance(places.health(), Note) and "1 connections without a valid credential" in places.health()
    assert not places.make_room()
    assert isinstance(places.health(), Note) and "--connections-max" in places.health()
    values = {s.name: s.value for metric in PlacesMetrics(places).collect() for s in metric.samples}
    assert values["penstock_strangers_pushed_out_total"] == values["penstock_refused_connections_total"] == 1

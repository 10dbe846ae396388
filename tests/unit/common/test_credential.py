"""Credentials: who is who, for how long, and what they may do."""

import hashlib
import hmac
from types import SimpleNamespace

import pytest

from common.clock import FakeClock
from common.config.memory_store import MemoryConfigStore
from common.config.view import ConfigView
from common.contract import Code, Credential
from common.credential import REFUSED, WINDOW_MS, Verifier, mint
from common.dead_letters import dead_letter_topic
from common.errors import AuthenticationError

SECRET, OTHER_SECRET = "canary-secret-0123456789-abcdefghijklmnopqr", "another-secret-0123456789-abcdefghijklmnopq"
GRANTS = [["send", "orders*"], ["send", "audit"], ["pull", "orders*"], ["pull", "readers"]]


def value(*secrets, grants=GRANTS):
    keys = [{"key_id": f"k{i + 1}", "secret": secret, "created_at_ms": 0} for i, secret in enumerate(secrets)]
    return {"keys": keys, "grants": grants}


class World:
    def __init__(self):
        self.clock = FakeClock()
        self.store = MemoryConfigStore()
        self.version = self.store.put("application", "shop", value(SECRET), 0)
        self.view = ConfigView(self.store)
        self.verifier = Verifier(self.view, self.clock)

    def change(self, new):
        self.version = self.store.put("application", "shop", new, self.version)

    def mint(self, app="shop", key_id="k1", secret=SECRET, shift_ms=0):
        return mint(app, key_id, secret, self.clock.now_ms() + shift_ms)


@pytest.fixture
def world():
    made = World()
    yield made
    made.view.close()


def test_the_signature_is_the_contracts():
    text = b"penstock/1\nshop\nk1\n1700000000000"
    assert mint("shop", "k1", "secret", 1700000000000).signature == hmac.new(b"secret", text, hashlib.sha256).digest()


def test_a_minted_credential_is_accepted_and_says_until_when(world):
    fields = world.mint()
    principal = world.verifier.verify(fields)
    assert (principal.app, principal.key_id) == ("shop", "k1")
    assert principal.expires_at_ms == fields.issued_at_ms + WINDOW_MS
    assert principal.generation == world.view.generation


def test_the_contracts_struct_is_accepted_as_it_comes(world):
    assert world.verifier.verify(Credential(*world.mint())).app == "shop"


@pytest.mark.parametrize("change", ["app", "key_id", "secret"])
def test_an_unknown_application_or_key_or_a_wrong_secret_all_get_the_same_sentence(world, change):
    with pytest.raises(AuthenticationError) as caught:
        world.verifier.verify(world.mint(**{change: "x" * 20}))
    assert str(caught.value) == REFUSED
    assert caught.value.code == Code.UNAUTHENTICATED


@pytest.mark.parametrize("shift_ms", [-WINDOW_MS, 0, WINDOW_MS])
def test_a_credential_within_the_window_is_accepted(world, shift_ms):
    assert world.verifier.verify(world.mint(shift_ms=shift_ms))


@pytest.mark.parametrize(
    ("shift_ms", "words"), [(-WINDOW_MS - 1000, "301 s ago"), (WINDOW_MS + 1000, "301 s in the future")]
)
def test_a_credential_outside_the_window_is_expired(world, shift_ms, words):
    with pytest.raises(AuthenticationError, match=words):
        world.verifier.verify(world.mint(shift_ms=shift_ms))


def test_only_who_holds_the_secret_hears_about_clocks(world):
    forged = world.mint(secret="wrong-secret-wrong", shift_ms=-WINDOW_MS * 2)
    with pytest.raises(AuthenticationError) as caught:
        world.verifier.verify(forged)
    assert str(caught.value) == REFUSED


def test_two_keys_live_at_once_and_a_revoked_one_is_refused_at_once(world):
    world.change(value(SECRET, OTHER_SECRET))
    assert world.verifier.verify(world.mint(key_id="k1", secret=SECRET))
    assert world.verifier.verify(world.mint(key_id="k2", secret=OTHER_SECRET))
    seen = world.view.generation
    world.change({"keys": value(SECRET, OTHER_SECRET)["keys"][1:], "grants": GRANTS})
    assert world.view.generation > seen
    with pytest.raises(AuthenticationError):
        world.verifier.verify(world.mint(key_id="k1", secret=SECRET))


@pytest.mark.parametrize(
    "change",
    [
        {"app": None}, {"app": b"shop"}, {"app": ""}, {"app": "\ud800"}, {"key_id": None}, {"key_id": b"k1"},
        {"issued_at_ms": None}, {"issued_at_ms": "now"}, {"issued_at_ms": -(2**63)}, {"signature": None},
        {"signature": b""}, {"signature": "text"}, {"signature": bytes(32)}, {"signature": bytes(1 << 16)},
    ],
)  # fmt: skip
def test_fields_of_the_wrong_kind_are_refused_and_nothing_else(world, change):
    with pytest.raises(AuthenticationError):
        world.verifier.verify(SimpleNamespace(**{**world.mint()._asdict(), **change}))


@pytest.mark.parametrize(
    ("name", "send", "pull"),
    [
        ("orders", 1, 1),
        ("orders.eu", 1, 1),
        ("order", 0, 0),
        ("audit", 1, 0),
        ("audit2", 0, 0),
        ("readers", 0, 1),
        ("", 0, 0),
    ],
)
def test_grants_are_exact_names_or_prefixes_and_all_else_is_denied(world, name, send, pull):
    principal = world.verifier.verify(world.mint())
    assert (principal.may_send(name), principal.may_pull_from(name)) == (bool(send), bool(pull))
    assert principal.may_pull_as(name) == bool(pull)


def test_an_application_without_grants_may_do_nothing(world):
    world.change(value(SECRET, grants=[]))
    principal = world.verifier.verify(world.mint())
    assert not principal.may_send("orders")
    assert not principal.may_pull_from("")
    assert not principal.may_pull_as("")


def test_a_star_alone_allows_all(world):
    world.change(value(SECRET, grants=[["send", "*"]]))
    principal = world.verifier.verify(world.mint())
    assert principal.may_send("anything")
    assert not principal.may_pull_from("anything")
    assert not principal.may_pull_as("anything")


@pytest.mark.parametrize(
    ("action", "allowed"),
    [("topic", (True, False, False)), ("group", (False, True, False)), ("dead_letters", (False, False, True))],
)
def test_topics_groups_and_dead_letters_are_granted_apart(world, action, allowed):
    for pattern in ("billing", "bill*", "*"):
        world.change({**value(SECRET, grants=[]), "pull_grants": [[action, pattern]]})
        may = world.verifier.verify(world.mint())
        answers = may.may_pull_from("billing"), may.may_pull_as("billing"), may.may_read_dead_letters("_dlq.billing")
        assert answers == allowed
        assert not may.may_send("billing")


def test_a_grant_of_an_earlier_version_covers_topics_and_groups_and_no_dead_letters(world):
    world.change(value(SECRET, grants=[["pull", "*"]]))
    may = world.verifier.verify(world.mint())
    assert may.may_pull_from("orders") and may.may_pull_as("orders")
    assert not may.may_read_dead_letters("_dlq.orders")


@pytest.mark.parametrize("granted", ["g" * 249, "g" * 212 + "*", "g*"])
def test_dead_letters_are_granted_by_the_name_of_their_group_however_long(world, granted):
    world.change({**value(SECRET, grants=[]), "pull_grants": [["dead_letters", granted]]})
    may = world.verifier.verify(world.mint())
    assert may.may_read_dead_letters(dead_letter_topic("g" * 249))
    assert not may.may_read_dead_letters(dead_letter_topic("h" * 249))


def test_no_error_contains_the_secret(world):
    for fields in (world.mint(key_id="k9"), world.mint(shift_ms=-WINDOW_MS * 2)):
        with pytest.raises(AuthenticationError) as caught:
            world.verifier.verify(fields)
        assert SECRET not in repr(caught.value)

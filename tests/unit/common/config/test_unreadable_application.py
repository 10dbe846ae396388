"""Applications whose definition this version cannot read: what stays in force, and how a key is revoked at once."""

from dataclasses import asdict

import pytest
from prometheus_client import CollectorRegistry

from common.admin import applications, audit
from common.admin.administrator import Administrator
from common.admin.errors import StateConflict
from common.clock import FakeClock
from common.config.errors import EntryNotFound
from common.config.health import ConfigMetrics, config_health
from common.config.memory_store import MemoryConfigStore
from common.config.root_keys import RootKeys
from common.config.view import ConfigView
from common.credential import Principal, Verifier, mint
from common.errors import AuthenticationError, CredentialUnchecked
from tests.waiting import until

SECRET = "secret-of-{}-0123456789".format
LATER = ["mirror", "orders"]  # an action of a later version


def key(key_id: str) -> dict:
    return {"key_id": key_id, "secret": SECRET(key_id), "created_at_ms": 0}


class World:
    """A proxy's view of an application with two keys and two grants, which a later version changes."""

    def __init__(self, path=None, age_s_max=0.0):
        self.clock, self.path, self.age_s_max = FakeClock(), path, age_s_max
        self.store = MemoryConfigStore()
        self.value = {"keys": [key("k1"), key("k2")], "grants": [["send", "orders"], ["pull", "orders"]]}
        self.version = self.store.put("application", "shop", self.value, 0)
        self.admin = Administrator(self.store, "test:alice", self.clock)
        self.open()

    def open(self) -> None:
        self.view = ConfigView(self.store, self.path, age_s_max=self.age_s_max, clock=self.clock)
        self.verifier = Verifier(self.view, self.clock)

    def change(self, **fields) -> None:
        self.value = {**self.value, **fields}
        self.version = self.store.put("application", "shop", self.value, self.version)

    def bearer(self, key_id: str) -> Principal:
        return self.verifier.verify(mint("shop", key_id, SECRET(key_id), self.clock.now_ms()))

    def accepts(self, key_id: str) -> bool:
        try:
            return self.bearer(key_id).app == "shop"
        except AuthenticationError as error:
            assert not isinstance(error, CredentialUnchecked)
            return False


@pytest.fixture
def open_world(tmp_path):
    made = []

    def open_it(**options):
        made.append(World(tmp_path / "snapshot", **options))
        return made[-1]

    yield open_it
    for each in made:
        each.view.close()


def test_a_key_that_the_new_definition_does_not_name_is_refused_though_the_rest_cannot_be_read(open_world):
    world = open_world()
    world.change(keys=[key("k2"), key("k3")], grants=[["send", "orders"], LATER])
    assert [world.accepts(each) for each in ("k1", "k2", "k3")] == [False, True, True]
    assert world.bearer("k2").may_send("orders"), "its grants stay"


def test_a_process_that_was_away_while_a_key_was_revoked_does_not_bring_it_back(open_world):
    world = open_world()
    until(lambda: world.path.exists(), "a snapshot with both keys")
    world.view.close()
    world.change(keys=[key("k2")])
    world.change(grants=[LATER])
    world.open()
    assert [world.accepts(each) for each in ("k1", "k2")] == [False, True]


def test_a_key_in_a_form_of_a_later_version_keeps_its_secret_while_it_is_named(open_world):
    world = open_world()
    world.change(keys=[{"key_id": "k1", "sealed": "…"}, {"key_id": "k9", "sealed": "…"}])
    assert [world.accepts(each) for each in ("k1", "k2", "k9")] == [True, False, False]


def test_a_field_that_can_be_read_counts_as_it_is_now_and_another_one_keeps_its_last_form(open_world):
    world = open_world()
    world.change(addresses=["10.0.0.0/8"], rate_messages=7, grants="of a later version")
    found = world.view.application("shop")
    assert (found.addresses, found.rate_messages, found.patterns("send")) == (("10.0.0.0/8",), 7, ("orders",))
    world.change(grants=[["send", "bills"]], addresses="of a later version")
    found = world.view.application("shop")
    assert (found.addresses, found.rate_messages, found.patterns("send")) == ((), 7, ("bills",))
    world.value = {"keys": [LATER]}
    world.change()
    found = world.view.application("shop")
    assert (found.rate_messages, found.grants, len(found.keys)) == (0, (), 2), (
        "fields that are gone have their defaults"
    )


def test_a_value_that_is_no_object_keeps_the_whole_last_form(open_world):
    world = open_world()
    world.version = world.store.put("application", "shop", "garbled", world.version)
    assert world.accepts("k1") and world.bearer("k2").may_send("orders")


def test_the_state_is_told_by_log_readiness_and_metrics_until_it_ends(open_world, caplog):
    world = open_world()
    registry = CollectorRegistry()
    registry.register(ConfigMetrics(lambda: world.view))
    unreadable = lambda: registry.get_sample_value("penstock_config_unreadable", {"kind": "application"})  # noqa: E731
    assert unreadable() == 0 and config_health(world.view) is True
    world.change(grants=[LATER])
    assert unreadable() == 1 and 'application "shop": cannot be read' in config_health(world.view)
    until(lambda: "its last known form is in force" in caplog.text, "the keeper's line")
    world.change(grants=[])
    assert unreadable() == 0 and config_health(world.view) is True


def test_keys_that_cannot_be_told_are_not_trusted_for_longer_than_the_configurations_age_allows(open_world):
    world = open_world(age_s_max=60.0)
    world.change(grants=[LATER])
    world.clock.advance(61_000)
    assert world.accepts("k1"), "keys that are told do not age"
    world.change(keys="of a later version")
    world.view.close()
    world.open()  # the time is in the snapshot, so a restart does not begin it anew
    before = world.view.generation

    def is_unchecked() -> bool:
        try:
            return not world.bearer("k1")
        except CredentialUnchecked as error:
            return error.code == 203

    until(is_unchecked, "the bound")
    assert world.view.generation > before - 1
    world.change(keys=[key("k1")])
    until(lambda: not is_unchecked() and world.accepts("k1"), "keys that are told again")


def test_without_a_bound_keys_that_cannot_be_told_stay_until_an_operator_deletes_the_application(open_world):
    world = open_world()
    world.change(keys="of a later version")
    world.clock.advance(86_400_000)
    assert world.accepts("k1") and world.accepts("k2")
    with pytest.raises(StateConflict, match="delete it to reject all of them at once"):
        applications.revoke(world.admin, "shop", "k1")
    applications.delete(world.admin, "shop")
    assert not world.accepts("k1") and not world.accepts("k2")
    record = audit.latest(world.store, 1)[0]
    assert (record["action"], record["names"], record["old"]) == ("delete", ["shop"], None)


def test_an_operator_revokes_one_key_of_a_definition_that_cannot_be_read(open_world):
    world = open_world()
    world.change(grants=[LATER], addresses=["10.0.0.0/8"], keys=[key("k1"), {"key_id": "k2", "sealed": "…"}])
    assert world.accepts("k1") and world.accepts("k2")
    with pytest.raises(EntryNotFound, match='key "k7" not found'):
        applications.revoke(world.admin, "shop", "k7")
    applications.revoke(world.admin, "shop", "k1")
    assert [world.accepts(each) for each in ("k1", "k2")] == [False, True]
    stored = world.store.get("application", "shop").value
    assert stored == {**world.value, "keys": [{"key_id": "k2", "sealed": "…"}]}, "nothing else has changed"
    assert "secret" not in str(audit.latest(world.store, 1))
    applications.revoke(world.admin, "shop", "k2")
    assert not world.accepts("k2")


def test_a_store_that_was_made_again_brings_no_earlier_form_back(open_world):
    world = open_world()
    world.change(keys="of a later version")
    identity = world.store.identity()
    world.store.wipe()
    world.store.set_identity(identity._replace(generation=identity.generation + 1))
    until(lambda: not world.view.unreadable and world.view.damage is None, "the accepted content")
    world.store.put("application", "shop", {"keys": "of a later version"}, 0)
    assert not world.accepts("k1")


def test_a_key_whose_secret_is_derived_is_told_apart_and_revoked_as_the_others_are(open_world):
    world = open_world()
    roots = world.view.root_keys = RootKeys([bytes(range(32))])
    derived, secret = roots.new_key("shop", "k3", 0)
    world.change(derived_keys=[asdict(derived), {"key_id": "k4", "sealed": "…"}], grants=[LATER], keys=[key("k2")])
    credential = mint("shop", "k3", secret, world.clock.now_ms())
    assert world.verifier.verify(credential).key_id == "k3" and world.accepts("k2") and not world.accepts("k1")
    applications.revoke(world.admin, "shop", "k4")
    applications.revoke(world.admin, "shop", "k3")
    with pytest.raises(AuthenticationError):
        world.verifier.verify(credential)
    assert world.accepts("k2") and world.store.get("application", "shop").value["derived_keys"] == []
    found = world.store.get("application", "shop")
    world.store.put("application", "shop", {**found.value, "derived_keys": "of a later version"}, found.version)
    assert world.view.application("shop").key("k2") is not None, "where ids are not told the last ones stay"
    with pytest.raises(StateConflict, match="delete it to reject all of them at once"):
        applications.revoke(world.admin, "shop", "k2")

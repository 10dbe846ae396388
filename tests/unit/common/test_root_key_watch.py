"""A proxy's root keys: followed while their file changes, and compared with those that the configuration needs."""

import logging

import pytest
from prometheus_client import CollectorRegistry

from common.clock import FakeClock
from common.config.definitions import ApplicationDefinition
from common.config.errors import InvalidEntry
from common.config.memory_store import MemoryConfigStore
from common.config.root_keys import RootKeys
from common.config.view import ConfigView
from common.credential import Verifier, mint
from common.errors import AuthenticationError
from common.limited_log import LimitedLog
from common.readiness import Note
from common.root_key_watch import RootKeyWatch

FIRST, SECOND = bytes(range(32)), bytes(range(100, 132))


class World:
    """A configuration with applications by each root key, and a proxy's view of it."""

    def __init__(self, folder):
        self.path = folder / "secrets.key"
        self.clock, self.store, self.secrets = FakeClock(), MemoryConfigStore(), {}
        self.view = ConfigView(self.store)
        self.verifier = Verifier(self.view, self.clock)

    def put(self, *keys, mode=0o600):
        fresh = self.path.with_name("fresh")
        fresh.touch(0o600)
        fresh.write_bytes(b"".join(keys))
        fresh.chmod(mode)
        fresh.replace(self.path)

    def application(self, name, root):
        key, secret = RootKeys([root] if root else []).new_key(name, "k-1", 0)
        self.store.put("application", name, ApplicationDefinition(name, (key,)).to_value(), 0)
        self.secrets[name] = secret

    def watch(self, path=True):
        self.watched = RootKeyWatch(str(self.path) if path else None, self.view)
        return self.watched

    def checked(self):
        """Twice: a changed file is loaded once it has stayed the same."""
        for _ in range(2):
            self.watched.check()
        return self.watched.health()

    def accepted(self):
        return {name for name in self.secrets if self._accepts(name)}

    def _accepts(self, name):
        try:
            return bool(self.verifier.verify(mint(name, "k-1", self.secrets[name], self.clock.now_ms())))
        except AuthenticationError as error:
            assert error.code == 104
            return False

    def metrics(self):
        registry = CollectorRegistry()
        registry.register(self.watched)
        return [registry.get_sample_value(f"penstock_root_keys_{name}") for name in ("missing", "refused")]


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(LimitedLog, "kinds", {})
    made = World(tmp_path)
    yield made
    made.view.close()


def test_a_root_key_more_and_one_less_count_without_a_restart(world, caplog):
    caplog.set_level(logging.INFO)
    world.application("shop", FIRST)
    world.application("till", SECOND)
    world.put(FIRST)
    world.watch()
    assert world.accepted() == {"shop"}
    generation = world.view.generation
    world.put(SECOND, FIRST)
    assert world.checked() == {"secrets": True} and world.accepted() == {"shop", "till"}
    assert world.view.generation == generation + 1, "verdicts of before are void"
    world.put(SECOND)
    state = world.checked()["secrets"]
    assert (
        isinstance(state, Note) and "application shop: keys are refused" in state and RootKeys([FIRST]).ids[0] in state
    )
    assert world.accepted() == {"till"} and world.metrics() == [1, 0]
    assert "loaded again: root keys" in caplog.text
    assert not any(secret in caplog.text for secret in world.secrets.values())


@pytest.mark.parametrize("content", [(), (FIRST[:9],), (FIRST, FIRST), None])
def test_a_changed_file_that_cannot_be_used_leaves_the_keys_of_before_in_use(world, content, caplog):
    world.application("shop", FIRST)
    world.put(FIRST)
    world.watch()
    if content is None:
        world.path.unlink()
    else:
        world.put(*content)
    state = world.checked()["secrets"]
    assert isinstance(state, Note) and "the keys loaded before are in use" in state
    assert world.accepted() == {"shop"} and world.metrics() == [0, 1]
    assert str(world.path) in caplog.text
    world.put(FIRST, SECOND)
    assert world.checked() == {"secrets": True} and world.metrics() == [0, 0]


def test_a_file_that_others_may_read_is_not_loaded_and_ends_a_start(world):
    world.put(FIRST)
    world.watch()
    world.put(SECOND, mode=0o640 | 0o004)
    assert "chmod 600" in world.checked()["secrets"]
    with pytest.raises(InvalidEntry, match="--secrets-key"):
        world.watch()


def test_a_proxy_without_the_option_says_which_applications_need_it(world, caplog):
    world.watch(path=False)
    assert world.checked() == {}, "nothing to say where no secret is derived"
    world.application("clear", None)
    for name in ("shop", "till", "kiosk"):
        world.application(name, FIRST)
    state = world.checked()["secrets"]
    assert isinstance(state, Note)
    root = RootKeys([FIRST]).ids[0]
    said = f"application kiosk and 2 more: keys are refused, they need root key {root}: --secrets-key is not given"
    assert state == said and said in caplog.text
    assert world.accepted() == {"clear"}


def test_the_note_ends_with_the_last_key_that_needs_the_root_key(world):
    world.put(SECOND)
    world.application("shop", FIRST)
    assert "shop" in world.watch().health()["secrets"]
    world.store.delete("application", "shop", 1)
    assert world.checked() == {"secrets": True}


def test_a_call_that_is_refused_for_want_of_a_root_key_is_logged_once(world, caplog):
    world.put(SECOND)
    world.application("shop", FIRST)
    world.watch()
    caplog.clear()
    for _ in range(5):
        assert world.accepted() == set()
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith("application=shop key=k-1: its calls are refused: --secrets-key has no root key r-")
    assert world.secrets["shop"] not in line

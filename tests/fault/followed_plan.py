"""A plan over a real ZooKeeper: the world of its unit tests, whose proxies follow the configuration by a view."""

import threading
from contextlib import suppress

import gevent

from common.admin.administrator import Administrator
from common.config.errors import ConfigError
from common.config.store import SENT
from common.config.view import ConfigView
from common.config.zookeeper_store import ZooKeeperStore
from producer_proxy.admission.fences import Fences
from tests.unit.migration.world import Proxy, World
from tests.waiting import until


class FollowingProxy(Proxy):
    """A producer proxy that follows the configuration by a view, and ends fences as real ones do."""

    def __init__(self, world, name) -> None:
        self.world, self.name, self.open = world, name, []
        self.store = world.open()
        self.view = ConfigView(self.store, process=name)
        self.fences = Fences(self.view, self.store, world.clock.monotonic_s)
        self.view.own_report.add(lambda: {SENT: self._sent()})

    def _sent(self) -> int:
        topics = self.view.version["topic"]
        return topics if all(at >= topics for at, *_ in self.open) else 0

    def apply(self) -> None:
        """Does nothing: the view follows by itself."""

    def report(self) -> None:
        self.view.own_report.repeat()

    def send(self, topic) -> None:
        version, definition = self.view.version["topic"], self.view.topic(topic)
        if definition is not None and self.fences.of(topic) is None:
            is_moved = definition.home == "engine"
            self.open.append((version, topic, self.world.engine_side if is_moved else self.world.kafka_side))

    def expire(self) -> None:
        self.fences.tick()
        gevent.sleep(0)

    @property
    def fenced(self) -> list[str]:
        return [name for name in self.world.plan.topic_names if (each := self.view.topic(name)) and each.fence]

    def close(self) -> None:
        self.view.close()
        self.store.close()


class Told(list):
    """Progress of a plan; `strike` is called once, at the sentence `at`."""

    at, strike = "", staticmethod(lambda: None)

    def append(self, sentence) -> None:
        super().append(sentence)
        if sentence == self.at:
            self.at = ""
            self.strike()


class ZooKeeperWorld(World):
    """A plan's world whose configuration is in a real ZooKeeper."""

    proxy_class = FollowingProxy

    def __init__(self, options) -> None:
        self.options, self._opened = options, []
        super().__init__()
        self.progress = Told()

    def open(self) -> ZooKeeperStore:
        self._opened.append(ZooKeeperStore(self.options))
        return self._opened[-1]

    def open_stores(self, seed, dies):
        return self.open(), self.open(), self.open()

    @property
    def admin(self) -> Administrator:
        return Administrator(self.store, "cli:test@desk")

    def turn(self, seconds=0.1) -> None:
        with suppress(ConfigError):
            super().turn(seconds)
        threading.Event().wait(0.02)  # the pause of a command, in which the views follow

    def wait_unfenced(self) -> None:
        """Until no proxy sees a fence any more, without an operator."""
        until(lambda: self.turn() or not any(each.fenced for each in self.proxies), "the end of the fences", 30.0)

    def close(self) -> None:
        for each in self.proxies:
            each.close()
        for store in self._opened:
            store.close()

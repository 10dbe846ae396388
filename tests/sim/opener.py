"""A client that creates topics by its pulls, and never the same for long."""

from engine.link import layout
from engine.link.pull import encode_pull
from tests.sim.clients import FRESH_MS, Client
from tests.sim.engine import Engine
from tests.sim.history import History
from tests.sim.link import Link


class Opener(Client):
    """Pulls topics as they come up, so that a pull creates them as often as a sender does. It takes no message."""

    def __init__(self, engine: Engine, name: str, history: History, topics: dict[str, int]) -> None:
        super().__init__(engine, name, history)
        self.topics = topics

    def on_ready(self, link: Link) -> None:
        self._pull(link)

    def _pull(self, link: Link) -> None:
        if link.closed or self.stopped:
            return
        number = self.world.now_ms // FRESH_MS % 1000
        wanted = [(f"{name}{number}", queues) for name, queues in self.topics.items()]
        request = encode_pull("openers", wanted, max_messages=0)
        link.ask(layout.PULL, request, lambda code, payload: None)
        self.world.after(self.random.randint(100, 800), lambda: self._pull(link))

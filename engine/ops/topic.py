"""TOPIC: finds or creates topics, and answers their ids and queue counts."""

import json

from engine.link import layout
from engine.log import Log
from engine.ops.checks import checked_name, is_whole, json_answer, shown
from engine.ops.errors import RequestError
from engine.ops.peer import Peer

TOPICS_PER_REQUEST = 10_000
QUEUES_MAX = 65_536


class CreateTopics:
    """Serves TOPIC."""

    def __init__(self, store: Log) -> None:
        self._store = store

    def handle(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Create missing topics; answer once the new topics are durable."""
        wanted = _wanted_topics(payload)
        before = self._store.end_position
        topics = self._store.create_topics(wanted)
        found = {"topics": [{"id": topic.id, "queues": topic.queues} for topic in topics]}

        def answer() -> None:
            peer.send_frame(layout.TOPIC, request_id, layout.OK, json_answer(found))

        if self._store.end_position == before:
            answer()
        else:
            # A crash could take back an id that proxies append under already, and the next topic would get it.
            self._store.when_durable(self._store.end_position, answer)


def _wanted_topics(payload: bytes) -> list[tuple[str, int]]:
    try:
        listed = json.loads(payload)["topics"]
        wanted = [(checked_name(each["name"], "topic"), each["queues"]) for each in listed]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RequestError('TOPIC: send a JSON object {"topics": [{"name", "queues"}]}') from None
    if len(wanted) > TOPICS_PER_REQUEST:
        raise RequestError(f"TOPIC: {len(wanted)} topics: send at most {TOPICS_PER_REQUEST} per request")
    for name, queues in wanted:
        if not is_whole(queues, 1, QUEUES_MAX):
            raise RequestError(f'topic "{name}": queues {shown(queues)}: use 1..{QUEUES_MAX}')
    return wanted

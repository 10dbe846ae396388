"""TOPIC: finds or creates topics, and answers their ids and queue counts."""

import json

from common.names import split_stored_name
from engine.delivery.creations import TOPIC, Creations
from engine.link import layout
from engine.log import Log
from engine.ops.checks import checked_name, checked_stored_name, is_whole, json_answer, shown
from engine.ops.errors import RequestError
from engine.ops.peer import Peer

TOPICS_PER_REQUEST = 10_000
QUEUES_MAX = 65_536


class CreateTopics:
    """Serves TOPIC."""

    def __init__(self, store: Log, creations: Creations) -> None:
        self._store, self._creations = store, creations

    def handle(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Create missing topics; answer once all topics of the answer are durable.

        A PULL or another TOPIC may have created them just now. A power cut could take back an id that proxies append
        under already, and the next topic would get it.
        """
        wanted, application = _wanted_topics(payload)
        new = (name for name, _ in wanted if self._store.topic(split_stored_name(name)[0]) is None)
        self._creations.admit(TOPIC, new, application)
        topics = self._store.create_topics(wanted)
        self._creations.topic_uses.note(topic.id for topic in topics)
        found = {"topics": [{"id": topic.id, "queues": topic.queues} for topic in topics]}

        def answer() -> None:
            peer.send_frame(layout.TOPIC, request_id, layout.OK, json_answer(found))

        self._store.when_durable(self._store.topics_position, answer)


def _wanted_topics(payload: bytes) -> tuple[list[tuple[str, int]], str]:
    try:
        asked = json.loads(payload)
        listed, application = asked["topics"], asked.get("application", "")
        wanted = [(checked_stored_name(each["name"]), each["queues"]) for each in listed]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RequestError('TOPIC: send a JSON object {"topics": [{"name", "queues"}]}') from None
    if len(wanted) > TOPICS_PER_REQUEST:
        raise RequestError(f"TOPIC: {len(wanted)} topics: send at most {TOPICS_PER_REQUEST} per request")
    for name, queues in wanted:
        if not is_whole(queues, 1, QUEUES_MAX):
            raise RequestError(f'topic "{name}": queues {shown(queues)}: use 1..{QUEUES_MAX}')
    return wanted, checked_name(application, "application") if application else ""

"""CLAIM: the home of an id decides the queue of its message, for proxies over several broker groups.

The claim is in the log and in the window of ids before it is answered, so every copy meets it. Steps and failures:
docs/design/0028-ids-over-broker-groups.md.
"""

from collections.abc import Iterable

from common.names import split_stored_name
from engine.delivery.topic_uses import TopicUses
from engine.errors import DiskFullError
from engine.link import layout
from engine.link.claim import CLAIM_QUEUE, CLAIMS_MAX, WINDOW_MS_MAX, Claim, Claimed, claim_batch
from engine.link.codes import CLAIMED, DISK_FULL
from engine.log import Log
from engine.log.format import CODE_NO_ROOM
from engine.ops.checks import checked_stored_name, is_whole, json_answer, json_object, shown
from engine.ops.errors import RequestError
from engine.ops.peer import Peer
from engine.ops.topic import QUEUES_MAX
from engine.timers.timers import Timers

RULE = 'CLAIM: send a JSON object {"durability", "ids": [[topic, queues, id, queue or null, window_ms], ...]}'


class Claims:
    """Serves CLAIM.

    Args:
        timers: delayed messages that are pending have their ids too.
        uses: notes that the topics are in use.
    """

    def __init__(self, store: Log, timers: Timers, uses: TopicUses) -> None:
        self._store, self._timers, self._uses = store, timers, uses

    def handle(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Claim the ids; answered when the claims are as durable as their messages will be."""
        request = json_object(payload, RULE)
        durability = request.get("durability")
        if not is_whole(durability, layout.MEMORY, 4):
            raise RequestError(RULE)
        claims = _claims(request.get("ids"))
        if self._store.for_timers.refusal and any(each.queue is not None for each in claims):
            raise DiskFullError(self._store.for_timers.refusal)
        answer = json_answer({"ids": self._claim(claims)})
        if durability == layout.MEMORY:
            peer.send_frame(layout.CLAIM, request_id, layout.OK, answer)
        else:
            self._store.when_durable(
                self._store.end_position, lambda: peer.send_frame(layout.CLAIM, request_id, layout.OK, answer)
            )

    def _claim(self, claims: list[Claim]) -> list[Claimed]:
        names = list(dict.fromkeys((each.topic, each.queues) for each in claims if each.queue is not None))
        topics = {name: topic.id for (name, _), topic in zip(names, self._store.create_topics(names), strict=True)}
        results: list[Claimed] = []
        batches: dict[tuple[int, str], tuple[int, bytes]] = {}  # (topic id, id) -> (index in results, batch)
        queues: dict[tuple[int, str], int] = {}
        for claim in claims:
            topic = self._store.topic(split_stored_name(claim.topic)[0]) if claim.topic not in topics else None
            topic_id = topics.get(claim.topic, 0 if topic is None else topic.id)
            place = topic_id, claim.id
            self._uses.note((topic_id,))
            if place in queues:
                results.append((CLAIMED, queues[place], None))
                continue
            code, queue, offset = self._known(topic_id, claim)
            if code != layout.DUPLICATE and queue is not None:
                queues[place], batches[place] = queue, (len(results), claim_batch(topic_id, claim, queue))
            results.append((code, queue, offset))
        self._append(batches.values(), results)
        return results

    def _known(self, topic_id: int, claim: Claim) -> Claimed:
        """What the engine knows of the id, or that its queue is to be claimed."""
        id_bytes = claim.id.encode("utf-8", "surrogateescape")
        if self._timers.holds(topic_id, id_bytes):
            return layout.DUPLICATE, None, None
        found = self._store.for_timers.first_copy(topic_id, id_bytes)
        if found is None:
            return layout.OK, claim.queue, None
        queue, offset = found
        return (CLAIMED, queue ^ CLAIM_QUEUE, None) if queue & CLAIM_QUEUE else (layout.DUPLICATE, queue, offset)

    def _append(self, batches: Iterable[tuple[int, bytes]], results: list[Claimed]) -> None:
        """Append the claims, also those that were found: a copy begins the window anew."""
        made = list(batches)
        if not made:
            return
        appended = self._store.for_timers.append(b"".join(batch for _, batch in made), len(made))
        for (index, _), (code, _) in zip(made, appended, strict=True):
            if code != layout.OK:
                results[index] = (DISK_FULL if code == CODE_NO_ROOM else layout.UNAVAILABLE, None, None)


def _claims(listed: object) -> list[Claim]:
    if not isinstance(listed, list):
        raise RequestError(RULE)
    if len(listed) > CLAIMS_MAX:
        raise RequestError(f"CLAIM: {len(listed)} ids: send at most {CLAIMS_MAX} per request")
    return [_checked(each) for each in listed]


def _checked(given: object) -> Claim:
    if not isinstance(given, list) or len(given) != len(Claim._fields):
        raise RequestError(RULE)
    topic, queues, id_text, queue, window_ms = given
    name = checked_stored_name(topic)
    if not isinstance(id_text, str) or not 0 < len(id_text.encode("utf-8", "surrogateescape")) <= 1024:
        raise RequestError(f'topic "{name}": id {shown(id_text)}: use 1 to 1024 bytes')
    if not is_whole(queues, 1, QUEUES_MAX) or not (queue is None or is_whole(queue, 0, queues - 1)):
        raise RequestError(f'topic "{name}": queue {shown(queue)} of {shown(queues)}: use 1..{QUEUES_MAX} queues')
    if not is_whole(window_ms, 1, WINDOW_MS_MAX):
        raise RequestError(f'topic "{name}": window {shown(window_ms)} ms: use 1..{WINDOW_MS_MAX}')
    return Claim(name, queues, id_text, queue, window_ms)

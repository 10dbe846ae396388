"""Moving messages that nobody will be given again to their group's dead letters.

A message is first claimed: it leaves its holder's hands for a lease of the engine's own, which no time ends. Then its dead letter is
appended, and only when that is durable does the message count as done. A crash in between leaves the message open in the kept progress:
it is buried again, so there may be two dead letters of one origin, but never none.
"""

import logging
from collections import deque
from typing import NamedTuple

from common.dead_letters import QUEUES_MAX, dead_letter_topic
from engine.delivery import dead_letter
from engine.delivery.counts import Counts
from engine.delivery.in_flight import Run
from engine.delivery.leases import Clockwork
from engine.delivery.queue_cursor import Place
from engine.delivery.queue_ownership import Residence
from engine.delivery.subscription import Hungry
from engine.errors import CorruptionError, EngineError, OffsetOutOfRangeError
from engine.log.format import KIND_MESSAGES, pack_batch, whole_records
from engine.replies.requests import Requests

log = logging.getLogger(__name__)
MESSAGES_A_STEP = 256
"""Buried before the loop turns: a few milliseconds."""
BYTES_A_BATCH = 1 << 20
AGAIN_MS = 500
"""Until the next try after a full disk, or while the records are fetched from far behind the end."""


class Grave(NamedTuple):
    """Messages first..end of a place, all with one history. `claim`: the lease that holds them until they are done."""

    place: Place
    first: int
    end: int
    claim: int
    attempts: int
    first_lease: int
    last_lease: int
    cause: str
    reason: str


class Burials:
    """Messages claimed and not yet durable as dead letters; `step()` works them off, a few at a time.

    Args:
        store: the log: create_topics, read, append, when_durable.
        dirty: places whose progress has to be written.
        hungry: told of places that have room again.
        residence: where dead letters may lie.
        requests: told of each record that is given up.
    """

    def __init__(
        self, store, clockwork: Clockwork, dirty: set[Place], counts: Counts, hungry: Hungry, residence: Residence,
        requests: Requests | None = None,
    ) -> None:  # fmt: skip
        self._store, self._clockwork, self._residence = store, clockwork, residence
        self._dirty, self._counts, self._hungry = dirty, counts, hungry
        self.requests = requests
        self._graves: deque[Grave] = deque()
        self._again_ms = 0

    def __len__(self) -> int:
        return len(self._graves)

    def add(self, place: Place, claimed: list[Run], claim: int, cause: str, reason: str) -> None:
        """Bury what was claimed by the lease `claim`."""
        for run in claimed:
            self._graves.append(
                Grave(place, run.first, run.end, claim, run.attempt, run.first_lease, run.lease, cause, reason)
            )

    def step(self, now_ms: int) -> int | None:
        """Bury some; returns when to call again, None when none are left."""
        left = MESSAGES_A_STEP
        while self._graves and left > 0 and now_ms >= self._again_ms:
            grave = self._graves.popleft()
            done = self._bury(grave, left)
            if done is None:
                self._graves.append(grave)
                self._again_ms = now_ms + AGAIN_MS
                break
            if done < grave.end:
                self._graves.appendleft(grave._replace(first=done))
            left -= done - grave.first
        return max(now_ms, self._again_ms) if self._graves else None

    def _bury(self, grave: Grave, messages_max: int) -> int | None:
        """Append dead letters for the first messages; returns the offset behind them, None when it cannot be done now."""
        place = grave.place
        if grave.claim < place.floor:
            return (
                grave.end
            )  # an operator has moved the group: it will be given these messages again, or passes them over
        try:
            count = min(grave.end - grave.first, messages_max)
            pieces = self._store.read(place.topic_id, place.queue, grave.first, count, BYTES_A_BATCH)
            if not pieces:
                return None
            records = [record for piece in pieces for record in whole_records(piece.records)]
            end = grave.first + len(records)
            self._append(grave, end, records)
            return end
        except OffsetOutOfRangeError as gone:
            return self._give_up(grave, gone.first_offset, gone)
        except CorruptionError as damage:
            return self._give_up(grave, damage.next_offset or grave.end, damage)
        except EngineError as error:
            log.warning("topic=%s queue=%d: dead letters wait: %s", place.topic_name, place.queue, error)
            return None

    def _append(self, grave: Grave, end: int, records: list[bytes]) -> None:
        topic_name = dead_letter_topic(grave.place.group.name)
        queue = self._residence.nearest(topic_name, 0, QUEUES_MAX)
        if queue is None:
            raise EngineError("the configuration has not told yet which queues live here")
        (topic,) = self._store.create_topics([(topic_name, queue + 1)])
        letters = [
            dead_letter.bury(record, topic_name, self._told(grave, grave.first + at, record))
            for at, record in enumerate(map(dead_letter.parse, records))
        ]
        batch = pack_batch(KIND_MESSAGES, topic.id, queue, letters)
        ((code, _),) = self._store.append(batch, 1, self._clockwork.wall_ms())
        if code:
            raise EngineError(f"the log refused a batch of {len(batch)} bytes with code {code}")
        if self.requests is not None:
            for record in records:
                self.requests.failed(grave.place.group.name, record)
        first = grave.first
        self._store.when_durable(self._store.end_position, lambda: self._settle(grave, first, end))

    def _told(self, grave: Grave, offset: int, record: dead_letter.Record) -> dict[str, object]:
        place = grave.place
        return {
            "group": place.group.name,
            "cause": grave.cause,
            "reason": grave.reason or None,
            "attempts": grave.attempts,
            "first_ms": Clockwork.born_ms(grave.first_lease) or None,
            "last_ms": Clockwork.born_ms(grave.last_lease) or None,
            "topic": place.topic_name,
            "queue": place.queue,
            "offset": offset,
            "id": record.id or None,
        }

    def _settle(self, grave: Grave, first: int, end: int) -> None:
        place = grave.place
        place.settle(first, end, grave.claim, False)
        self._counts.dead_letters += end - first
        self._dirty.add(place)
        if place.blocked:
            self._hungry.wake(place)

    def _give_up(self, grave: Grave, gone_until: int, why: EngineError) -> int:
        """Retention or damage took the messages from everybody: nothing is left to be buried."""
        end = min(max(gone_until, grave.first + 1), grave.end)
        log.error(
            "topic=%s queue=%d offsets %d to %d: lost before they became dead letters of group %s: %s",
            grave.place.topic_name, grave.place.queue, grave.first, end - 1, grave.place.group.name, why,
        )  # fmt: skip
        grave.place.settle(grave.first, end, grave.claim, False)
        self._dirty.add(grave.place)
        return end

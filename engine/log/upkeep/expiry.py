"""Expiry: when the oldest segment is past the retention of every topic in it."""

import logging
import struct
from collections.abc import Generator

from common.limited_log import LimitedLog
from engine.env.base import Env
from engine.errors import CorruptionError
from engine.log.format import BATCH_HEADER, BATCH_HEADER_SIZE, CONTROL_TOPIC_ID
from engine.log.read.retentions import TopicRetentions
from engine.log.segment.index_file import read_index_header
from engine.log.segment.segment import Segment
from engine.log.segment.segments import LogSegments

limited = LimitedLog(logging.getLogger(__name__))

ASKED = 50
"""Queues whose topics' retention is looked up in one step: below a millisecond."""

NEVER_MS = 1 << 62


class Expiry:
    """Decides whether the oldest segment has expired, and remembers its findings.

    One topic that keeps the segment is enough, and is remembered until its time is over. So a segment of a million
    topics is gone through completely only once, before it is deleted.

    Args:
        retention_ms: of topics without a retention of their own; 0: never.
    """

    def __init__(self, env: Env, segments: LogSegments, retentions: TopicRetentions, retention_ms: int) -> None:
        self._env, self._segments, self._retentions = env, segments, retentions
        self._default_ms = retention_ms or NEVER_MS
        self._base = self._generation = -1
        self._expires_ms = self._newest_ms = 0
        self._is_partial = False
        """Whether the topics were looked at only up to the first that keeps the segment."""
        self._unknown: int | None = None
        self._held_from_ms = 0

    def is_expired(self, base: int, now_ms: int) -> Generator[None, None, bool]:
        """Whether the sealed segment's newest batch is older than the retention of every topic in it.

        Yields where the loop may do other work.
        """
        policy = self._retentions.policy
        if not policy.is_known:
            return False
        is_known = (self._base, self._generation) == (base, policy.generation)
        if not is_known or (self._expires_ms < now_ms and self._is_partial):
            generation = policy.generation
            segment = self._segments.sealed.get(base)
            assert segment is not None
            newest = self._newest_ms = self._newest_of(segment, now_ms)
            kept_ms = yield from self._kept_ms(segment, now_ms - newest)
            self._base, self._generation = base, generation
            self._expires_ms, self._is_partial = newest + kept_ms, kept_ms >= now_ms - newest
        return self._expires_ms < now_ms

    def unknown(self, now_ms: int) -> int | None:
        """Id of a topic whose unknown retention keeps the segment, which otherwise would be too old; else None."""
        return self._unknown if self._held_from_ms < now_ms else None

    def _newest_of(self, segment: Segment, now_ms: int) -> int:
        """Time at which the segment's last batch was stored, or a later one: the disk may not be able to tell.

        The last batch of the next segment is later, and so is now. The time at which the segment was created may be
        days before its last batch.
        """
        found = newest_ms(self._env, segment)
        for base in sorted(each for each in self._segments.sealed.bases if each > segment.base):
            if found is not None:
                return found
            following = self._segments.sealed.get(base)
            found = None if following is None else newest_ms(self._env, following)
        return now_ms if found is None else found

    def _kept_ms(self, segment: Segment, age_ms: int) -> Generator[None, None, int]:
        """The longest retention of its topics, or of those up to the first that keeps it at this age."""
        longest_ms, last = 0, CONTROL_TOPIC_ID
        self._unknown = None
        assert segment.sealed is not None
        for start in range(0, segment.sealed.directory_count, ASKED):
            for topic_id, *_ in segment.sealed.queues(start, ASKED):
                if topic_id != last:
                    last = topic_id
                    own = self._retentions.of(topic_id)
                    if own is None:
                        self._unknown = topic_id
                    else:
                        longest_ms = max(longest_ms, own.age_ms or self._default_ms)
            if longest_ms >= age_ms:
                return longest_ms
            yield
        if self._unknown is not None:
            self._held_from_ms = self._newest_ms + max(longest_ms, self._default_ms)
            return NEVER_MS
        return longest_ms or self._default_ms


def newest_ms(env: Env, segment: Segment) -> int | None:
    """Time at which the segment's last batch was stored; its creation when it has none; None: the disk cannot tell."""
    created_ms = 0 if segment.is_header_made else segment.header.created_ms
    try:
        index = read_index_header(env, segment.path.rpartition("/")[0], segment.base)
        if not index.last_at:
            return index.created_ms
        head = BATCH_HEADER.unpack(segment.file.read_at(BATCH_HEADER_SIZE, index.last_at))
    except (OSError, CorruptionError, struct.error) as error:
        limited.warning("file=%s: the time of its last message cannot be read: %s", segment.path, error)
        return None
    return max(created_ms, head[11]) if head[0] == index.last_crc else None

"""The header `penstock-copy` of a record that was copied from the engine to Kafka: docs/design/0035-migration.md, "Loops".

    LOG-ID TOPIC-ID QUEUE OFFSET HASH          in ASCII, parted by one space; HASH: 8 bytes in hexadecimal

By it the copy in the other direction tells that it has the record already. An application may pass the header on with
another body or key; the hash tells such a record from a copy.
"""

import hashlib
from typing import NamedTuple

from common.kafka.records import Headers

COPY_HEADER = "penstock-copy"
HASH_SIZE = 8


class CopyMark(NamedTuple):
    """The place of a message in the engine, and the hash of its key and body.

    Attributes:
        log_id: of the engine that has the queue.
        topic_id: in that log.
    """

    log_id: str
    topic_id: int
    queue: int
    offset: int
    content_hash: bytes

    def encode(self) -> bytes:
        """The header's value."""
        place = f"{self.log_id} {self.topic_id} {self.queue} {self.offset}"
        return f"{place} {self.content_hash.hex()}".encode()

    def matches(self, key: bytes | None, value: bytes | None) -> bool:
        """Whether the record still has the key and the value that were copied."""
        return self.content_hash == content_hash(key, value)


def content_hash(key: bytes | None, value: bytes | None) -> bytes:
    """8 bytes of BLAKE2b of a record's key and value. Null and empty differ, and so do different borders of both."""
    sizes = b"%d %d " % (-1 if key is None else len(key), -1 if value is None else len(value))
    return hashlib.blake2b(sizes + (key or b"") + (value or b"")).digest()[:HASH_SIZE]


def is_copy_of(log_id: str, topic_id: int, headers: Headers, key: bytes | None, value: bytes | None) -> bool:
    """Whether a record is a copy of a message of that topic: its mark names it, and key and value are the message's.

    A record with another body, which an application has written with our header, is not.
    """
    marks = [header for name, header in headers if name == COPY_HEADER]
    mark = parse_copy_mark(marks[0]) if len(marks) == 1 else None
    return mark is not None and (mark.log_id, mark.topic_id) == (log_id, topic_id) and mark.matches(key, value)


def parse_copy_mark(header: bytes | None) -> CopyMark | None:
    """The mark of a header's value; None: it is not one."""
    parts = (header or b"").split(b" ")
    if len(parts) != 5:
        return None
    try:
        log_id, found = parts[0].decode("ascii"), bytes.fromhex(parts[4].decode("ascii"))
        topic_id, queue, offset = (int(part) for part in parts[1:4])
    except ValueError:
        return None
    return CopyMark(log_id, topic_id, queue, offset, found) if len(found) == HASH_SIZE else None

"""The mark of a message that a reconciliation has written to the side that lacked it: docs/design/0035-migration.md, "Repair".

    TOPIC-ID KIND OFFSET HASH       in ASCII, parted by one space; TOPIC-ID: Kafka's, in hexadecimal; HASH: 8 bytes in it

In the engine it is a property, in Kafka a header. By it copiers leave the message where it is, and a later comparison
takes it for the message that was missing. An application may pass it on: the hash tells such a message from a repair.
"""

import hashlib
from typing import NamedTuple

REPAIR_NAME = "penstock-repair"
SOURCE, OWN = "source", "own"
"""Kinds: the offset is Kafka's, of a record that is copied into the engine; or the engine's, of a message of its own."""


class RepairMark(NamedTuple):
    """
    Attributes:
        topic_id: of the Kafka topic, 16 bytes.
        is_own: whether `offset` is the engine's, of a message that was not copied from Kafka.
        content_hash: see `repair_hash`.
    """

    topic_id: bytes
    is_own: bool
    offset: int
    content_hash: bytes

    def encode(self) -> bytes:
        kind = OWN if self.is_own else SOURCE
        return f"{self.topic_id.hex()} {kind} {self.offset} {self.content_hash.hex()}".encode()

    def names(self, topic_id: bytes, message_id: bytes, key: bytes | None, body: bytes) -> bool:
        """Whether it is the mark of this message in this topic."""
        return self.topic_id == topic_id and self.content_hash == repair_hash(message_id, key, body)


def repair_hash(message_id: bytes, key: bytes | None, body: bytes) -> bytes:
    """8 bytes of BLAKE2b of a message's id as clients see it, its key and its body."""
    sizes = b"%d %d " % (len(message_id), -1 if key is None else len(key))
    return hashlib.blake2b(sizes + message_id + (key or b"") + body).digest()[:8]


def parse_repair_mark(text: bytes | None) -> RepairMark | None:
    """The mark in a header's or a property's value; None: it is not one."""
    parts = (text or b"").split(b" ")
    if len(parts) != 4 or parts[1] not in (SOURCE.encode(), OWN.encode()):
        return None
    try:
        topic_id, found = (bytes.fromhex(parts[at].decode("ascii")) for at in (0, 3))
        offset = int(parts[2])
    except ValueError:
        return None
    if len(topic_id) != 16 or len(found) != 8 or not 0 <= offset < 1 << 63:
        return None
    return RepairMark(topic_id, parts[1] == OWN.encode(), offset, found)

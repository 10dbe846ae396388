"""Receipt tokens: they prove that an acknowledgement belongs to a lease, at any proxy.

One MAC per lease, not per message: the holder of a lease got all of its messages. The MAC covers the group, so that a
receipt of one group is invalid for another.
"""

from collections.abc import Callable
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from engine.delivery.progress import RECEIPT_KEY
from engine.link.receipt import MAC_SIZE, TOKEN, TOKEN_SIZE, TOKEN_VERSION
from engine.log.port import ProgressLog

KEY_SIZE = 32
_BODY_SIZE = TOKEN_SIZE - MAC_SIZE


class ReceiptToken(NamedTuple):
    """Content of a token with a valid MAC."""

    queue: int
    count: int  # type: ignore[assignment]
    topic_hash: int
    base_offset: int
    lease: int


def topic_hash(name: str) -> int:
    """Return the hash of a topic's name in tokens: the first 8 bytes of its BLAKE2b."""
    return int.from_bytes(blake2b(name.encode()).digest()[:8], "little")


class Receipts:
    """Makes and checks the tokens of one group.

    Args:
        key: secret of the cluster's receipts, the same before and after a fail-over.
        group: name that every MAC covers.
    """

    def __init__(self, key: bytes, group: str) -> None:
        # Copying a keyed state costs a third of keying a new one.
        self._keyed = blake2b(group.encode() + b"\0", digest_size=MAC_SIZE, key=key)

    def make(self, queue: int, count: int, topic: int, base_offset: int, lease: int) -> bytes:
        """Return the 48-byte token for `count` messages from `base_offset` on."""
        body = TOKEN.pack(TOKEN_VERSION, queue, count, topic, base_offset, lease)
        mac = self._keyed.copy()
        mac.update(body)
        return body + mac.digest()

    def check(self, token: bytes) -> ReceiptToken | None:
        """Return the token's content; None when it was not made with this key for this group."""
        body = token[:_BODY_SIZE]
        mac = self._keyed.copy()
        mac.update(body)
        if not compare_digest(mac.digest(), token[_BODY_SIZE:]):
            return None
        version, *fields = TOKEN.unpack(body)
        return ReceiptToken(*fields) if version == TOKEN_VERSION else None


def receipt_key(store: ProgressLog, random_bytes: Callable[[int], bytes]) -> bytes:
    """Return the secret of all receipts: created once and kept in the log, so it survives restarts and fail-over."""
    found = next((value for raw, value in store.progress(RECEIPT_KEY) if raw == RECEIPT_KEY), b"")
    if len(found) == KEY_SIZE:
        return found
    made = random_bytes(KEY_SIZE)
    store.put_progress([(RECEIPT_KEY, made)])
    return made

"""Payloads of the frames between a slave and its master. Layout: docs/design/0030-replication.md. All little-endian.

Every decoder checks sizes and counts, and raises PayloadError for what is not laid out so: the other end may be of another
version, or broken.
"""

import struct
from typing import NamedTuple

from engine.link.errors import PayloadError
from engine.log.epochs import EpochStart
from engine.log.format import SEGMENT_HEADER_SIZE

EPOCHS_MAX = 100_000
"""Epochs that a FOLLOW may name: a switch per minute for two months."""

PROVEN_BYTES = 64 << 10
"""Bytes below the common position of which both ends compare a checksum."""

_FOLLOW = struct.Struct("<IQQI")
_EPOCH = struct.Struct("<IQ")
_FOLLOWED = struct.Struct("<IQQII")
_BYTES = struct.Struct("<IQQ")
_STORED = struct.Struct("<IQQ")
_FETCH = struct.Struct("<QII")
_EPOCH_ONLY = struct.Struct("<I")


class Follow(NamedTuple):
    """FOLLOW: a slave asks from where on it may follow.

    Attributes:
        epoch: of the record that it knows.
        incarnation: of its process.
        end: of its log; below the first damage.
        starts: its epochs, oldest first.
    """

    epoch: int
    incarnation: int
    end: int
    starts: tuple[EpochStart, ...] = ()

    def encode(self) -> bytes:
        head = _FOLLOW.pack(self.epoch, self.incarnation, self.end, len(self.starts))
        return head + b"".join(_EPOCH.pack(*each) for each in self.starts)

    @classmethod
    def decode(cls, payload: bytes) -> "Follow":
        """Raises PayloadError."""
        epoch, incarnation, end, count = _unpack(_FOLLOW, payload, "FOLLOW", exact=False)
        if count > EPOCHS_MAX or len(payload) != _FOLLOW.size + count * _EPOCH.size:
            raise PayloadError(f"FOLLOW: {len(payload)} bytes do not fit {count} epochs")
        starts = tuple(EpochStart(*each) for each in _EPOCH.iter_unpack(payload[_FOLLOW.size :]))
        last = EpochStart(0, 0)
        for each in starts:
            if each.epoch <= last.epoch or not last.start <= each.start < max(end, 1):
                raise PayloadError(
                    f"FOLLOW: epoch {each.epoch} from {each.start} on does not follow, or is above the end"
                )
            last = each
        return cls(epoch, incarnation, end, starts)


class Followed(NamedTuple):
    """The master's answer to FOLLOW.

    Attributes:
        common: the slave's log and its own are the same below.
        first: of its own log: lower bytes are deleted.
        proven, checksum: the checksum (CRC-32C) of so many bytes below `common`, at most PROVEN_BYTES and not below the
            segment's first batch. Two engines may have gone on with copies of one directory before there were epochs: a
            slave whose own checksum differs must not follow.
    """

    epoch: int
    common: int
    first: int
    proven: int
    checksum: int

    def encode(self) -> bytes:
        return _FOLLOWED.pack(*self)

    @classmethod
    def decode(cls, payload: bytes) -> "Followed":
        """Raises PayloadError."""
        answer = cls(*_unpack(_FOLLOWED, payload, "answer to FOLLOW"))
        if answer.proven > PROVEN_BYTES or answer.proven > answer.common:
            raise PayloadError(f"answer to FOLLOW: a checksum of {answer.proven} bytes below {answer.common}")
        return answer


class SegmentFrame(NamedTuple):
    """SEGMENT: the next bytes are of this segment. `header`: its 64 bytes, as the master has them."""

    epoch: int
    header: bytes

    def encode(self) -> bytes:
        return _EPOCH_ONLY.pack(self.epoch) + self.header

    @classmethod
    def decode(cls, payload: bytes) -> "SegmentFrame":
        """Raises PayloadError. The header is not checked."""
        if len(payload) != _EPOCH_ONLY.size + SEGMENT_HEADER_SIZE:
            raise PayloadError(f"SEGMENT: {len(payload)} bytes, not {_EPOCH_ONLY.size + SEGMENT_HEADER_SIZE}")
        return cls(_EPOCH_ONLY.unpack_from(payload)[0], payload[_EPOCH_ONLY.size :])


class BytesFrame(NamedTuple):
    """BYTES: whole batches at a position; without any, a heartbeat.

    Attributes:
        confirmed: the master's confirmed position; it may be above these bytes.
    """

    epoch: int
    position: int
    confirmed: int
    data: bytes = b""

    def encode(self) -> bytes:
        return _BYTES.pack(self.epoch, self.position, self.confirmed) + self.data

    @classmethod
    def decode(cls, payload: bytes) -> "BytesFrame":
        """Raises PayloadError. The batches are not checked."""
        epoch, position, confirmed = _unpack(_BYTES, payload, "BYTES", exact=False)
        frame = cls(epoch, position, confirmed, payload[_BYTES.size :])
        if len(frame.data) % 8:
            raise PayloadError(f"BYTES: {len(frame.data)} bytes are no whole batches")
        return frame


class StoredFrame(NamedTuple):
    """STORED: how far a slave's log reaches, and how far its disk has it."""

    epoch: int
    end: int
    synced: int

    def encode(self) -> bytes:
        return _STORED.pack(*self)

    @classmethod
    def decode(cls, payload: bytes) -> "StoredFrame":
        """Raises PayloadError."""
        told = cls(*_unpack(_STORED, payload, "STORED"))
        if told.synced > told.end:
            raise PayloadError(f"STORED: synced up to {told.synced}, above the end {told.end}")
        return told


class SyncFrame(NamedTuple):
    """SYNC: an answer waits for this slave's disk up to a position. It follows the bytes."""

    epoch: int
    position: int

    def encode(self) -> bytes:
        return _EPOCH.pack(*self)

    @classmethod
    def decode(cls, payload: bytes) -> "SyncFrame":
        """Raises PayloadError."""
        return cls(*_unpack(_EPOCH, payload, "SYNC"))


class Fetch(NamedTuple):
    """FETCH: a piece of a segment. The answer is its bytes.

    Attributes:
        epoch: of the record that the asking broker has adopted; the other one answers in the same epoch only. 0: any.
    """

    base: int
    address: int
    size: int
    epoch: int = 0

    def encode(self) -> bytes:
        return _FETCH.pack(*self[:3]) + (_EPOCH_ONLY.pack(self.epoch) if self.epoch else b"")

    @classmethod
    def decode(cls, payload: bytes) -> "Fetch":
        """Raises PayloadError."""
        if len(payload) == _FETCH.size + _EPOCH_ONLY.size:
            asked = cls(*_FETCH.unpack_from(payload), *_EPOCH_ONLY.unpack_from(payload, _FETCH.size))
            if not asked.epoch:
                raise PayloadError("FETCH: of epoch 0: an asking broker without an epoch leaves it out")
            return asked
        return cls(*_unpack(_FETCH, payload, "FETCH"))


def _unpack(layout: struct.Struct, payload: bytes, name: str, *, exact: bool = True) -> tuple[int, ...]:
    if len(payload) < layout.size or (exact and len(payload) > layout.size):
        raise PayloadError(f"{name}: {len(payload)} bytes, not {layout.size}{'' if exact else ' or more'}")
    return layout.unpack_from(payload)

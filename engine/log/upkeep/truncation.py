"""Truncation: a log loses what it has above a position, since another master's log went on there.

An order beside the log is durable before anything is changed, and every start that finds it carries it out before it
reads anything else. Each step can be repeated. Design: docs/design/0030-replication.md.

    DIR/truncate                           magic ‖ u32 version ‖ u32 epoch ‖ u64 position ‖ log id ‖ CRC-32C of these
    DIR/diverged/EPOCH-POSITION/log/*.seg  what was taken off: a directory that the tools of the log can read
"""

import logging
import struct
from typing import NamedTuple

from google_crc32c import value

from engine.env.base import Env
from engine.errors import CorruptionError, DiskFullError, LogError, StoreDamagedError
from engine.log.format import SEGMENT_HEADER_SIZE, segment_name
from engine.log.segment.segment import NO_ROOM, Segment, open_segment, write_whole
from engine.log.segment.side_files import INDEX_SUFFIX, segment_bases, side_files
from engine.log.upkeep.ending import clear_end, data_of, has_data
from engine.log.view import CHECKPOINT_KEY, Checkpoint

logger = logging.getLogger(__name__)

MAGIC = b"PNSTCUT1"
VERSION = 1
_ORDER = struct.Struct("<8sIIQ16s")


class TruncationOrder(NamedTuple):
    """The order to remove all batches from a position on.

    Attributes:
        log_id: of the log that the order is for.
        epoch: of the batches that are taken off; it only names the folder that they go to.
        position: the log ends there afterwards, or below where its bytes were damaged before.
    """

    log_id: bytes
    epoch: int
    position: int

    def encode(self) -> bytes:
        head = _ORDER.pack(MAGIC, VERSION, self.epoch, self.position, self.log_id)
        return head + value(head).to_bytes(4, "little")

    @classmethod
    def decode(cls, data: bytes, path: str) -> "TruncationOrder":
        """Raises CorruptionError."""
        head, crc = data[: _ORDER.size], data[_ORDER.size :]
        if len(crc) != 4 or value(head) != int.from_bytes(crc, "little"):
            raise CorruptionError(path, 0, len(data), "the order to truncate does not verify")
        magic, version, epoch, position, log_id = _ORDER.unpack(head)
        if (magic, version) != (MAGIC, VERSION):
            raise CorruptionError(path, 0, len(data), f"an order to truncate of version {version}: use a newer engine")
        return cls(log_id, epoch, position)


def order_truncation(env: Env, directory: str, order: TruncationOrder) -> None:
    """Order it, for the next start. The log must be closed. Durable on return. Raises OSError."""
    path = _order_path(directory)
    file = env.open(path + ".tmp", create=True)
    try:
        write_whole(file, order.encode())
        file.sync()
    finally:
        file.close()
    env.rename(path + ".tmp", path)
    env.sync_directory(directory)


def resume_truncation(env: Env, directory: str) -> bool:
    """Carry out the order, if there is one; whether there was. Recovery has to follow, then `end_truncation`.

    Raises:
        CorruptionError: the order does not verify.
        LogError: it is for another log, or for a position that this log has deleted. Nothing was changed.
        DiskFullError: there is no room for a copy of what is taken off.
    """
    order = _read_order(env, directory)
    if order is None:
        return False
    try:
        _Truncation(env, directory, order).run()
    except OSError as error:
        if error.errno in NO_ROOM:
            raise DiskFullError(f"{directory}/diverged: no room for what the truncation takes off: {error}") from error
        raise
    return True


def end_truncation(env: Env, directory: str) -> None:
    """The log was recovered from what is left: forget the order. Nothing may be appended before that is durable."""
    env.unlink(_order_path(directory))
    env.sync_directory(directory)


class _Truncation:
    """One execution of an order."""

    def __init__(self, env: Env, directory: str, order: TruncationOrder) -> None:
        self._env, self._directory, self._order = env, directory, order
        self._log = f"{directory}/log"
        self._diverged = f"{directory}/diverged/{order.epoch}-{order.position}/log"

    def run(self) -> None:
        """All steps, in the order of the design."""
        bases = segment_bases(self._env.list(self._log))
        below = [base for base in bases if base + SEGMENT_HEADER_SIZE <= self._order.position]
        if not below:
            raise LogError(f"{self._log}: an order to truncate at {self._order.position}, below the first segment")
        segment = open_segment(self._env, self._log, below[-1])
        try:
            if segment.header.log_id != self._order.log_id:
                raise LogError(
                    f"{self._log}: an order to truncate log {self._order.log_id.hex()}, but this is log "
                    f"{segment.header.log_id.hex()}"
                )
            later = bases[len(below) :]
            self._env.make_directory(self._diverged)
            self._keep_end(segment)
            self._drop_view(segment, later)
            self._take_off(segment, later)
            segment.end_at = self._order.position - segment.base
            clear_end(self._env, segment)
        finally:
            segment.close()
        logger.warning(
            "log=%s position=%d: truncated: what another master did not have is in %s",
            self._order.log_id.hex(), self._order.position, self._diverged,
        )  # fmt: skip

    def _keep_end(self, segment: Segment) -> None:
        """Copy the end of the segment that is cut, with its header, to a file of the same name and the same addresses."""
        path = f"{self._diverged}/{segment_name(segment.base)}"
        start = self._order.position - segment.base
        if self._env.exists(path) or not has_data(segment.file, start):
            return
        copy = self._env.open(path + ".tmp", create=True)
        try:
            write_whole(copy, segment.header.pack())
            for at, data in data_of(segment.file, start):
                write_whole(copy, data, at)
            copy.sync()
        finally:
            copy.close()
        self._env.rename(path + ".tmp", path)

    def _drop_view(self, segment: Segment, later: list[int]) -> None:
        """Remove a view that may know what is taken off: recovery makes it again.

        It knows a batch by a checkpoint above it, or once its segment has an index file.
        """
        path = f"{self._directory}/state"
        try:
            store = self._env.open_store(path, 0)
        except StoreDamagedError:
            return  # recovery puts it aside
        try:
            checkpoint = Checkpoint.parse(store.get(CHECKPOINT_KEY) or b"")
        finally:
            store.close()
        is_ahead = checkpoint is not None and checkpoint.durable_position > self._order.position
        names = self._env.list(self._log)
        indexed = any(f"{base:020d}{INDEX_SUFFIX}" in names for base in (segment.base, *later))
        if is_ahead or indexed:
            logger.warning(
                "the view may know what is taken off, and is made again; it is kept as %s", self._env.set_aside(path)
            )

    def _take_off(self, segment: Segment, later: list[int]) -> None:
        """Move later segments that have bytes, newest first, and remove what was made from them."""
        for base in reversed(later):
            path = f"{self._log}/{segment_name(base)}"
            if self._has_batches(path):
                self._env.rename(path, f"{self._diverged}/{segment_name(base)}")
            else:
                self._env.unlink(path)
        self._env.sync_directory(self._diverged)
        for base in (segment.base, *later):
            for path in side_files(f"{self._log}/{segment_name(base)}"):
                self._env.unlink(path)
        self._env.sync_directory(self._log)

    def _has_batches(self, path: str) -> bool:
        file = self._env.open(path)
        try:
            return has_data(file, SEGMENT_HEADER_SIZE)
        finally:
            file.close()


def _read_order(env: Env, directory: str) -> TruncationOrder | None:
    path = _order_path(directory)
    try:
        file = env.open(path)
    except FileNotFoundError:
        return None
    try:
        return TruncationOrder.decode(file.read_at(file.size(), 0), path)
    finally:
        file.close()


def _order_path(directory: str) -> str:
    return f"{directory}/truncate"

"""The numbers of this broker's process starts, and which of them its log still continues.

    DIR/incarnation    JSON: boot, incarnation, continues, is_orderly, is_checked, torn_at

A power cut, a failed sync and a truncation end the list for good. Design: docs/design/0031-switch-over.md.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from common.cluster.group_record import Incarnation
from common.config import files

log = logging.getLogger("penstock.engine")

KEPT_MAX = 1000
"""Earlier starts that are remembered: the record names one of the last few."""


class KeptBytes(Protocol):
    """A small file beside the log."""

    def read(self) -> bytes:
        """Empty: there is none."""

    def replace(self, data: bytes) -> None:
        """Replace it as a whole. Durable on return. Raises OSError."""


class KeptFile:
    """KeptBytes on the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> bytes:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""

    def replace(self, data: bytes) -> None:
        files.replace(self._path, data)


class Incarnations:
    """The present number, and those before.

    Args:
        kept: where they outlive the process.
        boot: names this start of the machine: its page cache lives as long.
        random_bytes: bytes for the next number.
        sync_failed: whether the process before ended by a failed sync.
    Attributes:
        present: of this process, until `renew`.
        is_checked: whether a start has looked for what the last power cut has torn. A process may end before it has.
        torn_at: position of the damage that it found, of which no cut of the log has come yet; None: there is none.
    """

    def __init__(
        self, kept: KeptBytes, boot: str, random_bytes: Callable[[int], bytes], *, sync_failed: bool = False
    ) -> None:
        self._kept, self._boot, self._random_bytes = kept, boot, random_bytes
        before = _parsed(kept.read())
        has_all = bool(before.get("is_orderly") or before.get("boot") == boot) and not sync_failed
        self._earlier: list[Incarnation] = []  # oldest first
        if has_all and isinstance(before.get("incarnation"), int):
            self._earlier = [*before.get("continues", [])[1 - KEPT_MAX :], before["incarnation"]]
        self.is_checked = has_all and bool(before.get("is_checked", True))
        self.torn_at: int | None = before.get("torn_at")  # also of an earlier power cut: a checkpoint may cover it now
        self.present = self._next()
        self._write(is_orderly=False)

    def check(self, torn_at: int | None) -> None:
        """The log was opened after a power cut: note what that has torn. Durable on return. Raises OSError."""
        self.is_checked, self.torn_at = True, torn_at
        try:
            self._write(is_orderly=False)
        except BaseException:
            self.is_checked, self.torn_at = False, None
            raise

    def renew(self) -> None:
        """The log is about to be cut: it continues no earlier process. Durable on return."""
        self._earlier = []
        self.is_checked, self.torn_at = False, None
        self.present = self._next()
        self._write(is_orderly=False)

    @property
    def may_be_torn(self) -> bool:
        """Whether an opening of the log has to look for what a power cut has torn."""
        return not self.is_checked or self.torn_at is not None

    @property
    def continues(self) -> frozenset[Incarnation]:
        """Earlier ones of which the log still has everything."""
        return frozenset(self._earlier)

    def end(self) -> None:
        """The log is closed and synced: the next start continues it, even after a power cut. Durable on return.

        A disk that refuses it costs no more than that.
        """
        try:
            self._write(is_orderly=True)
        except OSError as error:
            log.warning("the orderly stop cannot be noted, and counts as a kill: %s", error)

    def _next(self) -> Incarnation:
        return int.from_bytes(self._random_bytes(8), "little") >> 1

    def _write(self, *, is_orderly: bool) -> None:
        value = {
            "boot": self._boot, "incarnation": self.present, "continues": self._earlier, "is_orderly": is_orderly,
            "is_checked": self.is_checked, "torn_at": self.torn_at,
        }  # fmt: skip
        self._kept.replace(json.dumps(value).encode())


def boot_id() -> str:
    """The kernel's random name of this start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _parsed(data: bytes) -> dict:
    if not data:
        return {}
    try:
        found = json.loads(data)
    except ValueError:
        log.warning(
            "the numbers of this broker's starts are damaged: its log counts as incomplete until it has followed"
        )
        return {}
    return found if isinstance(found, dict) else {}

"""The numbers of this broker's process starts, and which of them its log still continues.

    DIR/incarnation    JSON: boot, incarnation, continues, is_orderly

A power cut, a failed sync and a truncation end the list for good. Design: docs/design/0031-switch-over.md.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path

from common.cluster.group_record import Incarnation
from common.config import files

log = logging.getLogger("penstock.engine")

KEPT_MAX = 1000
"""Earlier starts that are remembered: the record names one of the last few."""


class Incarnations:
    """The present number, and those before.

    Args:
        boot: names this start of the machine: its page cache lives as long.
        random_bytes: bytes for the next number.
        sync_failed: whether the process before ended by a failed sync.
    Attributes:
        present: of this process, until `renew`.
    """

    def __init__(
        self, path: Path, boot: str, random_bytes: Callable[[int], bytes], *, sync_failed: bool = False
    ) -> None:
        self._path, self._boot, self._random_bytes = path, boot, random_bytes
        before = _read(path)
        has_all = bool(before.get("is_orderly") or before.get("boot") == boot) and not sync_failed
        self._earlier: list[Incarnation] = []  # oldest first
        if has_all and isinstance(before.get("incarnation"), int):
            self._earlier = [*before.get("continues", [])[1 - KEPT_MAX :], before["incarnation"]]
        self.present = self._next()
        self._write(is_orderly=False)

    def renew(self) -> None:
        """The log is about to be cut: it continues no earlier process. Durable on return."""
        self._earlier = []
        self.present = self._next()
        self._write(is_orderly=False)

    @property
    def continues(self) -> frozenset[Incarnation]:
        """Earlier ones of which the log still has everything."""
        return frozenset(self._earlier)

    def end(self) -> None:
        """The log is closed and synced: the next start continues it, even after a power cut. Durable on return."""
        self._write(is_orderly=True)

    def _next(self) -> Incarnation:
        return int.from_bytes(self._random_bytes(8), "little") >> 1

    def _write(self, *, is_orderly: bool) -> None:
        value = {
            "boot": self._boot, "incarnation": self.present, "continues": self._earlier, "is_orderly": is_orderly,
        }  # fmt: skip
        files.replace(self._path, json.dumps(value).encode())


def boot_id() -> str:
    """The kernel's random name of this start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _read(path: Path) -> dict:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        log.warning("file=%s: damaged: the log counts as incomplete until it has followed a master", path)
        return {}
    return found if isinstance(found, dict) else {}

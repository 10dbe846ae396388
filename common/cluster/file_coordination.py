"""Coordination on files, for the processes of one machine.

    DIR/lock                      writers of records hold its flock
    DIR/controllers/000…012.name  held by a candidate, and touched all the time; the lowest number is elected
    DIR/groups/<group>/record     the version, a line feed, the record
    DIR/groups/<group>/history    its latest changes
    DIR/groups/<group>/brokers/<name>   held by the broker's process

Files are 0600 and directories 0700. DIR must be on a local file system (flock, atomic rename).
"""

import errno
import os
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, unquote

from common.cluster.coordination import (
    Registration,
    VersionedRecord,
    encode_record,
    encode_registration,
    parse_record,
    parse_registration,
)
from common.cluster.following import FollowingCoordination
from common.cluster.group_record import GroupRecord
from common.cluster.history import parse_changes, with_change
from common.config import files
from common.config.errors import StoreDamaged, StoreUnavailable, UncertainWrite, VersionConflict
from common.config.file_lock import locked
from common.config.held_files import hold, read_held

POLL_S = 0.05
TOUCH_S = 0.5
HUNG_S_MAX = 3.0
"""A candidate that has not touched its file for longer stands still: the next one is elected."""
REGISTRATION_BYTES_MAX = 4096


class FileCoordination(FollowingCoordination):
    def __init__(self, directory: Path | str) -> None:
        """Open it; the directory is created if it is missing. Raises StoreUnavailable."""
        super().__init__(POLL_S)
        self._root = Path(directory)
        self._held: dict[tuple[str, str], int] = {}
        self._place: tuple[str, int] | None = None
        self._touched_s = float("-inf")
        with self._as_unavailable():
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in ("controllers", "groups"):
                (self._root / name).mkdir(mode=0o700, exist_ok=True)

    @property
    def _name(self) -> str:
        return f"coordination at {self._root}"

    def groups(self) -> list[str]:
        with self._as_unavailable():
            return sorted(unquote(name) for name in os.listdir(self._root / "groups"))

    def record(self, group: str) -> VersionedRecord | None:
        path = self._group(group) / "record"
        with self._as_unavailable():
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                (self._root / "groups").stat()  # a store that is missing must not read as an empty one
                return None
        version, _, text = data.partition(b"\n")
        if not version.isdigit():
            raise StoreDamaged(f"{path}: damaged: it does not begin with a version")
        return VersionedRecord(parse_record(text, str(path)), int(version))

    def write(self, group: str, record: GroupRecord, version: int) -> int:
        with self._as_unavailable(), locked(self._root / "lock"):
            found = self.record(group)
            known = found.version if found else 0
            if known != version:
                raise VersionConflict("broker_group", group, version, known)
            self._make(group)
            self._replace(self._group(group) / "record", b"%d\n%s" % (version + 1, encode_record(record)))
        self._wake.set()
        return version + 1

    def _replace(self, path: Path, data: bytes) -> None:
        try:
            files.replace(path, data)
        except OSError as error:
            if path.exists() and path.read_bytes() == data:  # only the last sync failed
                raise UncertainWrite(
                    f"{path}: changed, but not synced: {error.strerror}: read before trying again"
                ) from error
            raise

    def history(self, group: str) -> list[VersionedRecord]:
        return parse_changes(self._history(group))

    def remember(self, group: str, change: VersionedRecord) -> None:
        with self._as_unavailable(), locked(self._root / "lock"):
            self._make(group)
            files.replace(self._group(group) / "history", with_change(self._history(group), change))

    def _history(self, group: str) -> bytes:
        with self._as_unavailable():
            try:
                return (self._group(group) / "history").read_bytes()
            except FileNotFoundError:
                (self._root / "groups").stat()
                return b""

    def brokers(self, group: str) -> dict[str, Registration]:
        folder = self._group(group) / "brokers"
        found = {}
        with self._as_unavailable():
            try:
                names = os.listdir(folder)
            except FileNotFoundError:
                (self._root / "groups").stat()
                return {}
            for name in sorted(names):
                data = read_held(folder / name, REGISTRATION_BYTES_MAX)
                if data is not None and (registration := parse_registration(data)) is not None:
                    found[unquote(name)] = registration
        return found

    def unregister(self, group: str, broker: str) -> None:
        self._wanted.pop((group, broker), None)
        with self._lock:
            fd = self._held.pop((group, broker), None)
            if fd is not None:
                with suppress(OSError):
                    self._broker(group, broker).unlink(missing_ok=True)
                os.close(fd)

    def rank(self, number: int) -> None:
        """All candidates are on one machine."""

    def controller(self) -> str | None:
        with suppress(OSError):
            for name in sorted(os.listdir(self._root / "controllers")):
                if self._stands(name):
                    return unquote(name.partition(".")[2])
        return None

    def is_controller(self) -> bool:
        place = self._place
        with suppress(OSError):
            names = os.listdir(self._root / "controllers")
            return place is not None and not any(name < place[0] and self._stands(name) for name in names)
        return False

    def _stands(self, name: str) -> bool:
        """Whether a candidate has not ended, and does not stand still. Raises OSError."""
        path = self._root / "controllers" / name
        if read_held(path, 0) is None:
            return False
        return time.time() - path.stat().st_mtime <= HUNG_S_MAX

    def contact_age_s(self) -> float:
        return 0.0 if self._root.is_dir() else float("inf")

    def close(self) -> None:
        self._stop_following()
        for group, broker in list(self._held):
            self.unregister(group, broker)
        if self._place is not None:
            with suppress(OSError):
                (self._root / "controllers" / self._place[0]).unlink(missing_ok=True)
            os.close(self._place[1])
            self._place = None

    def _group(self, group: str) -> Path:
        return self._root / "groups" / quote(group, safe="")

    def _broker(self, group: str, broker: str) -> Path:
        return self._group(group) / "brokers" / quote(broker, safe="")

    def _make(self, group: str) -> None:
        for folder in (self._group(group), self._group(group) / "brokers"):
            folder.mkdir(mode=0o700, exist_ok=True)
        files.sync_directory(self._root / "groups")

    def _keep_names(self) -> None:
        with self._as_unavailable():
            for (group, broker), registration in list(self._wanted.items()):
                with self._lock:
                    self._register(group, broker, registration)
            if self._standing and self._place is None:
                self._take_place()
            if self._place is not None and time.monotonic() - self._touched_s >= TOUCH_S:
                os.utime(self._place[1])
                self._touched_s = time.monotonic()

    def _register(self, group: str, broker: str, registration: Registration) -> None:
        fd = self._held.get((group, broker))
        if (group, broker) not in self._wanted:
            return
        if fd is None:
            self._make(group)
            fd = hold(self._broker(group, broker))
            if fd is None:
                return  # another process has the name
            self._held[group, broker] = fd
        # Padded, so that one write replaces the whole and a reader never sees a mixture.
        data = encode_registration(registration).ljust(REGISTRATION_BYTES_MAX)
        if os.pread(fd, REGISTRATION_BYTES_MAX, 0) != data:
            os.pwrite(fd, data, 0)

    def _take_place(self) -> None:
        """Take the place after all candidates that there are."""
        with self._as_unavailable(), locked(self._root / "lock"):
            folder = self._root / "controllers"
            last = max((int(name.partition(".")[0]) for name in os.listdir(folder)), default=0)
            name = f"{last + 1:012d}.{quote(self._standing, safe='')}"
            fd = hold(folder / name)
            if fd is not None:
                self._place = name, fd

    def _look(self, group: str) -> Hashable:
        found = self.record(group)
        return found.version if found else 0, tuple(self.brokers(group).items())

    def _look_at_groups(self) -> Hashable:
        return tuple(self.groups()), self.controller()

    @contextmanager
    def _as_unavailable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = "disk full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
            raise StoreUnavailable(f"{self._name}: not available: {what}") from error

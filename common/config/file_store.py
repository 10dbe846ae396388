"""The file store: a directory that all processes of one machine share.

    DIR/lock                  writers hold its flock, which ends with its holder
    DIR/cluster               see identity.py
    DIR/<kind>/index          the current revision of each bucket; its replacement is the commit
    DIR/<kind>/017.42         bucket 17 at revision 42. Never rewritten once the index names it
    DIR/applied/<process>.PID see reports.py
    DIR/claims/<name>         locked by the flock of the process that claimed the name

Files are 0600 and directories 0700, because they hold the applications' secrets. Where an operator gives a directory's
group rights to it, new files in it get them. DIR must be on a local file system (flock, atomic rename).
"""

import errno
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from common.clock import SystemClock
from common.config import buckets as layout
from common.config import files
from common.config.blocking import run_blocking
from common.config.bucketed import INDEX_MISSING, BucketedStore, Index, Seen, check_seen
from common.config.errors import AccessDenied, StoreDamaged, StoreUnavailable
from common.config.file_lock import locked, try_lock
from common.config.identity import StoreIdentity, parse_identity
from common.config.reports import Reports
from common.config.store import KINDS, Applied, ConfigVersion
from common.limited_log import LimitedLog

POLL_S = 0.2
FRESH_NS = 2_000_000_000  # a younger file may change again within one tick of the file system's clock

BUCKET_FILE = re.compile(r"\d{3}\.\d+")

limited = LimitedLog(logging.getLogger("penstock.config"))


class FileStore(BucketedStore):
    def __init__(self, directory: Path | str):
        """Open the store in `directory`, which is created if it is missing.

        Raises:
            StoreUnavailable: it cannot be created or read.
        """
        super().__init__()
        self._root = Path(directory)
        self._clock = SystemClock()
        self._away_since_ms: int | None = None
        self._watchers: list[Callable[[str], None]] = []
        self._watching: threading.Thread | None = None
        self._closed = threading.Event()
        with self._as_unavailable():
            for name in (".", "applied", "claims", *KINDS):
                (self._root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._reports = Reports(self._root / "applied", self._clock)
        self._claims: dict[str, int] = {}

    def _read_identity(self) -> StoreIdentity | None:
        path = self._root / "cluster"
        with self._as_unavailable():
            try:
                return parse_identity(path.read_bytes(), str(path))
            except FileNotFoundError:
                if not self._root.is_dir():
                    raise
                return None

    def _create_identity(self, identity: StoreIdentity) -> None:
        with self._writing("identity"):
            if self._read_identity() is None:
                self._write_identity(identity)

    def _replace_identity(self, identity: StoreIdentity) -> None:
        with self._writing("identity"):
            self._write_identity(identity)

    def _write_identity(self, identity: StoreIdentity) -> None:
        with self._as_unavailable():
            run_blocking(lambda: _replace(self._root / "cluster", identity.encode()))

    def _read_index(self, kind: str) -> Index:
        path = self._root / kind / "index"
        with self._as_unavailable():
            try:
                payload = path.read_bytes()
            except FileNotFoundError:
                if not path.parent.is_dir():
                    raise  # the whole store is missing, which must not read as an empty one
                if any(BUCKET_FILE.fullmatch(name) for name in os.listdir(path.parent)) and not path.exists():
                    raise StoreDamaged(INDEX_MISSING.format(path)) from None
                return Index((0,) * KINDS[kind].buckets, None)
        return Index(layout.unpack_index(payload, str(path)), None)

    def _read_buckets(self, kind: str, numbers: Sequence[int], index: Index) -> list[bytes]:
        return [self._read_bucket(kind, number, index.revisions[number]) for number in numbers]

    def _read_bucket(self, kind: str, number: int, revision: int) -> bytes:
        while revision:
            path = self._root / kind / f"{number:03d}.{revision}"
            with self._as_unavailable():
                try:
                    return path.read_bytes()
                except FileNotFoundError:
                    current = self._read_index(kind).revisions[number]
            if current == revision:
                raise StoreDamaged(f"{path}: the file is missing, but the index names it")
            revision = current  # a writer replaced it between the two reads
        return b""

    def found_buckets(self, kind: str) -> dict[int, bytes]:
        with self._as_unavailable():
            revisions: dict[int, list[int]] = {}
            for name in filter(BUCKET_FILE.fullmatch, os.listdir(self._root / kind)):
                number, revision = map(int, name.split("."))
                revisions.setdefault(number, []).append(revision)
            found = {number: self._newest_sound(kind, number, each) for number, each in revisions.items()}
            return {number: payload for number, payload in found.items() if payload is not None}

    def _newest_sound(self, kind: str, number: int, revisions: list[int]) -> bytes | None:
        """The newest file that is whole: a writer may be at work on a newer one, or have crashed in it.

        Without one, the newest that is there; None: writers have replaced them all.
        """
        newest = None
        for revision in sorted(revisions, reverse=True):
            with suppress(FileNotFoundError):
                payload = (self._root / kind / f"{number:03d}.{revision}").read_bytes()
                newest = payload if newest is None else newest
                if _is_whole(payload):
                    return payload
        return newest

    def set_index(self, kind: str, revisions: Sequence[int]) -> None:
        with self._writing(kind), self._as_unavailable():
            run_blocking(lambda: _replace(self._root / kind / "index", layout.pack_index(revisions)))

    def _commit(self, kind: str, payloads: dict[int, bytes], revisions: tuple[int, ...], token: Any, seen: Seen) -> Any:
        for other, wanted in seen.items():  # writers of all kinds have one lock
            check_seen(other, wanted, self._read_index(other).revisions)
        with self._as_unavailable():
            run_blocking(lambda: self._commit_files(self._root / kind, payloads, revisions))

    def _commit_files(self, directory: Path, payloads: dict[int, bytes], revisions: tuple[int, ...]) -> None:
        if not (directory / "index").exists():  # from now on buckets without an index are damage, not a crashed writer
            _replace(directory / "index", layout.pack_index((0,) * len(revisions)))
        current = {f"{number:03d}": f"{number:03d}.{revisions[number]}" for number in payloads}
        index = layout.pack_index(revisions)
        try:
            for name, payload in zip(current.values(), payloads.values(), strict=True):
                files.write_synced(directory / name, payload, files.mode_in(directory))
            files.sync_directory(directory)  # the new names must be on disk before an index that names them
            _replace(directory / "index", index)
        except OSError as error:
            if (directory / "index").read_bytes() == index:  # only the last sync failed
                raise StoreUnavailable(f"{directory}: changed, but not synced: {error.strerror}") from error
            for name in current.values():
                (directory / name).unlink(missing_ok=True)
            raise
        for name in os.listdir(directory):  # old revisions, also those that crashed writers left
            if current.get(name[:3], name) != name:
                (directory / name).unlink(missing_ok=True)

    @contextmanager
    def _writing(self, kind: str) -> Iterator[None]:
        with self._as_unavailable(), locked(self._root / "lock"):
            yield

    def watch(self, callback: Callable[[str], None]) -> None:
        self._watchers.append(callback)
        if self._watching is None:
            seen = {kind: self._stat(kind) for kind in KINDS}
            self._watching = threading.Thread(target=self._poll, args=(seen,), name="config-watch", daemon=True)
            self._watching.start()

    def _poll(self, seen: dict[str, tuple | None]) -> None:
        revisions: dict[str, tuple[int, ...] | None] = {kind: self._revisions(kind) for kind in KINDS}
        for kind in KINDS:  # reports also changes between the caller's last read and here
            self._tell(kind)
        while not self._closed.wait(POLL_S):
            away = self._away_since_ms is not None
            self._note_availability()
            if away and self._away_since_ms is None:
                revisions = dict.fromkeys(KINDS)  # contact is back: report everything again
                seen = dict.fromkeys(KINDS)
            for kind in KINDS:
                stat = self._stat(kind)
                if stat == seen[kind] and not self._fresh(stat):
                    continue
                seen[kind] = stat
                now = self._revisions(kind)
                if now is not None and now != revisions[kind]:
                    revisions[kind] = now
                    self._tell(kind)

    def _stat(self, kind: str) -> tuple | None:
        try:
            stat = os.stat(self._root / kind / "index")
        except OSError:
            return None
        return (stat.st_mtime_ns, stat.st_ino, stat.st_size)

    def _fresh(self, stat: tuple | None) -> bool:
        """Whether the file is so young that two commits can have equal stats (a reused inode within one tick): it is
        always read.
        """
        return stat is not None and self._clock.now_ms() * 1_000_000 - stat[0] < FRESH_NS

    def _revisions(self, kind: str) -> tuple[int, ...] | None:
        try:
            return self._read_index(kind).revisions
        except (StoreUnavailable, StoreDamaged) as error:
            limited.warning("config kind=%s: cannot be read, keeping its last state: %s", kind, error, about=kind)
            return None

    def _tell(self, kind: str) -> None:
        for callback in list(self._watchers):
            try:
                callback(kind)
            except Exception:
                limited.exception("config kind=%s: a watcher of changes failed", kind)

    def _note_availability(self) -> None:
        gone = not self._root.is_dir()
        if not gone:
            self._away_since_ms = None
        elif self._away_since_ms is None:
            self._away_since_ms = self._clock.now_ms()

    @property
    def unavailable_since_ms(self) -> int | None:
        self._note_availability()
        return self._away_since_ms

    def report_applied(self, process: str, version: ConfigVersion) -> None:
        with self._as_unavailable():
            self._reports.report(process, version)

    def applied(self) -> dict[str, Applied]:
        with self._as_unavailable():
            return self._reports.running()

    def forget(self, process: str) -> None:
        """Does nothing: a report ends with its process, and one that cannot be read is left out."""

    def close(self) -> None:
        self._closed.set()
        if self._watching is not None and self._watching is not threading.current_thread():
            self._watching.join()
        self._reports.close()
        for name in list(self._claims):
            self.release(name)

    def claim(self, name: str, *, by_proxy: bool = False) -> bool:
        if name in self._claims:
            return True
        with self._as_unavailable():
            path = self._root / "claims" / quote(name, safe="")
            fd = files.open_in_mode(path, os.O_RDWR | os.O_CREAT, files.mode_in(path.parent))
        if not try_lock(fd):
            os.close(fd)
            return False
        self._claims[name] = fd
        return True

    def holds(self, name: str) -> bool:
        return name in self._claims

    def release(self, name: str) -> None:
        if name in self._claims:
            os.close(self._claims.pop(name))  # the file stays: after its removal two processes could hold the same name

    @contextmanager
    def _as_unavailable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreUnavailable(
                    f"configuration at {self._root}: disk full: nothing was changed: free some space and try again"
                ) from error
            where = f" ({error.filename})" if error.filename else ""  # a write has no file's name
            if isinstance(error, PermissionError):
                raise AccessDenied(f"configuration at {self._root}: permission denied{where}") from error
            raise StoreUnavailable(
                f"configuration at {self._root}: not available: {error.strerror or error}{where}"
            ) from error


def _replace(path: Path, data: bytes) -> None:
    files.replace(path, data, files.mode_in(path.parent))


def _is_whole(payload: bytes) -> bool:
    try:
        return bool(layout.verify(payload, ""))
    except StoreDamaged:
        return False

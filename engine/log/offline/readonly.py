"""Read-only access for tools: files and RocksDB are opened for reading."""

import fcntl
import os
from collections.abc import Callable

from engine.env.real import RealEnv, RealFile
from engine.env.store import RocksStore, check_store, open_database
from engine.errors import LockedError


class ReadOnlyEnv(RealEnv):
    """Opens for reading, so a read-only file system or a copy owned by another user is enough."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        assert not create, "read-only"
        return RealFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def lock(self, path: str) -> Callable[[], None]:
        """As RealEnv.lock, but the file keeps its content, and none is created where no engine has run."""
        if not os.path.exists(path):
            return lambda: None
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise LockedError(f"{path} is held by a running engine (process {holder}); stop it first") from None
        return lambda: os.close(fd)


class ReadOnlyStore(RocksStore):
    """RocksDB without its lock, without compaction, and without new files in its folder."""

    def __init__(self, path: str) -> None:
        import rocksdict

        check_store(path)
        self._rocks, self._path = rocksdict, path
        options, blocks = rocksdict.Options(raw_mode=True), rocksdict.BlockBasedOptions()
        blocks.set_bloom_filter(10, False)  # as in the engine; otherwise filters would be neither read nor verified
        options.set_block_based_table_factory(blocks)
        with self._errors():
            self._database = open_database(rocksdict, path, options, access_type=rocksdict.AccessType.read_only())

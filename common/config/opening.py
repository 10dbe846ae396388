"""Stores by their URLs."""

from urllib.parse import parse_qsl, unquote, urlsplit

from common.config.errors import InvalidEntry
from common.config.store import ConfigStore
from common.quoting import quoted


def open_store(url: str, *, is_proxy: bool = False) -> ConfigStore:
    """Open `file:///dir` or `zookeeper://host1:port,host2:port/chroot?options` (options: see zookeeper_options.py).

    A ZooKeeper store also opens while ZooKeeper is unavailable, and connects later.

    Args:
        is_proxy: the process needs to write its reports only: it warns when it may write more.
    Raises:
        InvalidEntry: the URL is not one of these.
        StoreUnavailable: the directory cannot be created or read.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        from common.config.file_store import FileStore

        return FileStore(unquote(parts.path))
    if parts.scheme == "zookeeper" and parts.netloc:
        from common.config.zookeeper_options import (
            ZooKeeperOptions,  # importing kazoo takes 60 ms: only where it is needed
        )
        from common.config.zookeeper_store import ZooKeeperStore

        options = ZooKeeperOptions.from_parts(parts.netloc, parts.path, dict(parse_qsl(parts.query)))
        return ZooKeeperStore(options, is_proxy)
    raise InvalidEntry(
        f"configuration URL {quoted(url)}: invalid: use file:///DIR or zookeeper://HOST:PORT,HOST:PORT/CHROOT"
    )

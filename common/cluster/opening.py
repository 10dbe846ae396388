"""Coordination by the URL of the configuration: both are kept in the same place."""

from urllib.parse import parse_qsl, unquote, urlsplit

from common.cluster.coordination import Coordination
from common.config.errors import InvalidEntry
from common.quoting import quoted

SESSION_TIMEOUT_S = 2.0
"""A broker that has ended stays registered for so long. Nothing but a restart under the same name waits for it."""


def open_coordination(url: str) -> Coordination:
    """Open the coordination of `file:///DIR` or `zookeeper://HOSTS/CHROOT?options` (common/config/opening.py).

    In ZooKeeper it has a session of its own, of 2 s unless the URL says otherwise.

    Raises:
        InvalidEntry: the URL is not one of these.
        StoreUnavailable: the directory cannot be created or read.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        from common.cluster.file_coordination import FileCoordination

        return FileCoordination(unquote(parts.path).rstrip("/") + "/replication")
    if parts.scheme == "zookeeper" and parts.netloc:
        from common.cluster.zookeeper_coordination import ZooKeeperCoordination  # importing kazoo takes 60 ms
        from common.config.zookeeper_options import ZooKeeperOptions

        query = {"session_timeout_s": f"{SESSION_TIMEOUT_S:g}", **dict(parse_qsl(parts.query))}
        return ZooKeeperCoordination(ZooKeeperOptions.from_parts(parts.netloc, parts.path, query))
    raise InvalidEntry(f"coordination URL {quoted(url)}: invalid: use file:///DIR or zookeeper://HOST:PORT/CHROOT")

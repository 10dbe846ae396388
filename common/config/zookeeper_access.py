"""Access lists of the nodes in ZooKeeper: nodes that were made without `auth_file` stay open to every client of it.

Such nodes are found and closed here, when there is an `auth_file` now. Whoever can change the configuration can read the
secrets of applications and delete topics.
"""

from functools import partial
from typing import Any

from kazoo import exceptions as zk
from kazoo.security import CREATOR_ALL_ACL

from common.config.zookeeper_connection import ZooKeeperConnection

OPEN_SCHEMES = ("world", "ip")
"""Schemes that ask for no secret."""
TRIES_MAX = 5


class ZooKeeperAccess:
    """Access lists below the chroot. All raise StoreUnavailable."""

    def __init__(self, connection: ZooKeeperConnection) -> None:
        self._connection, self._client = connection, connection.client

    def open_nodes(self, levels: int = 64) -> list[str]:
        """Paths of the nodes that clients without a secret can read or change.

        Args:
            levels: of the tree to look at: 1 is the chroot and its children.
        """
        found, level = [], [self._connection.path().rstrip("/") or "/"]
        for _ in range(levels + 1):
            found += [path for path in level if self._is_open(path)]
            level = [f"{path.rstrip('/')}/{name}" for path in level for name in self._children(path)]
            if not level:
                break
        return found

    def close_nodes(self) -> list[str]:
        """Give the nodes that are open to this client's user alone; returns their paths.

        Nodes may come meanwhile, from processes without the file, so it looks again until there are none.
        """
        closed: list[str] = []
        for _ in range(TRIES_MAX):
            found = self.open_nodes()
            for path in found:
                send = partial(self._client.set_acls_async, path, CREATOR_ALL_ACL)
                self._connection.ask_quietly(send, zk.NoNodeError)
            closed += found
            if not found:
                break
        return list(dict.fromkeys(closed))

    def _is_open(self, path: str) -> bool:
        answer: Any = self._connection.ask_quietly(partial(self._client.get_acls_async, path), zk.NoNodeError)
        return answer is not None and any(each.id.scheme in OPEN_SCHEMES for each in answer[0])

    def _children(self, path: str) -> list[str]:
        send = partial(self._client.get_children_async, path)
        return self._connection.ask_quietly(send, zk.NoNodeError) or []

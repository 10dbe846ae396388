"""Checks and changes of the access lists of the nodes in ZooKeeper, by the rules of zookeeper_lists.py.

Nodes that were made without `auth_file` stay open to every client of ZooKeeper, and those made before a change of the
users keep the list of before. Whoever can change the configuration can read the secrets of applications and delete
topics.
"""

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any, NamedTuple

from kazoo import exceptions as zk
from kazoo.security import ACL

from common.config.errors import AccessDenied, InvalidEntry
from common.config.zookeeper_connection import ZooKeeperConnection
from common.config.zookeeper_lists import ACCESS, REPORT_PARENTS, AccessLists, as_set, new_reporter

OPEN_SCHEMES = ("world", "ip")
"""Schemes that ask for no secret."""
OPEN = "can be changed by every client of ZooKeeper: it was made without auth_file"
DIFFERS = "has another access list than `penstock config access` shows"
OTHERS = (
    "belongs to another user of ZooKeeper: name its password too, in the FILE of `penstock config access --writers`"
)
READER_WRITES = (
    "this proxy may change the whole configuration: its auth_file has a writer of `penstock config access`: "
    "give it the one of the readers"
)
WRITER_READS = (
    "this process may only read the configuration: its auth_file has a reader of `penstock config access`: "
    "give it the one of the writers"
)
NEVER = 2**31 - 1
"""A version that no node has: a request that names it is denied, or fails without an effect."""
TRIES_MAX = 5


class WrongNode(NamedTuple):
    path: str
    problem: str
    wanted: list[ACL]


class ZooKeeperAccess:
    """Access lists below the chroot. All raise StoreUnavailable."""

    def __init__(self, connection: ZooKeeperConnection) -> None:
        self._connection, self._client = connection, connection.client

    def own_fault(self, is_proxy: bool) -> str:
        """Why this process has other rights than it should have; empty: it has those, or no lists are in force."""
        may_write = self._may_write()
        lists = self._connection.lists
        if lists is None:
            return ""
        if is_proxy:
            return READER_WRITES if may_write and lists.has_readers else ""
        return "" if may_write else WRITER_READS

    def open_nodes(self) -> list[str]:
        """Those of the chroot and the nodes directly below it that every client can read or change."""
        return [path for path in self._paths(levels=1) if (found := self._acls(path)) and _is_open(found)]

    def wrong_nodes(self) -> list[WrongNode]:
        """All nodes that do not have the list of their place."""
        lists = self._lists()
        return [found for path in self._paths() if (found := self._wrong(path, lists)) is not None]

    def mend(self) -> list[WrongNode]:
        """Give these nodes their lists; returns them.

        Nodes may come meanwhile, from processes that know the lists of before, so it looks again until there are none.
        """
        mended: dict[str, WrongNode] = {}
        for _ in range(TRIES_MAX):
            found = [each for each in self.wrong_nodes() if each.problem != OTHERS]
            for each in found:
                self._set(each.path, each.wanted)
            mended |= {each.path: each for each in found}
            if not found:
                break
        return list(mended.values())

    def users(self) -> AccessLists:
        """The lists in force. Raises InvalidEntry: there are none."""
        self._connection.ask(lambda: self._client.exists_async(self._chroot))
        lists = self._connection.lists
        if lists is None:
            raise InvalidEntry(
                "one user for all processes: `penstock config access --readers FILE` names one for proxies"
            )
        return lists

    def set_users(self, writers: Collection[str] | None, readers: Collection[str] | None) -> AccessLists:
        """Put lists in force, on all nodes and for those to come.

        Args:
            writers, readers: credentials of all writers, of all readers; None: those of before.
        Raises:
            InvalidEntry, AccessDenied
        """
        self._connection.create_missing(self._connection.path())
        own = self._connection.own_credentials()
        if writers is not None and not set(own) <= set(writers):
            raise InvalidEntry("--writers: the user of this command's auth_file is not among them: name it, too")
        for each in writers or ():
            self._connection.authenticate(each)
        before = self._connection.lists or AccessLists.of_users(own, (), new_reporter())
        lists = before.with_users(writers, readers)
        if len({each.id for each in lists.pattern}) < len(lists.pattern):
            raise InvalidEntry("--readers: one of them is a writer, too: give readers another user or password")
        if before.is_masked:
            raise AccessDenied(f"{self._connection.name}: only a writer may change the users")
        self._put_in_force(lists)
        self.mend()
        return lists

    def _put_in_force(self, lists: AccessLists) -> None:
        """The chroot first: from there on new nodes are right, and `mend` can go on after a crash."""
        path, data = self._connection.path(ACCESS), lists.reporter.encode()
        self._set(self._chroot, lists.of(""))
        create = partial(self._client.create_async, path, data, acl=lists.of(ACCESS))
        if self._connection.ask_quietly(create, zk.NodeExistsError) is None:
            self._set(path, lists.of(ACCESS))
            self._connection.ask(lambda: self._client.set_async(path, data))  # its watch tells all processes
        self._connection.renew_access()
        for name in REPORT_PARENTS:
            self._connection.create_missing(self._connection.path(name))

    @property
    def _chroot(self) -> str:
        return self._connection.path() or "/"

    def _may_write(self) -> bool:
        try:
            self._connection.ask(lambda: self._client.set_async(self._chroot, b"", version=NEVER))
        except (zk.BadVersionError, zk.NoNodeError):
            return True
        except AccessDenied:
            return False
        return True

    def _lists(self) -> AccessLists:
        """Those in force; without any, the chroot's list for all nodes, or if that is open this client's own."""
        found = self._acls(self._chroot)
        if self._connection.lists is not None:
            return self._connection.lists
        if found and not _is_open(found):
            return AccessLists(tuple(found))
        return AccessLists.of_users(self._connection.own_credentials(), (), "")

    def _wrong(self, path: str, lists: AccessLists) -> WrongNode | None:
        wanted, found = lists.of(path.removeprefix(self._connection.path())), self._acls(path)
        if found is None:
            return WrongNode(path, OTHERS, wanted)
        if not found or as_set(found) == as_set(wanted):
            return None
        return WrongNode(path, OPEN if _is_open(found) else DIFFERS, wanted)

    def _acls(self, path: str) -> list[ACL] | None:
        """Empty: the node is gone; None: it is another user's."""
        try:
            answer: Any = self._connection.ask_quietly(partial(self._client.get_acls_async, path), zk.NoNodeError)
        except AccessDenied:
            return None
        return answer[0] if answer is not None else []

    def _set(self, path: str, wanted: list[ACL]) -> None:
        self._connection.ask_quietly(partial(self._client.set_acls_async, path, wanted), zk.NoNodeError)

    def _paths(self, levels: int = 64) -> Iterator[str]:
        """Paths of the nodes down to so many levels below the chroot."""
        level = [self._chroot]
        for _ in range(levels + 1):
            yield from level
            level = [
                f"{path.rstrip('/')}/{name}" for path in level for name in self._children(path)
                if (path, name) != ("/", "zookeeper")
            ]  # fmt: skip

    def _children(self, path: str) -> list[str]:
        try:
            return self._connection.ask_quietly(partial(self._client.get_children_async, path), zk.NoNodeError) or []
        except AccessDenied:
            return []


def _is_open(acls: list[ACL]) -> bool:
    return any(each.id.scheme in OPEN_SCHEMES for each in acls)

"""Access lists in ZooKeeper: which user may do what with the nodes below the chroot.

The list of the chroot is the pattern. Writers (engines, controllers, bridges, the console, commands) have all rights in
it, readers (proxies) the right to read. A node gets the pattern, except for those that proxies write:

    CHROOT/access                     the credential of the user REPORTER; it is there once lists are in force
    CHROOT/applied, members, proxy_claims     REPORTER may make and delete nodes below them, which belong to it alone
    CHROOT/<kind>/index, <kind>/017   of the kinds PROXY_KINDS: REPORTER may change them

Every process is REPORTER beside its own user. So what a proxy has written can be read and changed by all processes, and
proxies need to know nothing about the writers' password: ZooKeeper shows them no digest of it.
"""

import secrets
from collections.abc import Collection, Iterable
from typing import NamedTuple

from kazoo.security import ACL, Id, Permissions, make_digest_acl_credential

from common.config.store import KINDS, StoreUser

REPORTER = "penstock-reports"
ACCESS = "access"
PROXY_CLAIMS = "proxy_claims"
REPORT_PARENTS = ("applied", "members", PROXY_CLAIMS)
PROXY_KINDS = tuple(name for name, kind in KINDS.items() if kind.written_by_proxies)
PROXY_NODES = Permissions.READ | Permissions.WRITE
PROXY_PARENTS = Permissions.READ | Permissions.WRITE | Permissions.CREATE | Permissions.DELETE

AclSet = frozenset[tuple[int, str, str]]


def id_of(credential: str) -> Id:
    """The id in access lists of a `user:password`."""
    user, _, password = credential.partition(":")
    return Id("digest", make_digest_acl_credential(user, password))


def as_set(acls: Iterable[ACL]) -> AclSet:
    return frozenset((each.perms, each.id.scheme, each.id.id) for each in acls)


def shown_users(lists: "AccessLists") -> list[StoreUser]:
    rows = [(each.id.id.partition(":"), each.perms & Permissions.WRITE) for each in lists.pattern]
    return [StoreUser(user, "writes" if writes else "reads", digest[:8]) for (user, _, digest), writes in rows]


def new_reporter() -> str:
    return f"{REPORTER}:{secrets.token_hex(16)}"


class AccessLists(NamedTuple):
    """
    Attributes:
        pattern: the chroot's list.
        reporter: credential of REPORTER; empty: lists are not in force, and every node has the pattern.
    """

    pattern: tuple[ACL, ...]
    reporter: str = ""

    @classmethod
    def of_users(cls, writers: Collection[str], readers: Collection[str], reporter: str) -> "AccessLists":
        """Args: writers, readers: their credentials."""
        rights = [(Permissions.ALL, each) for each in writers] + [(Permissions.READ, each) for each in readers]
        return cls(tuple(ACL(perms, id_of(credential)) for perms, credential in rights), reporter)

    @property
    def has_readers(self) -> bool:
        return any(not each.perms & Permissions.WRITE for each in self.pattern)

    @property
    def is_masked(self) -> bool:
        """Whether ZooKeeper has hidden the digests: this user is no writer."""
        return any(each.id.scheme == "digest" and each.id.id.endswith(":x") for each in self.pattern)

    def with_users(self, writers: Collection[str] | None, readers: Collection[str] | None) -> "AccessLists":
        """These lists with other writers, other readers; None: as they are."""
        made = AccessLists.of_users(writers or (), readers or (), self.reporter)
        writing = [each for each in (self if writers is None else made).pattern if each.perms & Permissions.WRITE]
        reading = [each for each in (self if readers is None else made).pattern if not each.perms & Permissions.WRITE]
        return AccessLists((*writing, *reading), self.reporter)

    def of(self, path: str) -> list[ACL]:
        """The list of a node.

        Args:
            path: below the chroot, such as `topic/index`; empty: the chroot.
        """
        parts = path.strip("/").split("/")
        if self.reporter and len(parts) == 1 and parts[0] in REPORT_PARENTS:
            return [*self.pattern, ACL(PROXY_PARENTS, id_of(self.reporter))]
        if self.reporter and len(parts) == 2 and parts[0] in REPORT_PARENTS:
            return [ACL(Permissions.ALL, id_of(self.reporter))]
        if self.reporter and len(parts) == 2 and parts[0] in PROXY_KINDS:
            return [*self.pattern, ACL(PROXY_NODES, id_of(self.reporter))]
        return list(self.pattern)

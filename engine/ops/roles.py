"""Roles of links: the key that proves each, and the operations that it may ask for.

Design: docs/design/0024-proof-and-roles-on-the-link.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from engine.link import operations as op
from engine.link.proof import ADMIN_ROLE, CONTROLLER_ROLE, REPLICA_ROLE

CLUSTER, ADMIN, REPLICA, CONTROLLER = "cluster", "admin", "replica", "controller"
"""Names of keys. The option of each is --NAME-key."""

_OF_CLIENTS = frozenset(
    {
        op.APPEND, op.RESEND, op.TOPIC, op.CLAIM, op.COPY, op.SOURCE_STATE, op.SOURCE_ACCEPT, op.PULL, op.READ, op.WINDOW,
        op.CANCEL, op.TIMER_ADD, op.TIMER_ADD_AGAIN, op.TIMER_CANCEL, op.TIMER_LIST, op.LISTEN, op.REPLY, op.FORWARDED,
        op.OUTCOME, op.LOOK_UP_ID, op.LOOK_UP_KEY, op.LEASE, op.BACKLOG,
    }
)  # fmt: skip


class LinkRole(NamedTuple):
    """What a link may do that says this role and proves its key."""

    key: str
    operations: frozenset[int]


ROLES: Mapping[str, LinkRole] = {
    ADMIN_ROLE: LinkRole(ADMIN, _OF_CLIENTS | {op.ADMIN}),
    REPLICA_ROLE: LinkRole(REPLICA, frozenset({op.FOLLOW, op.STORED, op.FETCH})),
    CONTROLLER_ROLE: LinkRole(CONTROLLER, frozenset({op.RECORD, op.REPORT, op.HAND_OVER})),
}
CLIENT = LinkRole(CLUSTER, _OF_CLIENTS)
"""Every other role: proxies and Kafka bridges."""
_NAMES = {number: name for name, number in vars(op).items() if name.isupper()}


def right_to(operation: int) -> str:
    """What a link needs for an operation, in a sentence that begins with its name; empty: there is none of that number."""
    owners = [f"of the role {name}" for name, each in ROLES.items() if operation in each.operations]
    owners = ["of a proxy"] if operation in CLIENT.operations else owners
    return f"{_NAMES[operation]}: needs a link {owners[0]}" if owners else ""


def role_of(name: str) -> LinkRole:
    """The role that a HELLO says."""
    return ROLES.get(name, CLIENT)


@dataclass
class LinkKeys:
    """Secrets by which the links of one process authenticate.

    Attributes:
        cluster: of proxies and bridges.
        admin: of operators; empty: no link may administer this engine.
        replica, controller: of the brokers of a group, and of controllers; empty: the cluster key takes their place.
        also_cluster: take the cluster key for replicas and controllers besides their own, and try it as a replica, too.
        forbidden: requests that were refused because their links' roles do not have the operation.
    """

    cluster: bytes
    admin: bytes = b""
    replica: bytes = b""
    controller: bytes = b""
    also_cluster: bool = False
    forbidden: int = 0

    def of(self, key: str) -> tuple[bytes, ...]:
        """The secrets that prove the key of this name, the preferred one first; empty: no link has it."""
        own: bytes = getattr(self, key)
        if key in (REPLICA, CONTROLLER) and (self.also_cluster or not own):
            return tuple(filter(None, (own, self.cluster)))
        return (own,) if own else ()

    @property
    def by_cluster_key(self) -> list[str]:
        """The keys whose place the cluster key takes, too, which every proxy has."""
        return [each for each in (REPLICA, CONTROLLER) if self.cluster in self.of(each)]

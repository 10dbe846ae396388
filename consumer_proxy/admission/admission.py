"""Permissions of pulls: verdicts are found once and remembered until the configuration changes."""

from typing import Any, NamedTuple

from common import dead_letters
from common.callers import Origin
from common.clock import Clock
from common.config.definitions import GroupDefinition
from common.contract import Code
from common.credential import Principal
from common.dead_letters import group_of, is_dead_letter_topic
from common.errors import AuthenticationError
from common.key_uses import KeyUses
from common.limits import Meter
from common.limits.quota_slices import QuotaSlices
from common.principals import Principals
from consumer_proxy.call import Call
from consumer_proxy.errors import Refused
from engine.link.pull import AT_TIME, EARLIEST, LATEST, PullScope

_STARTS = {"earliest": EARLIEST, "latest": LATEST, "time": AT_TIME}
CREDENTIAL_BYTES_MAX = 2048
"""Maximum size of a remembered credential. Longer ones (padded by unknown fields) are looked up per call."""

TOPICS_BYTES_MAX = 64 << 20
"""Maximum size of all verdicts' topics, in the calls' form and in the source's; a full table is emptied."""


class AdmittedPull(NamedTuple):
    """A group and topics that a credential may pull."""

    scope: PullScope
    invisible_ms: int
    start: int
    expires_at_ms: int
    meter: Meter | None  # of the group's rate limit
    origin: Origin  # it must admit the connection


class PullAdmission:
    """Verdicts by the bytes of the call. A change of the configuration discards them all.

    Args:
        view: the ConfigView.
        verdicts_max: of each kind; a full table is emptied, which costs one look-up per verdict.
        leases: meters of the groups' rate limits.
    """

    def __init__(self, view: Any, clock: Clock, verdicts_max: int, leases: QuotaSlices):
        self._view, self._clock, self._verdicts_max, self._leases = view, clock, verdicts_max, leases
        self._principals = Principals(view, clock, verdicts_max)
        self._generation = view.generation
        self._admitted: dict[tuple[bytes, bytes, bytes, bool], AdmittedPull] = {}
        self._topics_bytes = 0

    def admit(self, call: Call, connection: Any) -> AdmittedPull:
        """The verdict on a leasing pull that came over `connection`.

        Raises:
            Refused: UNAUTHENTICATED, FORBIDDEN, UNKNOWN_TOPIC or UNKNOWN_GROUP.
        """
        self._follow()
        key = (call.credential, call.group, call.topics, call.max_messages > 0)
        found = self._admitted.get(key)
        if found is not None and self._clock.now_ms() < found.expires_at_ms and found.origin.admits(connection):
            return found
        principal = self.principal(call.credential, connection)
        admitted = self._look_up(principal, call)
        if len(call.credential) <= CREDENTIAL_BYTES_MAX:
            self._remember(key, admitted)
        return admitted

    def principal(self, credential: bytes, connection: Any) -> Principal:
        """The principal of a credential. Raises Refused with UNAUTHENTICATED."""
        try:
            return self._principals.find(credential, connection)
        except AuthenticationError as error:
            raise Refused(Code.UNAUTHENTICATED, str(error)) from error

    @property
    def key_uses(self) -> KeyUses:
        """Time of each key's last use, as a metric."""
        return self._principals.uses

    def prefix_verifies(self, connection: Any, prefix: bytes) -> bool:
        """See Principals.prefix_verifies."""
        return self._principals.prefix_verifies(connection, prefix)

    def check_group(self, principal: Principal, group: str) -> None:
        """Check the permission. Raises Refused with FORBIDDEN."""
        if not principal.may_pull(group):
            raise Refused(Code.FORBIDDEN, f"application {principal.app} may not pull as group {group}")

    def queues_of(self, principal: Principal, topic: str) -> int:
        """The topic's number of queues. Raises Refused with FORBIDDEN or UNKNOWN_TOPIC."""
        # Permission first: without it an application does not learn which topics exist.
        # Permission to pull as a group includes its dead letters.
        if not principal.may_pull(group_of(topic)):
            raise Refused(Code.FORBIDDEN, f"application {principal.app} may not pull from topic {topic}")
        if is_dead_letter_topic(topic):
            return dead_letters.queues_of(topic, [group.name for group in self._view.broker_groups()])
        definition = self._view.topic(topic)
        if definition is None:
            raise Refused(Code.UNKNOWN_TOPIC, f"there is no topic {topic}")
        return definition.queues

    def _look_up(self, principal: Principal, call: Call) -> AdmittedPull:
        group = call.group.decode()
        self.check_group(principal, group)
        definition = self._view.group(group) or GroupDefinition(group)
        names = call.topic_names() or list(definition.topics)
        if not names and call.max_messages > 0:
            raise Refused(Code.UNKNOWN_GROUP, f"group {group} has no topics of its own: name some in the pull")
        topics = {name: self.queues_of(principal, name) for name in names}
        return AdmittedPull(
            PullScope(call.group, topics),
            definition.invisible_ms,
            _STARTS[definition.start],
            principal.expires_at_ms,
            self._leases.meter(f"group:{group}", definition.rate_messages, definition.rate_bytes),
            principal.origin,
        )

    def _remember(self, key: tuple[bytes, bytes, bytes, bool], admitted: AdmittedPull) -> None:
        size = len(key[2]) + len(admitted.scope.head)
        if len(self._admitted) >= self._verdicts_max or self._topics_bytes + size > TOPICS_BYTES_MAX:
            self._forget()
        self._admitted[key] = admitted
        self._topics_bytes += size

    def _follow(self) -> None:
        if self._generation != self._view.generation:
            self._generation = self._view.generation
            self._forget()

    def _forget(self) -> None:
        self._admitted.clear()
        self._topics_bytes = 0

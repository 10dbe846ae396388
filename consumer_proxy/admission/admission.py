"""Who may pull what: verdicts that are found once and remembered while the configuration stays as it is."""

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
from consumer_proxy.errors import Refused
from consumer_proxy.pull.call import Call
from consumer_proxy.pull.link_bytes import encode_topics

_STARTS = {
    "earliest": 0,
    "latest": 1,
    "time": 2,
}  # the moment itself is in the group's definition, which the engine knows, too
CREDENTIAL_BYTES_MAX = 2048  # a longer one (padded by unknown fields) is looked up each time
TOPICS_BYTES_MAX = 64 << 20  # of all verdicts together, in the calls' form and in the engine's; then the table is full


class Admitted(NamedTuple):
    """A group and topics that this credential may pull, in the form that the engine wants them."""

    group: bytes
    topics: bytes  # encoded, with their count in front
    invisible_ms: int
    start: int
    expires_at_ms: int
    meter: Meter | None  # of the group's rate limit
    origin: Origin  # what is asked of the connection


class Admission:
    """Verdicts by the bytes of the call. A change of the configuration forgets them all.

    Args:
        view: the ConfigView. verdicts_max: of each kind; a full table is emptied, which costs one look-up each.
        leases: where the groups' rate limits are.
    """

    def __init__(self, view: Any, clock: Clock, verdicts_max: int, leases: QuotaSlices):
        self._view, self._clock, self._verdicts_max, self._leases = view, clock, verdicts_max, leases
        self._principals = Principals(view, clock, verdicts_max)
        self._generation = view.generation
        self._admitted: dict[tuple[bytes, bytes, bytes, bool], Admitted] = {}
        self._topics_bytes = 0

    def admit(self, call: Call, connection: Any) -> Admitted:
        """The verdict on a leasing pull that came by `connection`.

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
        """Who presents this credential. Raises Refused with UNAUTHENTICATED."""
        try:
            return self._principals.find(credential, connection)
        except AuthenticationError as error:
            raise Refused(Code.UNAUTHENTICATED, str(error)) from error

    @property
    def key_uses(self) -> KeyUses:
        """When each key was used last, as a metric."""
        return self._principals.uses

    def prefix_verifies(self, connection, prefix: bytes) -> bool:
        """See Principals.prefix_verifies."""
        return self._principals.prefix_verifies(connection, prefix)

    def check_group(self, principal: Principal, group: str) -> None:
        """Raises Refused with FORBIDDEN."""
        if not principal.may_pull(group):
            raise Refused(Code.FORBIDDEN, f"application {principal.app} may not pull as group {group}")

    def queues_of(self, principal: Principal, topic: str) -> int:
        """How many queues the topic has. Raises Refused with FORBIDDEN or UNKNOWN_TOPIC."""
        # Permission first: somebody without it does not learn which topics exist.
        # Who may pull as a group may pull its dead letters.
        if not principal.may_pull(group_of(topic)):
            raise Refused(Code.FORBIDDEN, f"application {principal.app} may not pull from topic {topic}")
        if is_dead_letter_topic(topic):
            return dead_letters.queues_of(topic, [group.name for group in self._view.broker_groups()])
        definition = self._view.topic(topic)
        if definition is None:
            raise Refused(Code.UNKNOWN_TOPIC, f"there is no topic {topic}")
        return definition.queues

    def _look_up(self, principal: Principal, call: Call) -> Admitted:
        group = call.group.decode()
        self.check_group(principal, group)
        definition = self._view.group(group) or GroupDefinition(group)
        names = call.topic_names() or list(definition.topics)
        if not names and call.max_messages > 0:
            raise Refused(Code.UNKNOWN_GROUP, f"group {group} has no topics of its own: name some in the pull")
        topics = {name: self.queues_of(principal, name) for name in names}
        return Admitted(
            call.group,
            encode_topics(topics),
            definition.invisible_ms,
            _STARTS[definition.start],
            principal.expires_at_ms,
            self._leases.meter(f"group:{group}", definition.rate_messages, definition.rate_bytes),
            principal.origin,
        )

    def _remember(self, key: tuple[bytes, bytes, bytes, bool], admitted: Admitted) -> None:
        size = len(key[2]) + len(admitted.topics)
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

"""Permissions of pulls: verdicts are found once and remembered until the configuration changes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from common import dead_letters
from common.callers import Origin
from common.clock import Clock
from common.config.definitions import GroupDefinition
from common.contract import Code
from common.credential import Principal
from common.dead_letters import is_dead_letter_topic
from common.errors import AuthenticationError
from common.key_uses import KeyUses
from common.limits import Meter
from common.limits.quota_slices import QuotaSlices
from common.names import stored_name
from common.principals import Principals
from consumer_proxy.admission.shared_reads import add_shared_reads
from consumer_proxy.admission.topic_names import TopicNames
from consumer_proxy.call import Call
from consumer_proxy.errors import Refused
from consumer_proxy.response_fields import lease_time, topic_reports
from engine.link.pull import PullScope, start_of

CREDENTIAL_BYTES_MAX = 2048
"""Maximum size of a remembered credential. Longer ones (padded by unknown fields) are looked up per call."""

TOPICS_BYTES_MAX = 64 << 20
"""Maximum size of all verdicts' topics, in the calls' form and in the source's; a full table is emptied."""


@dataclass(frozen=True, slots=True)
class AdmittedPull:
    """A group and topics that a credential may pull.

    Attributes:
        told: field 7 of the response: each named topic that cannot be pulled; `scope` has the others.
        told_with_lease: the same with field 8, for calls that leave the lease time open.
    """

    scope: PullScope
    told: bytes
    told_with_lease: bytes
    invisible_ms: int
    start: int
    expires_at_ms: int
    meter: Meter | None  # of the group's rate limit
    origin: Origin  # it must admit the connection
    reply_key: bytes  # of the application, for the tokens of requests
    sources: bytes  # by which deliveries tell their source; empty unless the group reads a topic on two sides


class PullAdmission:
    """Verdicts by the bytes of the call. A change of the configuration discards them all.

    Args:
        view: the ConfigView.
        verdicts_max: of each kind; a full table is emptied, which costs one look-up per verdict.
        leases: meters of the groups' rate limits.
        reply_key: makes the key of an application's reply tokens; called once per verdict.
    """

    def __init__(
        self, view: Any, clock: Clock, verdicts_max: int, leases: QuotaSlices, reply_key: Callable[[str], bytes]
    ) -> None:  # fmt: skip
        self._view, self._clock, self._verdicts_max, self._leases = view, clock, verdicts_max, leases
        self._reply_key = reply_key
        self._principals = Principals(view, clock, verdicts_max)
        self._generation = view.generation
        self._admitted: dict[tuple[bytes, bytes, bytes, bool], AdmittedPull] = {}
        self._topics_bytes = 0
        self.topic_names = TopicNames(view, clock)

    def admit(self, call: Call, connection: Any) -> AdmittedPull:
        """The verdict on a leasing pull that came over `connection`.

        Raises:
            Refused: UNAUTHENTICATED, FORBIDDEN, UNKNOWN_GROUP; UNKNOWN_TOPIC when no topic can be pulled.
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

    @property
    def generation(self) -> int:
        """Of the configuration."""
        return int(self._view.generation)

    def principal(self, credential: bytes, connection: Any) -> Principal:
        """The principal of a credential. Raises Refused with UNAUTHENTICATED, or UNAVAILABLE if it cannot be checked."""
        try:
            return self._principals.find(credential, connection)
        except AuthenticationError as error:
            raise Refused(error.code, str(error)) from error

    @property
    def key_uses(self) -> KeyUses:
        """Time of each key's last use, as a metric."""
        return self._principals.uses

    def prefix_verifies(self, connection: Any, prefix: bytes) -> bool:
        """See Principals.prefix_verifies."""
        return self._principals.prefix_verifies(connection, prefix)

    def may_acknowledge(self, call: Call, connection: Any) -> bool:
        """Whether acknowledgements of the call count, whatever is wrong with the rest of it."""
        try:
            self.check_group(self.principal(call.credential, connection), call.group.decode())
        except Refused:
            return False
        return True

    def check_group(self, principal: Principal, group: str) -> None:
        """Check the permission. Raises Refused with FORBIDDEN."""
        if not principal.may_pull_as(group):
            raise Refused(Code.FORBIDDEN, f"application {principal.app} may not pull as group {group}")

    def find_topic(self, principal: Principal, topic: str) -> tuple[str, int]:
        """The topic's stored name and number of queues. Raises Refused with FORBIDDEN or UNKNOWN_TOPIC."""
        # Permission first: without it an application does not learn which topics exist.
        if is_dead_letter_topic(topic):
            if not principal.may_read_dead_letters(topic):
                raise Refused(Code.FORBIDDEN, f"application {principal.app} has no grant for dead letters in {topic}")
            return topic, dead_letters.queues_of(topic, [group.name for group in self._view.broker_groups()])
        if not principal.may_pull_from(topic):
            raise Refused(Code.FORBIDDEN, f"application {principal.app} may not pull from topic {topic}")
        definition = self._view.topic(topic)
        if definition is None:
            raise Refused(Code.UNKNOWN_TOPIC, f"there is no topic {topic}")
        return stored_name(topic, definition.made_ms), definition.queues

    def _look_up(self, principal: Principal, call: Call) -> AdmittedPull:
        group = call.group.decode()
        self.check_group(principal, group)
        definition = self._view.group(group) or GroupDefinition(group)
        topics, left_out = self._topics(principal, call, definition)
        told = topic_reports(left_out)
        sources = add_shared_reads(self._view, definition, topics)
        return AdmittedPull(
            PullScope(call.group, topics, principal.app),
            told,
            told + lease_time(definition.invisible_ms),
            definition.invisible_ms,
            start_of(definition.start, definition.start_at_ms),
            principal.expires_at_ms,
            self._leases.meter(f"group:{group}", definition.rate_messages, definition.rate_bytes),
            principal.origin,
            self._reply_key(principal.app),
            sources,
        )

    def _topics(
        self, principal: Principal, call: Call, definition: GroupDefinition
    ) -> tuple[dict[str, int], list[tuple[str, int, str]]]:
        """The queues of the call's topics, and (topic, code, sentence) of each one that cannot be pulled."""
        names = call.topic_names() or list(definition.topics)
        only_acks = call.max_messages <= 0
        if not names and not only_acks:
            sentence = f"group {definition.name} has no topics of its own: name some in the pull"
            raise Refused(Code.UNKNOWN_GROUP, sentence)
        topics: dict[str, int] = {}
        left_out: list[tuple[str, int, str]] = []
        for name in names:
            try:
                stored, queues = self.find_topic(principal, name)
                topics[stored] = queues
            except Refused as refused:
                if only_acks:
                    continue  # the topics only help the engine to find the queues of receipts from before a crash
                if refused.code != Code.UNKNOWN_TOPIC:
                    raise
                left_out.append((name, int(refused.code), refused.sentence))
        if left_out and not topics:
            raise Refused(left_out[0][1], left_out[0][2])
        return topics, left_out

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

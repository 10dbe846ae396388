"""Checks of one message before its target is involved: form, permission, topic, size, switches, features, rules."""

from common.contract import Code
from common.credential import Principal
from common.wire.calls import HAS_DELAY, HAS_DELIVER_AT, Message
from common.wire.faults import MESSAGE_FAULTS, MessageFault
from producer_proxy.admission.admission import SendAdmission
from producer_proxy.admission.rules import broken_rule
from producer_proxy.send.pending import PendingMessage
from producer_proxy.send.results import BACKLOG_RETRY_AFTER_MS, OFF_RETRY_AFTER_MS, refusal
from producer_proxy.targets.base import SendTarget
from producer_proxy.targets.topics import Topics


class MessageChecks:
    """Checks messages one by one.

    Args:
        topics: definitions and targets.
        admission: features that operators have switched off, and backlogged topics.
    """

    def __init__(self, topics: Topics, admission: SendAdmission) -> None:
        self._topics, self._admission = topics, admission

    def check(
        self, pending: PendingMessage, principal: Principal, durability: int = 0, is_request: bool = False
    ) -> None:
        """Refuse the message at the first failed check; otherwise set its target.

        Args:
            durability: as the call asks for it; 0: each topic's own.
        """
        message = pending.message
        if message.fault:
            pending.result = refusal(*MESSAGE_FAULTS[MessageFault(message.fault)])  # its other fields are void
            return None
        if off := self._admission.feature_off(message):
            return pending.refuse(Code.OVERLOADED, off, OFF_RETRY_AFTER_MS)
        if not principal.may_send(message.topic):
            sentence = f"application={principal.app}: may not send to topic {message.topic}"
            return pending.refuse(Code.FORBIDDEN, sentence)
        return self._check_topic(pending, durability, is_request)

    def _check_topic(self, pending: PendingMessage, durability: int, is_request: bool) -> None:
        message = pending.message
        definition = self._topics.definition(message.topic)
        if definition is None:
            return pending.refuse(Code.UNKNOWN_TOPIC, f"topic={message.topic}: not defined")
        if message.body_size > definition.body_bytes_max:
            sentence = f"Message.body: at most {definition.body_bytes_max} bytes for this topic"
            return pending.refuse(Code.TOO_LARGE, sentence)
        if off := self._admission.grade_off(definition):
            return pending.refuse(Code.OVERLOADED, off, OFF_RETRY_AFTER_MS)
        if not message.operation and (behind := self._admission.backlogs.reason(message.topic)):
            return pending.refuse(Code.BACKLOGGED, behind, BACKLOG_RETRY_AFTER_MS)
        target = self._topics.targets.of(definition)
        if unfit := _missing_feature(message, target, is_request) or target.objection(message, durability):
            return pending.refuse(Code.INVALID, unfit)
        if broken := broken_rule(message, definition):
            return pending.refuse(Code.INVALID, broken)
        pending.target = target
        return None


def _missing_feature(message: Message, target: SendTarget, is_request: bool) -> str | None:
    """A sentence naming the field of an unsupported feature; None: the target supports all of them."""
    if message.operation and "cancel" not in target.features:
        return (
            f"Message.operation: topic={message.topic}: its target {target.name} cannot cancel; send it without CANCEL"
        )
    if message.flags & (HAS_DELIVER_AT | HAS_DELAY) and "delay" not in target.features:
        field = "delay_ms" if message.flags & HAS_DELAY else "deliver_at_ms"
        return f"Message.{field}: topic={message.topic}: its target {target.name} takes no delayed messages; leave it unset"
    if is_request and "reply" not in target.features:
        return (
            f"SendRequest.reply_wait_ms: topic={message.topic}: its target {target.name} has no replies; leave it unset"
        )
    return None

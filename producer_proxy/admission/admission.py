"""Admission of sends as one object: limits of the configuration as meters, switches of operators, backlog breakers."""

import os
import time
from collections.abc import Callable
from typing import Any, Protocol

from common.config.definitions import GRADES, ApplicationDefinition, TopicDefinition
from common.config.gate_settings import GateSettings
from common.config.text_values import ENGINE_HOME
from common.limits import Meter, QueueLimit
from common.limits.quota_slices import Answer, QuotaSlices
from common.limits.retry_slot import RetrySlot
from common.wire.calls import HAS_DELAY, HAS_DELIVER_AT, HAS_REPLY_TO, Message
from producer_proxy.admission.backlog import TopicBacklogs
from producer_proxy.admission.rate_limits import RateLimitAdmission
from producer_proxy.admission.rules import has_rules

FEATURE_FLAGS = {"delay": HAS_DELIVER_AT | HAS_DELAY, "reply": HAS_REPLY_TO, "cancel": 0}


class AdmissionView(Protocol):
    """The part of the ConfigView that this module uses."""

    def topic(self, name: str) -> TopicDefinition | None: ...

    def application(self, name: str) -> ApplicationDefinition | None: ...

    def setting(self, name: str) -> dict[str, Any] | None: ...


class FittedDestination(Protocol):
    """A destination as the hot path sees it."""

    meter: Meter | None
    grade: int
    is_special: bool
    is_doubled: bool
    tap: Any
    lane: Any


class SendAdmission:
    """Rate limits, operators' switches and backlog breakers of one proxy.

    Args:
        view: the configuration.
        ask: sends a request to the lender of cluster-wide limits; see QuotaSlices.
        queues: returns the current QueueLimits of the targets.
        backlogs: the backlog breakers.
    """

    def __init__(
        self, view: AdmissionView, ask: Callable[[bytes, Answer], object], queues: Callable[[], list[QueueLimit]],
        backlogs: TopicBacklogs,
    ) -> None:  # fmt: skip
        self._view, self._queues, self.backlogs = view, queues, backlogs
        self.leases = QuotaSlices("producer_proxy", os.urandom(8).hex(), ask, time.monotonic)
        self.own: Meter | None = None
        self.settings = GateSettings()
        self.follow()

    def follow(self) -> None:
        """Apply the current settings of the configuration.

        Topics and applications are updated at their next use.
        """
        self.settings = GateSettings.of(self._view)
        for queue in self._queues():
            queue.queue_s = self.settings.queue_ms / 1000
        self.backlogs.follow(self._view.topic)
        own = (self.settings.rate_messages, self.settings.rate_bytes)
        self.own = (self.own or Meter()) if any(own) else None
        if self.own is not None:
            self.own.set_rates(*(rate or None for rate in own), time.monotonic())

    def fit(self, destination: FittedDestination, topic: TopicDefinition) -> None:
        """Set a destination's admission fields from its topic's definition."""
        destination.meter = self.topic(topic)
        destination.grade = GRADES.index(topic.grade)
        self.backlogs.fit(topic)
        is_off = topic.grade in self.settings.grades_off or self.backlogs.reason(topic.name) is not None
        destination.is_doubled, destination.tap = (
            bool(topic.secondary),
            None,
        )  # the rare path puts the tap of today's pair
        moves = topic.fence is not None or (topic.home != ENGINE_HOME and destination.lane is None)
        destination.is_special = is_off or has_rules(topic) or moves

    def tick(self) -> None:
        """Ask the engine for quota slices and backlogged topics; called every TICK_S."""
        self.leases.tick()
        self.backlogs.tick()

    def topic(self, topic: TopicDefinition) -> Meter | None:
        """The limit of a topic; None: it has none."""
        return self.leases.meter(f"topic:{topic.name}", topic.rate_messages, topic.rate_bytes)

    def grade_off(self, topic: TopicDefinition) -> str | None:
        """A sentence when an operator has switched the topic's grade off."""
        if topic.grade not in self.settings.grades_off:
            return None
        return f"topics of grade {topic.grade} are switched off by an operator; nothing was stored"

    def feature_off(self, message: Message) -> str | None:
        """A sentence when the message needs a feature that an operator has switched off."""
        for feature in self.settings.features_off:
            if message.flags & FEATURE_FLAGS[feature] or (feature == "cancel" and message.operation):
                return f"{feature} is switched off by an operator; nothing was stored"
        return None

    def application(self, name: str) -> Meter | None:
        """The limit of an application; None: it has none."""
        found: ApplicationDefinition | None = self._view.application(name)
        return found and self.leases.meter(f"application:{name}", found.rate_messages, found.rate_bytes)

    def rate_limits(self, application: str, slot: RetrySlot | None, timeout_s: float) -> RateLimitAdmission:
        """Admission by the rate limits for one call of this application, on a connection with this slot."""
        return RateLimitAdmission((self.application(application), self.own), time.monotonic(), slot, timeout_s)

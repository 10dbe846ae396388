"""The gate as one object: the limits of the configuration as meters, kept up to date."""

import os
import time

from common.config.definitions import GRADES, ApplicationDefinition, TopicDefinition
from common.config.gate_settings import GateSettings
from common.limits import Meter
from common.limits.quota_slices import QuotaSlices
from common.wire.calls import HAS_DELAY, HAS_DELIVER_AT, HAS_REPLY_TO
from producer_proxy.admission.lag import Depths
from producer_proxy.admission.rate_limits import Passage
from producer_proxy.admission.rules import has_rules

FEATURE_FLAGS = {"delay": HAS_DELIVER_AT | HAS_DELAY, "reply": HAS_REPLY_TO, "cancel": 0}


class Gate:
    """
    Args:
        view: the configuration.
        ask: how the lender of cluster-wide limits is asked; see QuotaSlices.
        queues: called for the QueueLimits of the brokers' lanes as they are now. depths: which topics are backlogged.
    """

    def __init__(self, view, ask, queues, depths: Depths):
        self._view, self._queues, self.depths = view, queues, depths
        self.leases = QuotaSlices("producer_proxy", os.urandom(8).hex(), ask, time.monotonic)
        self.own: Meter | None = None
        self.settings = GateSettings()
        self.follow()

    def follow(self) -> None:
        """Take up the settings of the configuration as it is now. Topics and applications follow when they are next used."""
        self.settings = GateSettings.of(self._view)
        for queue in self._queues():
            queue.queue_s = self.settings.queue_ms / 1000
        self.depths.follow(self._view.topic)
        own = (self.settings.rate_messages, self.settings.rate_bytes)
        self.own = (self.own or Meter()) if any(own) else None
        if self.own is not None:
            self.own.set_rates(*(rate or None for rate in own), time.monotonic())

    def fit(self, destination, topic: TopicDefinition) -> None:
        """Give a destination what its topic's definition asks of the gate."""
        destination.meter = self.topic(topic)
        destination.grade = GRADES.index(topic.grade)
        self.depths.fit(topic)
        is_off = topic.grade in self.settings.grades_off or self.depths.reason(topic.name) is not None
        destination.is_special = is_off or has_rules(topic)

    def tick(self) -> None:
        """Every TICK_S: ask the engine for shares, and who is backlogged."""
        self.leases.tick()
        self.depths.tick()

    def topic(self, topic: TopicDefinition) -> Meter | None:
        """The limit of a topic; None: it has none."""
        return self.leases.meter(f"topic:{topic.name}", topic.rate_messages, topic.rate_bytes)

    def grade_off(self, topic: TopicDefinition) -> str | None:
        """A sentence when an operator has switched the topic's grade off."""
        if topic.grade not in self.settings.grades_off:
            return None
        return f"topics of grade {topic.grade} are switched off by an operator; nothing was stored"

    def feature_off(self, message) -> str | None:
        """A sentence when an operator has switched off what the message asks for."""
        for feature in self.settings.features_off:
            if message.flags & FEATURE_FLAGS[feature] or (feature == "cancel" and message.operation):
                return f"{feature} is switched off by an operator; nothing was stored"
        return None

    def application(self, name: str) -> Meter | None:
        """The limit of an application; None: it has none."""
        found: ApplicationDefinition | None = self._view.application(name)
        return found and self.leases.meter(f"application:{name}", found.rate_messages, found.rate_bytes)

    def passage(self, application: str) -> Passage:
        """The way through the limits for one call of this application."""
        return Passage((self.application(application), self.own), time.monotonic())

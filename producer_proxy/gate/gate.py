"""The gate as one object: the limits of the configuration as meters, kept up to date."""

import os
import time

from common.config.definitions import ApplicationDefinition, TopicDefinition
from common.config.gate_settings import GateSettings
from common.limits import Meter
from common.limits.leases import Leases
from producer_proxy.gate.passage import Passage
from producer_proxy.gate.rules import has_rules


class Gate:
    """
    Args:
        view: the configuration.
        ask: how the lender of cluster-wide limits is asked; see Leases.
    """

    def __init__(self, view, ask):
        self._view = view
        self.leases = Leases("producer_proxy", os.urandom(8).hex(), ask, time.monotonic)
        self.own: Meter | None = None
        self.settings = GateSettings()
        self.follow()

    def follow(self) -> None:
        """Take up the settings of the configuration as it is now. Topics and applications follow when they are next used."""
        self.settings = GateSettings.of(self._view)
        own = (self.settings.rate_messages, self.settings.rate_bytes)
        self.own = (self.own or Meter()) if any(own) else None
        if self.own is not None:
            self.own.set_rates(*(rate or None for rate in own), time.monotonic())

    def fit(self, destination, topic: TopicDefinition) -> None:
        """Give a destination what its topic's definition asks of the gate."""
        destination.meter = self.topic(topic)
        destination.is_special = has_rules(topic)

    def topic(self, topic: TopicDefinition) -> Meter | None:
        """The limit of a topic; None: it has none."""
        return self.leases.meter(f"topic:{topic.name}", topic.rate_messages, topic.rate_bytes)

    def application(self, name: str) -> Meter | None:
        """The limit of an application; None: it has none."""
        found: ApplicationDefinition | None = self._view.application(name)
        return found and self.leases.meter(f"application:{name}", found.rate_messages, found.rate_bytes)

    def passage(self, application: str) -> Passage:
        """The way through the limits for one call of this application."""
        return Passage((self.application(application), self.own), time.monotonic())

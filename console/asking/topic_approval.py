"""From a decision to the configuration: writes the topic of an approved request by the verb behind `penstock topic create`.

Steps: requested → approved (compare-and-set) → the topic (a put with expected version 0) → applied. A process that dies
between two of them leaves an approved request, which `resume` tries again.
"""

import logging
from typing import Any

from common.admin import topics
from common.admin.administrator import Administrator
from common.admin.topics import TopicSettings
from common.clock import Clock
from common.config.definitions import TopicDefinition
from common.config.errors import ConfigError, VersionConflict
from common.config.store import ConfigStore
from common.errors import PenstockError
from console.database.action_log import Actor
from console.database.topic_requests import APPLIED, APPROVED, REQUESTED, TopicRequest, TopicRequests
from console.errors import RequestConflict

log = logging.getLogger("penstock.console")
KEEPER, POLICY = Actor("(console)", ""), Actor("(policy)", "")
"""Authors that are no person; no account can have such a name."""
RESUMED_MAX = 100


class TopicApproval:
    def __init__(self, requests: TopicRequests, store: ConfigStore, clock: Clock) -> None:
        self._requests, self._store, self._clock = requests, store, clock

    def approve(self, actor: Actor, request_id: int, version: int, reason: str) -> None:
        """Approve a request that waits, and apply it.

        Raises:
            RequestConflict: another decision was faster.
            ConfigError: it is approved, and the topic is not known to be written; `resume` tries again.
        """
        request = self._requests.get(request_id)
        if request is not None and request.base_version is not None:
            self._check_base(request.topic, request.base_version)
        self._requests.move(actor, request_id, (REQUESTED, version), APPROVED, reason)
        self.apply(actor, request_id)

    def _check_base(self, topic: str, base_version: int) -> None:
        """Raise RequestConflict for a change of settings that are not the present ones any more; ConfigError."""
        found = self._store.get("topic", topic)
        if found is None or found.version != base_version:
            raise RequestConflict(
                f"Topic {topic} {'is gone' if found is None else 'was changed'} since this was asked for: look at the request "
                "again, with its present settings."
            )

    def apply(self, actor: Actor, request_id: int) -> None:
        """Write the topic of an approved request. Without one in this state nothing happens. Raises ConfigError."""
        request = self._requests.get(request_id)
        if request is None or request.state != APPROVED:
            return
        admin = Administrator(self._store, f"console:{actor.name}", self._clock)
        try:
            topic_version = self._write(admin, request)
            kind_version = self._store.version(("topic",))["topic"]
        except ConfigError as error:
            self._requests.note_problem(request.id, request.version, str(error))
            raise
        written: dict[str, Any] = {"topic_version": topic_version, "kind_version": kind_version}
        self._requests.move(actor, request.id, (APPROVED, request.version), APPLIED, "", **written)

    def resume(self) -> None:
        """Try the approved requests again. Errors are noted at the request and logged."""
        for request in self._requests.list((APPROVED,), limit=RESUMED_MAX):
            try:
                self.apply(KEEPER, request.id)
            except RequestConflict:
                pass  # a person has tried it at the same time
            except PenstockError as error:
                log.warning("request=%d: approved, but not applied: %s", request.id, error)

    def _write(self, admin: Administrator, request: TopicRequest) -> int:
        """Create the topic and return its version. One that exists exactly as asked for is ours: the answer was lost."""
        settings = TopicSettings(**request.settings)
        if request.base_version is not None:
            return self._change(admin, request, settings)
        try:
            topics.create(admin, [request.topic], settings)
        except VersionConflict:
            found, version = topics.show(admin, request.topic)
            if _settings(found) != _settings(TopicDefinition.from_value(request.topic, request.settings)):
                raise
            return version
        return topics.show(admin, request.topic)[1]

    def _change(self, admin: Administrator, request: TopicRequest, settings: TopicSettings) -> int:
        """Change the topic and return its version. One that has exactly these settings is ours: the answer was lost."""
        try:
            topics.set_topic(admin, request.topic, settings, request.base_version)
        except VersionConflict:
            found, version = topics.show(admin, request.topic)
            wanted = TopicDefinition.from_value(request.topic, {**(request.base or {}), **request.settings})
            if _settings(found) != _settings(wanted):
                raise
            return version
        return topics.show(admin, request.topic)[1]


def _settings(topic: TopicDefinition) -> dict[str, object]:
    return {name: value for name, value in topic.to_value().items() if name != "made_ms"}

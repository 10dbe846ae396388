"""From a decision to the configuration: writes what an approved request asks for, by the verbs behind the commands.

Steps: requested → approved (compare-and-set) → the writes (each of them a compare-and-set) → applied. A process that
dies between two of them leaves an approved request, which `resume` tries again.
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import Connection

from common.admin.administrator import Administrator
from common.clock import Clock
from common.config.errors import ConfigError
from common.config.store import ConfigStore
from common.errors import PenstockError
from console.asking import consumption_writing, topic_writing
from console.asking.topic_writing import is_new_in_kafka
from console.database.action_log import Actor
from console.database.user_requests import (
    APPLIED,
    APPROVED,
    CONSUMPTION,
    REQUESTED,
    TOPIC,
    UserRequest,
    UserRequests,
)
from console.errors import RequestConflict
from console.installation.topics_in_kafka import TopicsInKafka

log = logging.getLogger("penstock.console")
KEEPER, POLICY = Actor("(console)", ""), Actor("(policy)", "")
"""Authors that are no person; no account can have such a name."""
RESUMED_MAX = 100
KAFKA_GAP_S = 60.0
NO_HOMES = TopicsInKafka(())


class RequestWriter(NamedTuple):
    """Attributes: write: writes what was asked for, and returns its version; kinds: of the configuration that change."""

    write: Callable[[Administrator, UserRequest], int]
    kinds: tuple[str, ...]


WRITERS = {
    TOPIC: RequestWriter(topic_writing.write, topic_writing.KINDS),
    CONSUMPTION: RequestWriter(consumption_writing.write, consumption_writing.KINDS),
}


class RequestApproval:
    def __init__(
        self, requests: UserRequests, store: ConfigStore, clock: Clock, homes: TopicsInKafka = NO_HOMES
    ) -> None:  # fmt: skip
        self._requests, self._store, self._clock, self._homes = requests, store, clock, homes
        self._tried_s: dict[int, float] = {}  # by request: when a topic in Kafka was tried last

    def approve(
        self,
        actor: Actor,
        request_id: int,
        version: int,
        reason: str,
        check: Callable[[Connection], None] | None = None,
    ) -> None:
        """Approve a request that waits, and apply it.

        Args:
            check: called in the transaction of the decision; what it raises ends it, and nothing is changed.
        Raises:
            RequestConflict: another decision was faster.
            ConfigError: it is approved, and not known to be written; `resume` tries again.
        """
        request = self._requests.get(request_id)
        if request is not None and request.base_version is not None:
            self._check_base(request, request.base_version)
        self._requests.move(actor, request_id, (REQUESTED, version), APPROVED, reason, check)
        self.apply(actor, request_id)

    def _check_base(self, request: UserRequest, base_version: int) -> None:
        """Raise RequestConflict for a change of settings that are not the present ones any more; ConfigError."""
        kind, _, name = request.subject.partition(" ")
        found = self._store.get(kind, name)
        if found is None or found.version != base_version:
            raise RequestConflict(
                f"{kind.capitalize()} {name} {'is gone' if found is None else 'was changed'} since this was asked for: "
                "look at the request again, with its present settings."
            )

    def apply(self, actor: Actor, request_id: int) -> None:
        """Write what an approved request asks for. Without one in this state nothing happens. Raises ConfigError."""
        request = self._requests.get(request_id)
        if request is None or request.state != APPROVED:
            return
        admin = Administrator(self._store, f"console:{actor.name}", self._clock)
        writer = WRITERS[request.kind]
        try:
            if is_new_in_kafka(request):
                self._tried_s[request.id] = self._clock.monotonic_s()
                self._create_in_kafka(admin, actor, request)
            written_version = writer.write(admin, request)
            numbers = self._store.version(writer.kinds)
        except ConfigError as error:
            self._requests.note_problem(request.id, request.version, str(error))
            raise
        kind_versions = {kind: numbers[kind] for kind in writer.kinds}
        written: dict[str, Any] = {"written_version": written_version, "kind_versions": kind_versions}
        try:
            self._requests.move(actor, request.id, (APPROVED, request.version), APPLIED, "", **written)
        except RequestConflict:
            found = self._requests.get(request.id)
            if found is None or found.state != APPLIED:  # else the keeper has written the same at the same moment
                raise

    def _create_in_kafka(self, admin: Administrator, actor: Actor, request: UserRequest) -> None:
        """The definition, by a command that asks Kafka; `write` compares it then. One that exists is left as it is."""
        if not self._store.taken(TOPIC, [request.name]):
            self._homes.create(actor.name, request.name, request.settings)

    def resume(self) -> None:
        """Try the approved requests again. Errors are noted at the request and logged."""
        now_s = self._clock.monotonic_s()
        for request in self._requests.list((APPROVED,), limit=RESUMED_MAX):
            if is_new_in_kafka(request) and now_s - self._tried_s.get(request.id, -KAFKA_GAP_S) < KAFKA_GAP_S:
                continue  # each attempt is a process
            try:
                self.apply(KEEPER, request.id)
            except RequestConflict:
                pass  # a person has tried it at the same time
            except PenstockError as error:
                log.warning("request=%d: approved, but not applied: %s", request.id, error)

"""The world of one plan: gathers the facts from configuration, Kafka and engine, and performs work items.

Every work item reads what is, does what is missing and writes by compare-and-set. A conflict is no error: the next
facts show what another writer has done.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from common.admin.administrator import Administrator
from common.config.applying import laggards
from common.config.definitions import (
    CopyDefinition,
    CopyInDefinition,
    CopyOutDefinition,
    CutRecord,
    GroupDefinition,
    TopicDefinition,
)
from common.config.definitions.copies import copy_in_claim
from common.config.ended_fences import topic_in
from common.config.errors import VersionConflict
from common.config.store import ConfigStore
from common.config.text_values import ENGINE_HOME, KAFKA_HOME
from common.kafka.base import ClusterAdmin, KafkaTopic, PartitionReader
from common.kafka.errors import KafkaFault
from common.kafka.group_admin import CommittedPosition, GroupAdmin
from common.kafka.records import Partition
from common.shared_reads import hidden_topic
from engine.link.copy import SourceState
from kafka_bridge.copy_out.page import EngineTopic
from kafka_bridge.copy_out.positions import CopiedPositions, position_group, topic_of
from kafka_bridge.source_identity import source_of
from migration import dual_reads, effects
from migration.copied_tails import ComingCopy, ReturningCopy, TailChecks
from migration.engine_protocol import EngineSide, no_groups, no_reader
from migration.entries import marks
from migration.errors import PlanRefused
from migration.facts import IN_ENGINE, IN_KAFKA, MISSING, Facts, TopicFacts
from migration.journals import journal_facts, unsent
from migration.kafka_groups import UnnamedGroups, unnamed_groups
from migration.kafka_sources import KafkaSources, SourcesSeen
from migration.plan import DOUBLE_READ, DOUBLE_WRITE, MIRROR, MigrationPlan
from migration.positions import BOTH_HAVE, CopiedTopic, KafkaEnds, kafka_ends, next_offsets, padded, source_faults
from migration.send_errors import SendErrors, read_send_errors
from migration.states import Do, PlanState
from migration.tails import CopyTails

GROUPS_ASKED_MAX = 100_000


class Deployment:
    """
    Args:
        kafka: opens the plan's cluster at the first use.
        engine: of its queues.
        tails: moves positions over what holds nothing to copy; None: they stay.
        progress: called with a sentence after each effect.
        send_errors: reads the outcomes of sends.
        open_reader: opens a reader of Kafka's committed records, where a copy back has lost its position.
        open_groups: opens a client that asks Kafka for many groups.
    """

    def __init__(
        self, admin: Administrator, plan: MigrationPlan, kafka: Callable[[], ClusterAdmin], engine: EngineSide,
        progress: Callable[[str], object] = lambda sentence: None, tails: CopyTails | None = None,
        send_errors: Callable[[ConfigStore, Collection[str]], SendErrors] = read_send_errors,
        open_reader: Callable[[], PartitionReader] = no_reader, open_groups: Callable[[], GroupAdmin] = no_groups,
    ) -> None:  # fmt: skip
        self._tails, self._send_errors = tails, send_errors
        self._open_reader, self._open_groups = open_reader, open_groups
        self._back: CopiedPositions | None = None
        self._admin, self._plan, self._kafka, self._engine, self._progress = admin, plan, kafka, engine, progress
        self._sources = KafkaSources(kafka, plan.cluster)
        self._checks = TailChecks(kafka, open_reader, engine)

    @property
    def _store(self) -> ConfigStore:
        return self._admin.store

    def facts(
        self, with_positions: bool, with_claims: bool = False, with_leftovers: bool = False, with_errors: bool = False,
        with_policies: bool = False, with_groups: bool = False, with_tails: bool = False,
    ) -> Facts:  # fmt: skip
        """The facts, as of one time or later.

        Args:
            with_positions: ask Kafka and the engine, too.
            with_claims: ask what bridges copy.
            with_leftovers: ask the engine for delayed messages and dead letters.
            with_errors: ask the producer proxies for the outcomes of sends.
            with_policies: ask Kafka for the topics' policies.
            with_groups: ask Kafka for groups that read the topics and are not in the plan.
            with_tails: compare what was copied last on both sides, and read the last records of a double read; only with
                positions.
        """
        store, names = self._store, self._plan.topic_names
        version = store.version()  # before the entries: who has applied it has applied what is read here
        held = marks(store, names)
        topics = {name: self._configured(name, held.get(name, "")) for name in names}
        open_sends = unsent(store, version)  # before the positions, which have all whose outcome is reported here
        if with_positions:
            topics = self._with_positions(topics, with_tails)
            topics = dual_reads.with_lags(topics, self._kafka(), self._engine)
        if with_claims:
            topics = {name: replace(each, is_being_copied=self._is_being_copied(name)) for name, each in topics.items()}
        if with_leftovers:
            topics = self._with_leftovers(topics)
        if with_policies:
            configs = self._kafka().configs([*self._kafka().topics(names)])
            topics = {
                n: replace(each, policy=configs.get(n, {}).get("cleanup.policy") or "") for n, each in topics.items()
            }
        cut_ms = max(each.cut_ms for each in topics.values())
        soaked_ms = max(0, self._admin.clock.now_ms() - cut_ms) if cut_ms else 0
        found = Facts(topics, tuple(laggards(store, version)), open_sends, soaked_ms=soaked_ms)
        if with_errors:
            found = replace(found, errors=self._send_errors(store, names))
        if with_groups:
            found = replace(found, unnamed=self._unnamed())
        if self._plan.recipe != DOUBLE_WRITE:
            return found
        return replace(found, **journal_facts(store, names, version)._asdict())

    def _unnamed(self) -> UnnamedGroups:
        topics = self._kafka().topics(self._plan.topic_names)
        with closing(self._open_groups()) as groups:
            counts = {name: each.partitions for name, each in topics.items()}
            return unnamed_groups(groups, counts, self._plan.groups)

    def _with_leftovers(self, topics: Mapping[str, TopicFacts]) -> dict[str, TopicFacts]:
        hidden = {
            name: [hidden_topic(each, name) for each in self._plan.groups if self._plan.recipe == DOUBLE_READ]
            for name in topics
        }
        groups = {*self._plan.groups, *self._store.names(GroupDefinition.kind, limit=GROUPS_ASKED_MAX)}
        wanted = [*topics, *(each for some in hidden.values() for each in some)]
        dead = self._engine.dead_letters(wanted, groups)
        return {
            name: replace(
                each, delayed=self._engine.delayed(name),
                dead=tuple(found for at in (name, *hidden[name]) for found in dead.get(at, ())),
            )
            for name, each in topics.items()
        }  # fmt: skip

    def _configured(self, name: str, mark: str) -> TopicFacts:
        definition, plan = self._definition(name), self._plan
        home, cut = MISSING, None
        if definition is not None:
            home, cut = IN_KAFKA if definition.home == KAFKA_HOME + plan.cluster else IN_ENGINE, definition.cut
        fence = definition.fence if definition is not None else None
        secondary = MISSING
        if definition is not None and definition.secondary:
            secondary = IN_ENGINE if definition.secondary == ENGINE_HOME else IN_KAFKA
        return TopicFacts(
            mark=mark, home=home, secondary=secondary,
            is_moved=home == IN_ENGINE and mark == plan.name and cut is not None and cut.plan == plan.name,
            fence=fence.id if fence is not None and fence.plan == plan.name else "",
            has_copy_in=self._has_copy(CopyInDefinition, name), has_copy_out=self._has_copy(CopyOutDefinition, name),
            has_copy_start=definition is not None and bool(definition.copy_from),
            cut_ms=cut.at_ms if cut is not None else 0, cut_firsts=cut.engine_firsts if cut is not None else (),
            kafka_firsts=cut.kafka_ends if cut is not None else (),
            groups=dual_reads.group_facts(self._admin, plan, name) if plan.recipe == DOUBLE_READ else (),
        )  # fmt: skip

    def _definition(self, name: str) -> TopicDefinition | None:
        return topic_in(self._store, name)

    def _has_copy(self, kind: type[CopyDefinition], name: str) -> bool:
        found = self._store.get(kind.kind, name)
        return found is not None and found.value.get("plan") == self._plan.name

    def _is_being_copied(self, name: str) -> bool:
        """Whether a bridge has the claim of the copy from Kafka."""
        claim = copy_in_claim(self._plan.cluster, name, name)
        if not self._store.claim(claim):
            return True
        self._store.release(claim)
        return False

    def _with_positions(self, topics: Mapping[str, TopicFacts], with_tails: bool) -> dict[str, TopicFacts]:
        definitions = {name: each for name in topics if (each := self._definition(name)) is not None}
        asked = {name: CopiedTopic(name, each.made_ms, each.queues) for name, each in definitions.items()}
        seen = self._sources.look(asked)
        returned = self._returned(topics, with_tails and self._plan.recipe == MIRROR)
        copied = self._engine.copied([] if self._plan.recipe == DOUBLE_READ else list(asked.values()))
        kafka = kafka_ends(self._kafka(), seen.partitions(asked))
        found = {
            name: self._from_kafka(each, definitions.get(name), seen, copied, kafka) for name, each in topics.items()
        }
        positions = self._passed(asked, found, copied, kafka)
        coming: list[ComingCopy] = []
        back: list[ReturningCopy] = []
        for name, topic in asked.items():
            rows = copied.get(name, [])
            known = bool(rows) and all(each.number for each in rows) and not found[name].foreign
            found[name] = replace(
                found[name], **_of_sources(rows),
                copied_in=tuple(positions[Partition(name, n)] for n in range(topic.queues)) if known else (),
                **self._uncopied(name, positions, found[name].losses) if known and self._tails is not None else {},
            )  # fmt: skip
            is_moved = topics[name].is_moved and self._plan.recipe == MIRROR
            if known and not found[name].secondary and (is_moved or found[name].home == IN_KAFKA):
                coming.append(self._coming(topic, seen.topics[name], rows, definitions[name].cut, is_moved))
            if self._plan.recipe == DOUBLE_WRITE:
                held = self._engine.ends(topic)
                found[name] = replace(found[name], engine_ends=tuple(held.get(n, 0) for n in range(topic.queues)))
            elif topics[name].is_moved:
                cut = definitions[name].cut or _no_cut(name)
                copied_out = {}
                if self._back is not None and name in seen.topics and (topics[name].has_copy_out or with_tails):
                    places = {each.number: EngineTopic(*at) for each, at in self._engine.places(topic, rows).items()}
                    copied_out = self._back.of(seen.topics[name], places, returned, cut)
                    back.append(ReturningCopy(topic, seen.topics[name], places, copied_out, returned, cut, rows))
                held = self._engine.ends(topic)  # after the positions: none is beyond it
                firsts = {n: cut.engine_first(n) for n in range(topic.queues)}
                found[name] = replace(
                    found[name], engine_ends=tuple((firsts | held).values()),
                    copied_out=() if self._plan.recipe == DOUBLE_READ else tuple((firsts | copied_out).values()),
                )  # fmt: skip
        tails = {**self._checks.coming(coming), **self._checks.returning(back)} if with_tails else {}
        if with_tails and self._plan.recipe == DOUBLE_READ:
            self._checks.may_read(seen.partitions(asked), self._plan.groups)
        return {name: replace(each, tail=tails.get(name, "")) for name, each in found.items()}

    def _coming(
        self, topic: CopiedTopic, kafka_topic: KafkaTopic, rows: Sequence[SourceState], cut: CutRecord | None, is_moved: bool
    ) -> ComingCopy:  # fmt: skip
        is_of_plan = cut is not None and cut.plan == self._plan.name and self._plan.recipe == MIRROR
        rolled_back = cut if is_of_plan and not is_moved else None
        places = {each.number: EngineTopic(*at) for each, at in self._engine.places(topic, rows).items()}
        return ComingCopy(topic, kafka_topic, rows, is_moved, rolled_back, places)

    def _uncopied(self, name: str, positions: Mapping[Partition, int], losses: Mapping[int, str]) -> dict[str, Any]:
        """Facts about the next records of copies that stand."""
        assert self._tails is not None
        unstorable = self._tails.unstorable(name, positions)
        return {"uncopied": self._tails.uncopied(name, positions), "losses": {**unstorable, **losses}}

    def _from_kafka(
        self, topic: TopicFacts, definition: TopicDefinition | None, seen: SourcesSeen,
        copied: Mapping[str, Sequence[SourceState]], kafka: KafkaEnds,
    ) -> TopicFacts:  # fmt: skip
        """The topic with its ends in Kafka, and whether it is there what the plan's figures belong to."""
        if definition is None:
            return topic
        name, has_copy = definition.name, not topic.secondary
        rows = copied.get(name, ()) if has_copy else ()
        foreign = self._sources.foreign(name, seen, rows, definition.cut if topic.is_moved or not has_copy else None)
        ends = kafka.ends.get(name, ())
        losses = {} if foreign else self._sources.losses(name, seen, rows, ends)
        return replace(
            topic, foreign=foreign, losses=losses, kafka_id=str(seen.topics[name].id) if name in seen.topics else "",
            kafka_ends=padded(ends, definition.queues),
            stable_ends=padded(kafka.stable.get(name, ()), definition.queues), queues=definition.queues,
            partitions=seen.topics[name].partitions if name in seen.topics else definition.queues,
        )  # fmt: skip

    def _returned(self, topics: Mapping[str, TopicFacts], with_tails: bool) -> dict[Partition, CommittedPosition]:
        """The committed positions of the copies back."""
        if not any(each.has_copy_out or (with_tails and each.is_moved) for each in topics.values()):
            return {}
        if self._back is None:
            self._back = CopiedPositions(self._kafka, self._open_reader, position_group(self._plan.name))
        return self._back.committed()

    def _passed(
        self, asked: Mapping[str, CopiedTopic], topics: Mapping[str, TopicFacts],
        copied: Mapping[str, Sequence[SourceState]], kafka: KafkaEnds,
    ) -> dict[Partition, int]:  # fmt: skip
        """The positions of the copies, moved over what holds nothing to copy. Those that stand still are not moved."""
        positions = next_offsets(copied)
        if self._tails is None:
            return positions
        going = {
            each: at for each, at in positions.items()
            if not (topics[each.topic].secondary or topics[each.topic].foreign or each.number in topics[each.topic].losses)
            and each.number < len(kafka.stable.get(each.topic, ()))
        }  # fmt: skip
        places = {
            at: place for name, rows in copied.items() for at, place in self._engine.places(asked[name], rows).items()
        }
        return positions | self._tails.passed(
            going, {each: kafka.stable[each.topic][each.number] for each in going}, places
        )

    def perform(self, item: Do, state: PlanState) -> None:
        """Do a work item. A conflict with another writer ends it early, without an error."""
        try:
            self._effect(item, state)
        except VersionConflict as conflict:
            self._progress(f"{item.work}: {conflict}: looking again")
            return
        self._progress(f"{item.work}: {len(item.topics):,} topics")

    def _effect(self, item: Do, state: PlanState) -> None:
        admin, plan, names = self._admin, self._plan, item.topics
        match item.work:
            case "mark":
                effects.mark(admin, plan, names)
            case "unmark":
                effects.unmark(admin, plan, names)
            case "entries":
                effects.create_entries(admin, plan, names, self._kafka())
            case "copy_in":
                effects.create_copies(admin, plan, CopyInDefinition, names)
            case "copy_out":
                effects.create_copies(admin, plan, CopyOutDefinition, names)
            case "no_copy_in":
                effects.delete_copies(admin, plan, CopyInDefinition, names)
            case "no_copy_out":
                effects.delete_copies(admin, plan, CopyOutDefinition, names)
                self._forget_positions()
            case "fence":
                effects.set_fences(admin, plan, names, state.fence_id)
            case "lift":
                effects.lift_fences(admin, plan, names)
            case "switch":
                effects.switch(admin, plan, names, state, self._cut_places(names, state))
            case "pair":
                effects.pair(admin, plan, names, state, self._cut_places(names, state))
            case "unpair":
                effects.unpair(admin, plan, names)
            case "rebase":
                self._rebase(names, state)
            case "dual_reads":
                dual_reads.create(admin, plan, names, self._kafka())
            case "leave":
                dual_reads.leave(admin, plan, names)
            case "rearm":
                dual_reads.arm(admin, plan, names)
            case "no_dual_reads":
                dual_reads.delete(admin, plan, names)
            case "copy_start":
                dual_reads.set_copy_start(admin, names, self._kafka())
            case other:
                raise AssertionError(f"no work item is called {other}")

    def _cut_places(self, names: tuple[str, ...], state: PlanState) -> dict[str, effects.CutPlace]:
        """The places where the sides meet, by topic: of the side that is left as the state has it, of the other one as it is.

        Raises PlanRefused: the topic in Kafka is another one than that of the state's ends, or is not there.
        """
        topics = self.facts(with_positions=True).topics
        for each in (topics[name] for name in names):
            if each.foreign and not (state.is_leaving_engine and each.kafka_id):
                raise PlanRefused(each.foreign)
        ids = {name: topics[name].kafka_id for name in names}
        if self._plan.recipe == DOUBLE_WRITE:
            return {name: effects.CutPlace(ids[name], state.ends[name], topics[name].engine_ends) for name in names}
        if state.is_leaving_engine:
            return {name: effects.CutPlace(ids[name], topics[name].kafka_ends, state.ends[name]) for name in names}
        firsts = {n: effects.own_firsts(topics[n].copied_ends, self._definition(n), ids[n]) for n in names}
        if self._plan.recipe == DOUBLE_READ:
            firsts = {name: self._engine_ends(name, len(state.ends[name])) for name in names}
        return {name: effects.CutPlace(ids[name], state.ends[name], firsts[name]) for name in names}

    def _engine_ends(self, name: str, queues: int) -> tuple[int, ...]:
        definition = self._definition(name)
        held = self._engine.ends(CopiedTopic(name, definition.made_ms if definition else 0, queues))
        return tuple(held.get(number, 0) for number in range(queues))

    def _forget_positions(self) -> None:
        """Delete the group of the copies back. It is only tidy: their positions say what they are positions of."""
        try:
            self._kafka().delete_groups([position_group(self._plan.name)])
        except KafkaFault as fault:
            self._progress(f"group {position_group(self._plan.name)} stays in Kafka: {fault}")

    def _rebase(self, names: tuple[str, ...], state: PlanState) -> None:
        """Have the copies go on behind what both sides have."""
        for name in names:
            if (definition := self._definition(name)) is not None:
                topic, ends = CopiedTopic(name, definition.made_ms, definition.queues), state.ends[name]
                found = topic_of(self._kafka(), name)
                sources = [source_of(self._kafka().describe().cluster_id, found, n) for n in range(topic.queues)]
                self._engine.rebase(topic, sources, ends, f"plan {self._plan.name}: {BOTH_HAVE}")


def _of_sources(rows: Sequence[SourceState]) -> dict[str, Any]:
    """Facts that the states of a topic's sources tell."""
    return {
        "faults": source_faults(rows), "copied_ends": tuple(each.end for each in rows),
        "copied_firsts": tuple(each.sources[0].first if each.sources else 0 for each in rows),
        "copy_nexts": tuple(each.next for each in rows),
    }  # fmt: skip


def _no_cut(name: str) -> CutRecord:
    raise AssertionError(f"topic {name}: it is moved, and has no record of its cut")

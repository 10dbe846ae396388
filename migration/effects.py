"""Effects of work items on the configuration. Each leaves alone what is done already, and raises VersionConflict where
another writer was faster: nothing of that change is written then.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from common.admin import administrator as verbs
from common.admin import audit, topics
from common.admin.administrator import Administrator
from common.admin.topics import TopicSettings
from common.config.definitions import CopyDefinition, CutRecord, Fence, TopicDefinition
from common.config.ended_fences import KIND as ENDED
from common.config.ended_fences import forget_ended, without_ended_fence
from common.config.store import Change, Versioned
from common.config.text_values import ENGINE_HOME, KAFKA_HOME
from common.kafka.base import ClusterAdmin
from migration.entries import remove_mark, set_mark
from migration.errors import PlanRefused
from migration.message_sizes import body_bytes_fitting
from migration.plan import DOUBLE_READ, MigrationPlan
from migration.states import PlanState

Names = tuple[str, ...]


class CutPlace(NamedTuple):
    """The offsets where Kafka's and the engine's messages of a topic meet, by queue; the id of the topic in Kafka with those ends."""

    kafka_id: str
    kafka_ends: tuple[int, ...]
    engine_firsts: tuple[int, ...]


def mark(admin: Administrator, plan: MigrationPlan, names: Names) -> None:
    for name in names:
        set_mark(admin.store, name, plan.name)


def unmark(admin: Administrator, plan: MigrationPlan, names: Names) -> None:
    for name in names:
        remove_mark(admin.store, name, plan.name)


def create_entries(admin: Administrator, plan: MigrationPlan, names: Names, kafka: ClusterAdmin) -> None:
    """Entries of topics whose home is the plan's cluster, with as many queues as there are partitions.

    Where messages are copied back, bodies are bounded by what Kafka takes.
    """
    found = kafka.topics(names)
    if missing := [name for name in names if name not in found]:
        raise PlanRefused(f"kafka {plan.cluster}: topic {missing[0]}: not found any more")
    wanted = {name: TopicSettings(queues=found[name].partitions) for name in names}
    if plan.recipe != DOUBLE_READ:
        for name, config in kafka.configs(names).items():
            bound = int(config.get("max.message.bytes") or -1)
            wanted[name] = TopicSettings(queues=found[name].partitions, body_bytes_max=body_bytes_fitting(bound))
    settings = TopicSettings(home=KAFKA_HOME + plan.cluster, id_window_ms=0)
    topics.create(admin, wanted, settings, skip_existing=True)


def create_copies(admin: Administrator, plan: MigrationPlan, kind: type[CopyDefinition], names: Names) -> None:
    """Raises PlanRefused: a copy that is not the plan's is there."""
    if taken := admin.store.taken(kind.kind, names):
        foreign = [name for name in taken if (each := admin.store.get(kind.kind, name)) and _plan_of(each) != plan.name]
        if foreign:
            raise PlanRefused(f"{kind.kind} {foreign[0]}: a copy that is not of this plan: end it first")
    made = [kind(name, cluster=plan.cluster, plan=plan.name) for name in names if name not in taken]
    if made:
        verbs.create(admin, made)


def _plan_of(entry: Versioned) -> str:
    return str(entry.value.get("plan", ""))


def delete_copies(admin: Administrator, plan: MigrationPlan, kind: type[CopyDefinition], names: Names) -> None:
    for name in names:
        found = admin.store.get(kind.kind, name)
        if found is not None and _plan_of(found) == plan.name:
            verbs.delete(admin, kind, name)


def set_fences(admin: Administrator, plan: MigrationPlan, names: Names, fence_id: str) -> None:
    fence = Fence(plan.name, fence_id, plan.limits.fence_s * 1000)
    forget_ended(admin.store, names)  # a plan of the same name may have had a fence of this id
    _change(admin, "fence", names, lambda old: replace(old, fence=fence))


def own_firsts(copied_ends: Sequence[int], topic: TopicDefinition | None, kafka_id: str) -> tuple[int, ...]:
    """The first offset of the engine's own messages after a cut, by queue.

    They begin after the last record that was copied from Kafka. Where none has come since a rollback, they begin where the
    rollback's record says: what lies below, also messages of the engine's own, is in the same topic in Kafka.
    """
    cut = topic.cut if topic is not None else None
    if cut is None or cut.kafka_topic_id != kafka_id:
        return tuple(copied_ends)
    return tuple(max(end, cut.engine_first(queue)) for queue, end in enumerate(copied_ends))


def lift_fences(admin: Administrator, plan: MigrationPlan, names: Names) -> None:
    """Remove the plan's fences."""

    def lifted(old: TopicDefinition) -> TopicDefinition:
        return replace(old, fence=None) if old.fence is not None and old.fence.plan == plan.name else old

    _change(admin, "lift", names, lifted)


def switch(
    admin: Administrator, plan: MigrationPlan, names: Names, state: PlanState, places: Mapping[str, CutPlace]
) -> None:  # fmt: skip
    """Change the home, write the record of the cut and remove the fence, in one change per topic.

    A topic whose fence is gone is left as it is: the next facts show it, and the course begins again.
    """
    home = KAFKA_HOME + plan.cluster if state.is_leaving_engine else ENGINE_HOME
    now_ms = admin.clock.now_ms()

    def moved(old: TopicDefinition) -> TopicDefinition:
        if old.fence is None or old.fence.id != state.fence_id or old.home == home:
            return old
        epoch = old.cut.epoch + 1 if old.cut is not None else 1
        record = CutRecord(plan.name, epoch, now_ms, plan.cluster, *places[old.name])
        secondary = old.home if old.secondary else ""
        return replace(old, home=home, secondary=secondary, fence=None, cut=record)

    _change(admin, "cut", [name for name in names if name in places], moved)


def pair(
    admin: Administrator, plan: MigrationPlan, names: Names, state: PlanState, places: Mapping[str, CutPlace]
) -> None:  # fmt: skip
    """Give topics with the plan's fence the engine as their secondary, and record the place. The fence stays."""
    now_ms = admin.clock.now_ms()

    def paired(old: TopicDefinition) -> TopicDefinition:
        if old.fence is None or old.fence.id != state.fence_id or old.secondary:
            return old
        epoch = old.cut.epoch + 1 if old.cut is not None else 1
        record = CutRecord(plan.name, epoch, now_ms, plan.cluster, *places[old.name])
        return replace(old, secondary=ENGINE_HOME, cut=record)

    _change(admin, "pair", [name for name in names if name in places], paired)


def unpair(admin: Administrator, plan: MigrationPlan, names: Names) -> None:
    """Take the secondary and the plan's fence away, of topics that have that fence, in one change per topic."""

    def single(old: TopicDefinition) -> TopicDefinition:
        if old.fence is None or old.fence.plan != plan.name:
            return old
        return replace(old, secondary="", fence=None)

    _change(admin, "unpair", names, single)


def _change(
    admin: Administrator, action: str, names: "list[str] | Names", new: Callable[[TopicDefinition], TopicDefinition]
) -> None:
    """Replace topics' definitions in one step, those of topics whose fence has ended without it.

    Raises VersionConflict, also when a fence ends meanwhile, and InvalidDefinition: nothing was written.
    """
    changes, seen = [], {ENDED: admin.store.index(ENDED)}
    for name in names:
        found = admin.store.get("topic", name)
        if found is None:
            continue
        old = TopicDefinition.from_value(name, found.value)
        ended = admin.store.get(ENDED, name) if old.fence is not None else None
        before = without_ended_fence(old, ended.value if ended is not None else None)
        made = TopicDefinition.from_value(name, new(before).to_value())
        if made != old:
            changes.append(Change(name, made.to_value(), found.version))
    if changes:
        admin.store.put_many("topic", changes, seen)
        shown = dict(changes[0].value or {})
        audit.record(admin.store, admin.clock, admin.who, action, "topic", [each.name for each in changes], None, shown)

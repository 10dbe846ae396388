"""Topics: create, list, show, set, delete."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from common.admin import administrator as verbs
from common.admin import placing
from common.admin.administrator import Administrator, OnUnreadable
from common.admin.errors import AlreadyExist, StateConflict
from common.config.definitions import TopicDefinition
from common.config.errors import InvalidDefinition, VersionConflict
from common.config.setting import Changes
from common.config.text_values import kafka_cluster_of
from common.quoting import quoted

FAULTS_MAX = 10  # shown of a bulk creation
DELETED = "deleted-topics"


class TopicSettings(Changes):
    """Settings of a topic or a family."""

    definition = TopicDefinition


def create(
    admin: Administrator,
    names: Iterable[str] | Mapping[str, TopicSettings],
    settings: TopicSettings,
    skip_existing: bool = False,
) -> list[TopicDefinition]:
    """Create topics, up to some 100,000 at once, and return the created ones.

    Args:
        names: with a mapping, the settings of a name override `settings`.
        skip_existing: leave existing topics as they are.
    Raises:
        InvalidDefinition: with the faults of all names, or a broker group does not exist; nothing was created.
        AlreadyExist: some of them exist; nothing was created.
    """
    made = _definitions(names, settings)
    now_ms = max(admin.clock.now_ms(), _last_deleted_ms(admin) + 1)
    made = [replace(each, made_ms=now_ms) for each in made]
    placing.check_groups_exist(admin, made)
    if skip_existing:
        taken = set(admin.store.taken("topic", [each.name for each in made]))
        made = [each for each in made if each.name not in taken]
    try:
        if made:
            verbs.create(admin, made)
    except VersionConflict as conflict:
        taken_names = admin.store.taken("topic", [each.name for each in made])
        raise AlreadyExist("topic", taken_names, len(made)) from conflict
    return made


def _definitions(names: Iterable[str] | Mapping[str, TopicSettings], settings: TopicSettings) -> list[TopicDefinition]:
    special = names if isinstance(names, Mapping) else {}
    names = dict.fromkeys(names)
    made: list[TopicDefinition] = []
    faults: list[str] = []
    for name in names:
        value = {**settings.given(), **special[name].given()} if name in special else settings.given()
        if kafka_cluster_of(str(value.get("home", ""))) is not None:
            value.setdefault("id_window_ms", 0)  # Kafka finds no repeated ids
        try:
            made.append(TopicDefinition.from_value(name, value))
        except InvalidDefinition as fault:
            if len(names) == 1:
                raise
            texts = (f"{quoted(name)}: {each}" for each in fault.faults)
            faults += [text if len(faults) < FAULTS_MAX else "…" for text in texts]
    if faults:
        raise InvalidDefinition("topics", list(dict.fromkeys(faults)))
    return made


def list_topics(
    admin: Administrator, prefix: str = "", after: str = "", limit: int = 1000,
    on_unreadable: OnUnreadable | None = None,
) -> list[TopicDefinition]:  # fmt: skip
    """See `administrator.page`."""
    return verbs.page(admin, TopicDefinition, prefix, after, limit, on_unreadable)


def show(admin: Administrator, name: str) -> tuple[TopicDefinition, int]:
    return verbs.get(admin, TopicDefinition, name)


def set_topic(
    admin: Administrator, name: str, settings: TopicSettings, seen: int | None = None
) -> TopicDefinition:  # fmt: skip
    """Change a topic's settings.

    Args:
        seen: the version that the change was decided on; another one is a VersionConflict. None: any.
    Raises:
        StateConflict: fewer queues; the messages of the others could not be pulled any more. Or other broker groups,
            while its queues are those of another system.
    """
    return verbs.set_settings(admin, TopicDefinition, name, settings, seen, partial(placing.check_change, admin))


def delete(admin: Administrator, name: str) -> None:
    """Delete the definition, also one that this version cannot read: sends and pulls are rejected from then on.

    Stored messages stay until retention deletes them. A topic that is created again under the name does not have them.

    Raises:
        StateConflict: a migration plan has the topic.
    """
    planned = admin.store.get("migration_topic", name)
    if planned is not None:
        plan = planned.value.get("plan")
        raise StateConflict(f"topic {quoted(name)}: it is in migration plan {plan}: abort or retire that first")
    try:
        made_ms = verbs.get(admin, TopicDefinition, name)[0].made_ms
    except InvalidDefinition:
        made_ms = admin.clock.now_ms()
    _note_deleted(admin, made_ms)
    verbs.delete(admin, TopicDefinition, name)


def _last_deleted_ms(admin: Administrator) -> int:
    found = admin.store.get("setting", DELETED)
    return found.value["made_ms"] if found is not None else 0


def _note_deleted(admin: Administrator, made_ms: int) -> None:
    """Remember the latest creation of a deleted topic: one that is created again has to be later by every clock."""
    for _ in range(verbs.RACES_MAX):
        found = admin.store.get("setting", DELETED)
        if found is not None and found.value["made_ms"] >= made_ms:
            return
        with suppress(VersionConflict):
            admin.store.put("setting", DELETED, {"made_ms": made_ms}, found.version if found else 0)
            return
    raise VersionConflict("setting", DELETED, 0, 0)

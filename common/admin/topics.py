"""Topics: create, list, show, set, delete."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from common.admin import administrator as verbs
from common.admin.administrator import Administrator
from common.admin.errors import AlreadyExist, Refused
from common.config.definitions import TopicDefinition
from common.config.errors import InvalidDefinition, VersionConflict


@dataclass(frozen=True)
class TopicSettings:
    """What a caller may choose; None leaves the default, or what was there."""

    queues: int | None = None
    durability: str | None = None
    body_bytes_max: int | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    buffer: str | None = None
    rate_messages: int | None = None
    rate_bytes: int | None = None
    grade: str | None = None
    body_format: str | None = None
    required_properties: tuple[str, ...] | None = None
    id_window_ms: int | None = None
    delay_ms_max: int | None = None
    required_groups: tuple[str, ...] | None = None
    backlog_messages: int | None = None
    backlog_bytes: int | None = None
    backlog_age_ms: int | None = None

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


def create(
    admin: Administrator,
    names: Iterable[str] | Mapping[str, TopicSettings],
    settings: TopicSettings,
    skip_existing: bool = False,
) -> list[TopicDefinition]:
    """Create topics, 100,000 at once if need be, and return those that were created.

    Args:
        names: with a mapping, what it says of a name goes before `settings`.
        skip_existing: leave those that exist as they are.
    Raises:
        InvalidDefinition: with the faults of all names; nothing was created.
        AlreadyExist: some of them exist; nothing was created.
    """
    made = _definitions(names, settings)
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
    made: list[TopicDefinition] = []
    faults: list[str] = []
    for name in dict.fromkeys(names):
        value = {**settings.given(), **special[name].given()} if name in special else settings.given()
        try:
            made.append(TopicDefinition.from_value(name, value))
        except InvalidDefinition as fault:
            faults += [text if len(faults) < 10 else "…" for text in (f"{name[:64]!r} {each}" for each in fault.faults)]
    if faults:
        raise InvalidDefinition("topics", list(dict.fromkeys(faults)))
    return made


def list_topics(admin: Administrator, prefix: str = "", after: str = "", limit: int = 1000) -> list[TopicDefinition]:
    return [topic for topic, _ in verbs.page(admin, TopicDefinition, prefix, after, limit)]


def show(admin: Administrator, name: str) -> tuple[TopicDefinition, int]:
    return verbs.get(admin, TopicDefinition, name)


def set_topic(admin: Administrator, name: str, settings: TopicSettings) -> TopicDefinition:
    """Change a topic's settings.

    Raises:
        Refused: fewer queues; what lies in the others could not be pulled any more.
    """

    return verbs.change(admin, TopicDefinition, name, lambda old: replace(old, **grown(old, settings)))


def grown(old: TopicDefinition, settings: TopicSettings) -> dict[str, Any]:
    """What to change of a topic or a family. Raises Refused for fewer queues."""
    if settings.queues is not None and 1 <= settings.queues < old.queues:
        raise Refused(f"{old.kind}={old.name}: queues can grow but not shrink; it has {old.queues}")
    return settings.given()


def delete(admin: Administrator, name: str) -> None:
    """Sends and pulls are refused from then on; what is stored stays until retention takes it."""
    verbs.delete(admin, TopicDefinition, name)

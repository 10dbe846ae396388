"""Topics: create, list, show, set, delete."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from common.admin import administrator as verbs
from common.admin.administrator import Administrator
from common.admin.errors import Refused
from common.config.definitions import TopicDefinition
from common.config.errors import InvalidDefinition


@dataclass(frozen=True)
class TopicSettings:
    """What a caller may choose; None leaves the default, or what was there."""

    queues: int | None = None
    durability: str | None = None
    body_bytes_max: int | None = None

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


def create(admin: Administrator, names: Iterable[str], settings: TopicSettings) -> list[TopicDefinition]:
    """Create topics of one make, 100,000 at once if need be.

    Raises:
        InvalidDefinition: with the faults of all names; nothing was created.
        VersionConflict: one of them exists.
    """
    made: list[TopicDefinition] = []
    faults: list[str] = []
    for name in dict.fromkeys(names):
        try:
            made.append(TopicDefinition.from_value(name, settings.given()))
        except InvalidDefinition as fault:
            faults += [text if len(faults) < 10 else "…" for text in (f"{name[:64]!r} {each}" for each in fault.faults)]
    if faults:
        raise InvalidDefinition("topics", list(dict.fromkeys(faults)))
    if made:
        verbs.create(admin, made)
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

    def new(old: TopicDefinition) -> TopicDefinition:
        if settings.queues is not None and 1 <= settings.queues < old.queues:
            raise Refused(f"topic={name}: queues can grow but not shrink; it has {old.queues}")
        return replace(old, **settings.given())

    return verbs.change(admin, TopicDefinition, name, new)


def delete(admin: Administrator, name: str) -> None:
    """Sends and pulls are refused from then on; what is stored stays until retention takes it."""
    verbs.delete(admin, TopicDefinition, name)

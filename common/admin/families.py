"""Families: create, list, show, set, delete. One definition for all topics with a prefix that have none of their own."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice

from common.admin import administrator as verbs
from common.admin.administrator import Administrator
from common.admin.errors import AlreadyExist, Refused
from common.admin.topics import TopicSettings, grown
from common.config.definitions import FamilyDefinition
from common.config.errors import VersionConflict
from common.config.families import Families

FAMILIES_MAX = 1000  # every process parses all of them again when one changes
COUNTED_MAX = 10_000


def create(admin: Administrator, names: Iterable[str], settings: TopicSettings) -> list[FamilyDefinition]:
    """Create families of one make; `names` are prefixes with `*` behind them.

    Raises:
        InvalidDefinition: nothing was created. AlreadyExist: one of them exists; nothing was created.
        Refused: there would be too many.
    """
    made = [FamilyDefinition.from_value(name, settings.given()) for name in dict.fromkeys(names)]
    if admin.store.count("family") + len(made) > FAMILIES_MAX:
        raise Refused(f"families: at most {FAMILIES_MAX}; use shorter prefixes, or topics of their own")
    try:
        verbs.create(admin, made)
    except VersionConflict as conflict:
        taken = admin.store.taken("family", [each.name for each in made])
        raise AlreadyExist("family", taken, len(made)) from conflict
    return made


def list_families(admin: Administrator, prefix: str = "", after: str = "", limit: int = 1000) -> list[FamilyDefinition]:
    return [family for family, _ in verbs.page(admin, FamilyDefinition, prefix, after, limit)]


def show(admin: Administrator, name: str) -> tuple[FamilyDefinition, int]:
    return verbs.get(admin, FamilyDefinition, name)


def defining(admin: Administrator, topic: str) -> FamilyDefinition | None:
    """The family that defines a topic which has no entry of its own."""
    return _all(admin).matching(topic)


def set_family(admin: Administrator, name: str, settings: TopicSettings) -> FamilyDefinition:
    """Change the settings of all its topics, those that exist too. Raises Refused for fewer queues."""
    return verbs.change(admin, FamilyDefinition, name, lambda old: replace(old, **grown(old, settings)))


def delete(admin: Administrator, name: str, born: Callable[[str], Iterable[str]], force: bool = False) -> int:
    """Delete a family; its topics are then defined by a shorter prefix, or unknown. Returns how many of them exist.

    Args:
        born: names of the topics that the engine has, by prefix; asked for no more than the count needs.
        force: also when there are such topics.
    Raises:
        Refused: there are, and `force` was not given.
    """
    family, _ = show(admin, name)
    count = sum(1 for _ in islice(_members(admin, family, born(family.prefix)), COUNTED_MAX))
    if count and not force:
        many = f"{count:,} topics or more" if count == COUNTED_MAX else f"{count:,} topics" if count > 1 else "1 topic"
        raise Refused(f"family={name}: {many} would lose this definition; --force deletes it all the same")
    verbs.delete(admin, FamilyDefinition, name)
    return count


def _members(admin: Administrator, family: FamilyDefinition, topics: Iterable[str]) -> Iterator[str]:
    """Those of `topics` that this family defines: no entry of their own, no longer prefix."""
    families = _all(admin)
    own = set(admin.store.names("topic", family.prefix, limit=1 << 30))
    for topic in topics:
        if topic not in own and (found := families.matching(topic)) and found.name == family.name:
            yield topic


def _all(admin: Administrator) -> Families:
    return Families((name, entry.value) for name, entry in admin.store.entries("family", limit=1 << 30))

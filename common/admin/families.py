"""Families: create, list, show, set, delete.

A family defines all topics with a prefix that have no entry of their own.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from common.admin import administrator as verbs
from common.admin.administrator import Administrator, OnUnreadable
from common.admin.errors import AlreadyExist, StateConflict
from common.admin.topics import TopicSettings
from common.config.definitions import FamilyDefinition
from common.config.errors import VersionConflict
from common.config.families import Families
from common.quoting import thing

FAMILIES_MAX = 1000  # when one changes, every process parses all of them again
COUNTED_MAX = 10_000


def create(admin: Administrator, names: Iterable[str], settings: TopicSettings) -> list[FamilyDefinition]:
    """Create families with the same settings; `names` are prefixes followed by `*`.

    Raises:
        InvalidDefinition: nothing was created. AlreadyExist: one of them exists; nothing was created.
        StateConflict: there would be too many.
    """
    made = [FamilyDefinition.from_value(name, settings.given()) for name in dict.fromkeys(names)]
    if admin.store.count("family") + len(made) > FAMILIES_MAX:
        raise StateConflict(
            f"families: at most {FAMILIES_MAX:,} are allowed: use shorter prefixes, or define topics instead"
        )
    try:
        verbs.create(admin, made)
    except VersionConflict as conflict:
        taken = admin.store.taken("family", [each.name for each in made])
        raise AlreadyExist("family", taken, len(made)) from conflict
    return made


def list_families(
    admin: Administrator, prefix: str = "", after: str = "", limit: int = 1000,
    on_unreadable: OnUnreadable | None = None,
) -> list[FamilyDefinition]:  # fmt: skip
    """See `administrator.page`."""
    return verbs.page(admin, FamilyDefinition, prefix, after, limit, on_unreadable)


def show(admin: Administrator, name: str) -> tuple[FamilyDefinition, int]:
    return verbs.get(admin, FamilyDefinition, name)


def defining(admin: Administrator, topic: str) -> FamilyDefinition | None:
    """The family that defines a topic without an entry of its own."""
    return _all(admin).matching(topic)


def set_family(admin: Administrator, name: str, settings: TopicSettings) -> FamilyDefinition:
    """Change the settings of all its topics, existing ones included. Raises StateConflict for fewer queues."""
    return verbs.set_settings(admin, FamilyDefinition, name, settings)


def delete(admin: Administrator, name: str, existing: Callable[[str], Iterable[str]], force: bool = False) -> int:
    """Delete a family and return the number of its existing topics. A shorter prefix then defines them, or they are
    unknown.

    Args:
        existing: yields names of the topics that the engine has, by prefix; read only as far as the count needs.
        force: delete it also when it has topics.
    Raises:
        StateConflict: it has topics, and `force` was not given.
    """
    family, _ = show(admin, name)
    count = sum(1 for _ in islice(_members(admin, family, existing(family.prefix)), COUNTED_MAX))
    if count and not force:
        many = f"{count:,} topics or more" if count == COUNTED_MAX else f"{count:,} topics" if count > 1 else "1 topic"
        raise StateConflict(
            f"{thing(family.kind, name)}: {many} would lose this definition: use --force to delete it anyway"
        )
    verbs.delete(admin, FamilyDefinition, name)
    return count


def _members(admin: Administrator, family: FamilyDefinition, topics: Iterable[str]) -> Iterator[str]:
    """Names of `topics` that this family defines: without an entry of their own, and without a longer prefix."""
    families = _all(admin)
    own = set(admin.store.names("topic", family.prefix, limit=1 << 30))
    for topic in topics:
        if topic not in own and (found := families.matching(topic)) and found.name == family.name:
            yield topic


def _all(admin: Administrator) -> Families:
    return Families((name, entry.value) for name, entry in admin.store.entries("family", limit=1 << 30))

"""The context of all verbs, and the read-modify-write that they are made of."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from common.admin import audit
from common.admin.errors import StateConflict
from common.clock import Clock, SystemClock
from common.config.definition import Definition
from common.config.definitions import ApplicationDefinition
from common.config.errors import EntryNotFound, InvalidDefinition, VersionConflict
from common.config.root_keys import RootKeys
from common.config.setting import FIXED, GROWS, Changes, table_of
from common.config.store import Change, ConfigStore
from common.quoting import thing

D = TypeVar("D", bound=Definition)
OnUnreadable = Callable[[InvalidDefinition], object]
RACES_MAX = 5


@dataclass(frozen=True)
class Administrator:
    """
    Attributes:
        who: the author in the audit journal, such as `cli:alice@host`.
        root_keys: gives the root keys from which secrets of new keys are derived; without one they are stored in clear.
    """

    store: ConfigStore
    who: str
    clock: Clock = field(default_factory=SystemClock)
    root_keys: Callable[[], RootKeys] = RootKeys


def get(admin: Administrator, definition: type[D], name: str) -> tuple[D, int]:
    """The definition and its version. Raises EntryNotFound."""
    found = admin.store.get(definition.kind, name)
    if found is None:
        raise EntryNotFound(f"{thing(definition.kind, name)}: not found")
    return definition.from_value(name, found.value), found.version


def page(
    admin: Administrator, definition: type[D], prefix: str, after: str, limit: int,
    on_unreadable: OnUnreadable | None = None,
) -> list[D]:  # fmt: skip
    """The next `limit` definitions by name.

    Args:
        on_unreadable: called for each one that this version cannot read, which is left out.
    Raises:
        InvalidDefinition: one cannot be read, and there is no `on_unreadable`.
    """
    found: list[D] = []
    while wanted := max(0, limit - len(found)):
        entries = admin.store.entries(definition.kind, prefix, after, wanted)
        for name, entry in entries:
            try:
                found.append(definition.from_value(name, entry.value))
            except InvalidDefinition as error:
                if on_unreadable is None:
                    raise
                on_unreadable(error)
        if len(entries) < wanted:
            break
        after = entries[-1][0]
    return found


def create(admin: Administrator, definitions: list[D]) -> None:
    """Write new definitions of one kind, all or (within one transaction) none.

    Raises VersionConflict where one exists.
    """
    kind = definitions[0].kind
    versions = admin.store.put_many(kind, [Change(each.name, each.to_value(), 0) for each in definitions])
    names = [each.name for each in definitions]
    shown = _shown(definitions[0])
    audit.record(admin.store, admin.clock, admin.who, "create", kind, names, None, shown, versions[0])


def change(
    admin: Administrator, definition: type[D], name: str, new: Callable[[D], D], seen: int | None = None
) -> D:  # fmt: skip
    """Replace a definition by `new(old)`. `new` only computes: it is called again when another writer was faster.

    Args:
        seen: the version that the change was decided on; None: the change is right for any.
    Raises:
        EntryNotFound, InvalidDefinition: from the new definition; and all errors that `new` raises.
        VersionConflict: the definition has another version than `seen`; nothing was written.
    """
    kind = definition.kind
    for race in range(RACES_MAX):
        old, version = get(admin, definition, name)
        if seen is not None and version != seen:
            raise VersionConflict(kind, name, seen, version)
        made = definition.from_value(name, new(old).to_value())
        if made == old:
            return old
        try:
            now = admin.store.put(kind, name, made.to_value(), version)
        except VersionConflict:
            if race == RACES_MAX - 1:
                raise
            continue
        audit.record(admin.store, admin.clock, admin.who, "change", kind, [name], _shown(old), _shown(made), now)
        return made
    raise AssertionError("the loop returns or raises")


def set_settings(
    admin: Administrator, definition: type[D], name: str, settings: Changes, seen: int | None = None,
    check: Callable[[D, D], object] = lambda old, new: None,
) -> D:  # fmt: skip
    """Change some settings of a definition; see `change` for `seen`.

    Args:
        check: called with the old and the new definition; raises an error where the change is not allowed.
    Raises:
        EntryNotFound, InvalidDefinition: with all faults; nothing was written.
        StateConflict: a setting that can only grow would shrink, or one that is fixed would change.
    """
    definition.check_settings(name, settings.given())  # also where there is no definition yet to change

    def new(old: D) -> D:
        made = _changed(old, settings.given())
        check(old, made)
        return made

    return change(admin, definition, name, new, seen)


def _changed(old: D, given: dict[str, Any]) -> D:
    for each in table_of(type(old)).values():
        if each.change == GROWS and each.name in given and given[each.name] < (now := getattr(old, each.name)):
            raise StateConflict(
                f"{thing(old.kind, old.name)}: {each.name} cannot shrink: it is {now:,}, use {now:,} or more"
            )
        if each.change == FIXED and given.get(each.name, now := getattr(old, each.name)) != now:
            raise StateConflict(f"{thing(old.kind, old.name)}: {each.name} cannot change: it is {now}")
    return type(old).from_value(old.name, old.complete({**old.to_value(), **given}))


def delete(admin: Administrator, definition: type[D], name: str) -> None:
    """Delete a definition, also one that this version cannot read: its journal record has no old value."""
    found = admin.store.get(definition.kind, name)
    if found is None:
        raise EntryNotFound(f"{thing(definition.kind, name)}: not found")
    try:
        old = _shown(definition.from_value(name, found.value))
    except InvalidDefinition:
        old = None
    admin.store.delete(definition.kind, name, found.version)
    audit.record(admin.store, admin.clock, admin.who, "delete", definition.kind, [name], old, None)


def _shown(definition: Definition) -> dict[str, Any]:
    """The definition without secrets, as the audit journal stores it."""
    return definition.without_secrets() if isinstance(definition, ApplicationDefinition) else definition.to_value()

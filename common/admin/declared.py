"""Topics, families and groups as a file declares them: parsed, compared with the store, applied; and exported.

A declared entry has the settings of the file and the defaults of all others, so that applying a file again changes
nothing. Entries that the file does not have stay as they are; they are deleted by name only.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from common.admin import administrator as verbs
from common.admin import families, groups, placing, topics
from common.admin.administrator import Administrator
from common.admin.errors import StateConflict
from common.admin.groups import GroupSettings
from common.admin.topics import TopicSettings
from common.config.definition import Definition
from common.config.definitions import FamilyDefinition, GroupDefinition, TopicDefinition
from common.config.errors import InvalidDefinition, InvalidEntry
from common.config.setting import FIXED, GROWS, table_of
from common.quoting import quoted, thing
from common.strict_yaml import check_events

TEXT_BYTES_MAX, FAULTS_MAX = 32 << 20, 10
FEW = 20
SECTIONS: Mapping[str, type[Definition]] = {
    "topics": TopicDefinition, "families": FamilyDefinition, "groups": GroupDefinition,
}  # fmt: skip
KINDS: Mapping[str, type[Definition]] = {each.kind: each for each in SECTIONS.values()}
DELETES: Mapping[str, Callable[[Administrator, str], None]] = {"topic": topics.delete, "group": groups.delete}
Declared = dict[str, dict[str, dict[str, Any]]]
"""Settings by kind and name."""


class DeclaredChange(NamedTuple):
    """One entry that would change. `old` None: it is created; `new` None: deleted. `version`: that `old` has."""

    kind: str
    name: str
    old: dict[str, Any] | None
    new: dict[str, Any] | None
    version: int

    @property
    def word(self) -> str:
        return "create" if self.old is None else "delete" if self.new is None else "change"

    def fields(self) -> dict[str, tuple[Any, Any]]:
        """The settings that differ, each with its old and new value."""
        old, new = self.old or {}, self.new or {}
        shown = [name for name in table_of(KINDS[self.kind]) if old.get(name) != new.get(name)]
        return {name: (old.get(name), new.get(name)) for name in shown}


def parse(text: str, subject: str) -> Declared:
    """The entries of a file in YAML or JSON. Raises InvalidEntry with the first faults."""
    if len(text.encode("utf-8", "replace")) > TEXT_BYTES_MAX:
        raise InvalidEntry(f"{subject}: larger than {TEXT_BYTES_MAX >> 20} MiB: divide it")
    try:
        check_events(text)
        given = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidEntry(f"{subject}: {' '.join(str(error).split())}") from error
    if not isinstance(given, dict) or not given or not given.keys() <= SECTIONS.keys():
        raise InvalidEntry(f"{subject}: use the sections {', '.join(SECTIONS)}, each with entries by name")
    faults: list[str] = []
    found: Declared = {}
    for section, entries in given.items():
        if not isinstance(entries, dict | None):
            faults.append(f"{section}: use NAME: {{setting: value}}")
            continue
        definition = SECTIONS[section]
        for name, settings in (entries or {}).items():
            faults += _faults(definition, name, {} if settings is None else settings)
            found.setdefault(definition.kind, {})[name] = settings or {}
    if faults:
        raise InvalidEntry(f"{subject}: " + "; ".join(faults[:FAULTS_MAX]) + (" …" if len(faults) > FAULTS_MAX else ""))
    return found


class _Loader(yaml.CSafeLoader):
    """Refuses a name that is given twice: YAML would take the last one."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        made = super().construct_mapping(node, deep)
        if len(made) != len(node.value):
            names = [key.value for key, _ in node.value]
            twice = next((name for name in names if names.count(name) > 1), names[-1])
            raise ValueError(f"line {node.start_mark.line + 1}: {quoted(str(twice))} is given twice")
        return made


def _faults(definition: type[Definition], name: Any, settings: Any) -> list[str]:
    if not isinstance(name, str) or not isinstance(settings, dict):
        return [f"{definition.kind} {quoted(str(name))}: use a name as text, and settings as {{setting: value}}"]
    unknown = [each for each in settings if each not in _names(definition)]
    if unknown:
        return [f"{thing(definition.kind, name)}: there is no setting {quoted(str(unknown[0]))}: see docs/settings.md"]
    try:
        definition.from_value(name, settings)
    except InvalidDefinition as error:
        return [str(error)]
    except (TypeError, ValueError) as error:
        return [f"{thing(definition.kind, name)}: {error}"]
    return []


def _names(definition: type[Definition]) -> list[str]:
    """Settings that a file may have: those that commands can set."""
    return [each.name for each in table_of(definition).values() if each.option is not None]


def differences(admin: Administrator, wanted: Declared, prune: Iterable[str] = ()) -> list[DeclaredChange]:
    """The changes that `apply` would make, by kind and name.

    Args:
        prune: entries to delete where they exist, as `topic/NAME` or `group/NAME`.
    Raises:
        InvalidEntry: a name to prune is not of this form, or the file has it.
        StateConflict: a setting that can only grow would shrink, or one that is fixed would change.
    """
    found = []
    for kind, entries in wanted.items():
        present = {name: (entry.value, entry.version) for name, entry in _present(admin, kind, list(entries))}
        for name in sorted(entries):
            old, version = present.get(name, (None, 0))
            new = _declared(KINDS[kind], name, old, entries[name])
            if new != old:
                found.append(DeclaredChange(kind, name, old, new, version))
    for each in dict.fromkeys(prune):
        kind, _, name = each.partition("/")
        if kind == FamilyDefinition.kind:
            raise InvalidEntry(
                f"prune {quoted(each)}: use `penstock topic delete`, which asks the engine for its topics"
            )
        if kind not in DELETES or not name or name in wanted.get(kind, {}):
            raise InvalidEntry(f"prune {quoted(each)}: use topic/NAME or group/NAME, not an entry of the file")
        entry = admin.store.get(kind, name)
        if entry is not None:
            found.append(DeclaredChange(kind, name, entry.value, None, entry.version))
    return found


def _present(admin: Administrator, kind: str, names: Sequence[str]) -> Iterable[tuple[str, Any]]:
    if len(names) > FEW:  # the whole kind is read at once, in place of a bucket per name
        wanted = set(names)
        yield from (each for each in admin.store.entries(kind, limit=1 << 30) if each[0] in wanted)
        return
    for name in names:
        entry = admin.store.get(kind, name)
        if entry is not None:
            yield name, entry


def _declared(
    definition: type[Definition], name: str, stored: dict[str, Any] | None, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The entry as it would be stored. What no command sets, such as the time of creation, stays as it is."""
    if stored is None:
        return definition.from_value(name, settings).to_value()
    table = table_of(definition)
    old = definition.from_value(name, stored)
    declared = {each for each in _names(definition) if each in settings or table[each].change != FIXED}
    kept = {each: value for each, value in stored.items() if each not in declared}
    made = definition.from_value(name, old.complete({**kept, **_with_closed_queues(old, settings)}))
    for each in table.values():
        now, then = getattr(old, each.name), getattr(made, each.name)
        if each.change == GROWS and then < now:
            raise StateConflict(
                f"{thing(old.kind, name)}: {each.name} cannot shrink: it is {now:,}, declare {now:,} or more"
            )
        if each.change == FIXED and then != now:
            raise StateConflict(f"{thing(old.kind, name)}: {each.name} cannot change: it is {now}")
    # An entry may be stored with defaults written out: the same settings are no change.
    return stored if made == old else made.to_value()


def _with_closed_queues(old: Definition, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The declared settings; a topic whose broker groups have changed has more queues than its file tells."""
    if not isinstance(old, TopicDefinition) or not old.placement:
        return settings
    return {**settings, "queues": max(old.queues, settings.get("queues", 0))}


def apply(admin: Administrator, changes: Sequence[DeclaredChange]) -> None:
    """Make the changes by the same functions as the commands: new entries of a kind at once, then one by one.

    Raises:
        VersionConflict: an entry was changed or created since `differences`; earlier changes are made. Apply again.
    """
    new_topics = {each.name: TopicSettings(**_given(each)) for each in changes if _is(each, "topic", "create")}
    if new_topics:
        topics.create(admin, new_topics, TopicSettings())
    for each in changes:
        if _is(each, "family", "create"):
            families.create(admin, [each.name], TopicSettings(**_given(each)))
        elif _is(each, "group", "create"):
            groups.create(admin, each.name, GroupSettings(**_given(each)))
        elif each.new is None:
            DELETES[each.kind](admin, each.name)
        elif each.old is not None:
            _replace(admin, each, each.new)


def _replace(admin: Administrator, change: DeclaredChange, new: dict[str, Any]) -> None:
    """Replace an entry that still has the version of the comparison. Raises VersionConflict."""
    made = KINDS[change.kind].from_value(change.name, new)

    def replaced(old: Definition) -> Definition:
        if isinstance(old, TopicDefinition) and isinstance(made, TopicDefinition):
            placing.check_change(admin, old, made)
        return made

    verbs.change(admin, KINDS[change.kind], change.name, replaced, change.version)


def _is(change: DeclaredChange, kind: str, word: str) -> bool:
    return change.kind == kind and change.word == word


def _given(change: DeclaredChange) -> dict[str, Any]:
    table = table_of(KINDS[change.kind])
    return {name: value for name, value in (change.new or {}).items() if name in table}


def export(admin: Administrator, prefix: str = "") -> dict[str, dict[str, dict[str, Any]]]:
    """All entries with this prefix, by section and name: only settings that a file may have and that are no defaults."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for section, definition in SECTIONS.items():
        table = table_of(definition)
        for each in verbs.page(admin, definition, prefix, "", 1 << 30, lambda error: None):
            own = {
                name: table[name].type.stored(value)
                for name in _names(definition)
                if (value := getattr(each, name)) != table[name].default
            }
            found.setdefault(section, {})[each.name] = own
    return found


def to_text(exported: Mapping[str, Any]) -> str:
    """An export as YAML."""
    return yaml.dump(dict(exported), Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=120)

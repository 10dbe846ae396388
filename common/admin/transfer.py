"""The whole configuration as one JSON value: exported from a store or a snapshot, compared with a store, applied to it.

An export has all secrets of applications that are stored in clear, so its file must be for its owner only. It has no root
key, without which the others cannot be derived.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from common.admin import audit, topics
from common.admin.administrator import Administrator
from common.admin.errors import StateConflict
from common.clock import Clock
from common.config import buckets as layout
from common.config import snapshot
from common.config.checks import Checks
from common.config.definitions import TopicDefinition
from common.config.errors import EntryNotFound, InvalidDefinition, InvalidEntry
from common.config.identity import StoreIdentity
from common.config.kinds import DEFINITIONS
from common.config.setting import GROWS, table_of
from common.config.store import FOLLOWED, Change, ConfigStore, Versioned
from common.quoting import thing

FORMAT = "penstock configuration 1"
ALL = 1 << 30
TEXT_CHARS_MAX = 1 << 30
FAULTS_MAX = 10
SET_BY_PLANS: dict[str, tuple[str, ...]] = {
    "topic": ("home", "secondary", "fence", "cut"), "copy_in": (), "copy_out": (), "shared_read": (),
}  # fmt: skip
"""Fields of entries by kind; none: all of them."""
Export = dict[str, Any]
Entries = dict[str, Versioned]


class Difference(NamedTuple):
    """One entry that an export would change. `old` None: it would be created; `new` None: it would be deleted."""

    kind: str
    name: str
    old: dict[str, Any] | None
    new: dict[str, Any] | None
    version: int


def export(store: ConfigStore, clock: Clock) -> Export:
    """All entries of the kinds that processes follow. The audit journal is left out."""
    kinds = {kind: {name: found.value for name, found in store.entries(kind, limit=ALL)} for kind in FOLLOWED}
    return _export(kinds, store.identity(), store.version(), clock.now_ms())


def export_snapshot(path: Path) -> Export:
    """The entries that a process has kept in its snapshot. Raises EntryNotFound, StoreDamaged."""
    saved = snapshot.load(path)
    if saved is None:
        raise EntryNotFound(f"snapshot {path}: it is missing or damaged")
    kinds = {}
    for kind, found in saved.kinds.items():
        texts = [layout.unpack(payload, f"{kind} bucket {number}") for number, payload in enumerate(found.payloads)]
        lines = {name: line for text in texts for name, line in layout.lines_of(text).items()}
        kinds[kind] = {name: layout.parse_line(line).value for name, line in sorted(lines.items())}
    version = {kind: sum(found.revisions) for kind, found in saved.kinds.items()}
    return _export(kinds, saved.identity, version, saved.current_at_ms)


def is_replaceable(path: Path) -> bool:
    """Whether a new export may take the place of what is at `path`: nothing, an empty file or an earlier export."""
    if not path.is_file():  # a device or a pipe is no place for a file
        return not path.exists()
    with path.open("rb") as file:
        head = file.read(len(FORMAT) + 32)
    return not head or FORMAT.encode() in head


def _export(kinds: dict[str, Any], identity: StoreIdentity | None, version: dict[str, int], at_ms: int) -> Export:
    head = {"format": FORMAT, "exported_at_ms": at_ms, "identity": identity and identity._asdict(), "version": version}
    return {**head, "kinds": kinds}


def parse(text: str, subject: str) -> Export:
    """An export, checked. Raises InvalidEntry with the first faults of its definitions."""
    if len(text) > TEXT_CHARS_MAX:
        raise InvalidEntry(f"{subject}: larger than {TEXT_CHARS_MAX >> 20:,} MiB")
    try:
        given = json.loads(text)
        if given["format"] != FORMAT or not given["kinds"].keys() <= set(FOLLOWED):
            raise ValueError("it is of another version")
        faults = [fault for kind, named in given["kinds"].items() for fault in _faults(kind, named)]
    except RecursionError as error:
        raise InvalidEntry(f"{subject}: not an export of `penstock config export`: nested too deeply") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        told = str(error) if isinstance(error, ValueError) else "it has no `format` and `kinds`"
        raise InvalidEntry(f"{subject}: not an export of `penstock config export`: {told}") from error
    if faults:
        raise InvalidEntry(f"{subject}: " + "; ".join(faults[:FAULTS_MAX]) + (" …" if len(faults) > FAULTS_MAX else ""))
    return given


def _faults(kind: str, named: Mapping[str, Any]) -> list[str]:
    faults = []
    for name, value in named.items():
        try:
            if kind in DEFINITIONS:
                DEFINITIONS[kind].from_value(name, value)
            else:
                Checks(kind, name, value)
        except InvalidDefinition as fault:
            faults.append(str(fault))
        except (TypeError, ValueError):
            faults.append(f"{thing(kind, name)}: not a JSON object")
    return faults


def differences(store: ConfigStore, given: Export, *, deletes: bool) -> list[Difference]:
    """Changes that `apply` would make, by kind and name. With `deletes` also the entries that the export does not have."""
    found: list[Difference] = []
    for kind, wanted in given["kinds"].items():
        present: Entries = dict(store.entries(kind, limit=ALL))
        for name in sorted(wanted.keys() | present.keys()):
            old, new = present.get(name), wanted.get(name)
            if old is not None and new is not None:
                new = _grown(kind, name, old.value, new)
            if (new is None and not deletes) or (old is not None and old.value == new):
                continue
            if kind == "setting" and name == topics.DELETED and old is not None:
                continue  # the time of the last deletion, which must not go back
            found.append(Difference(kind, name, old and old.value, new, old.version if old else 0))
    return found


def _grown(kind: str, name: str, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The export's entry, with what has grown since and cannot shrink: engines have the topic's queues already."""
    definition = DEFINITIONS.get(kind)
    if definition is None or old.get("made_ms") != new.get("made_ms"):
        return new
    try:
        now, then = definition.from_value(name, old), definition.from_value(name, new)
    except InvalidDefinition:
        return new
    growing = [each.name for each in table_of(definition).values() if each.change == GROWS]
    if isinstance(now, TopicDefinition) and isinstance(then, TopicDefinition) and not then.continues(now):
        new = new | {each: now.to_value().get(each, []) for each in ("broker_groups", "placement")}
    return new | {each: getattr(now, each) for each in growing if getattr(now, each) > getattr(then, each)}


def has_gone_back(store: ConfigStore, given: Export) -> bool:
    """Whether the store has less than it had when the export was made: it was emptied, damaged, or put back to an older copy."""
    version = store.version()
    return store.identity() is None or any(
        version.get(kind, 0) < at for kind, at in given["version"].items() if kind in FOLLOWED
    )


def _check_plans(store: ConfigStore, changes: list[Difference]) -> None:
    """Refuse changes of what a plan at work has set. It goes by its own record, so it could not be left afterwards."""
    for each in changes:
        if each.old is not None and each.kind in SET_BY_PLANS:
            topic = each.old.get("topic", each.name)
            new, fields = each.new or {}, SET_BY_PLANS[each.kind] or tuple(each.old)
            if any(each.old.get(name) != new.get(name) for name in fields):
                planned = store.get("migration_topic", topic)
                if planned is not None:
                    plan = planned.value.get("plan")
                    raise StateConflict(
                        f"{thing(each.kind, each.name)}: it is set by migration plan {plan}, which is at work: abort, retire or "
                        f"roll back that first, or take the entry out of the file"
                    )


def apply(admin: Administrator, given: Export, changes: list[Difference]) -> bool:
    """Make these changes, each kind in one step; return whether a store that had lost content is in force again.

    Such a store gets the export's identity and a new generation, last: no process follows it before it is whole.

    Raises:
        StateConflict: what a migration plan has set would change; nothing was changed.
        VersionConflict: an entry was changed meanwhile; changes of earlier kinds are made.
    """
    store = admin.store
    _check_plans(store, changes)
    before, went_back = store.identity(), has_gone_back(store, given)
    for kind in dict.fromkeys(change.kind for change in changes):
        own = [change for change in changes if change.kind == kind]
        store.put_many(kind, [Change(each.name, each.new, each.version) for each in own])
        names = [each.name for each in own]
        audit.record(store, admin.clock, admin.who, "apply", kind, names, None, None)
    if went_back and given["identity"] is not None:
        cluster = given["identity"]["cluster"] if before is None else before.cluster
        store.set_identity(StoreIdentity(cluster, admin.clock.now_ms()))
    return went_back

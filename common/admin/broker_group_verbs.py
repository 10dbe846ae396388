"""Broker groups: add, set, remove, accept. The callers ask the engines whether a change would strand messages."""

from dataclasses import replace

from common.admin import administrator as verbs
from common.admin import audit
from common.admin.administrator import Administrator
from common.admin.broker_groups import list_groups
from common.config.broker_group import BrokerGroupDefinition
from common.config.engine_records import KIND, EngineRecord, EngineRecords, Greeting
from common.config.errors import InvalidDefinition, thing


def add(admin: Administrator, name: str, address: str) -> BrokerGroupDefinition:
    """Add a broker group: queues move to it, the messages in them do not. Raises InvalidDefinition, VersionConflict."""
    made = _checked(admin, name, address)
    verbs.create(admin, [made])
    return made


def _checked(admin: Administrator, name: str, address: str) -> BrokerGroupDefinition:
    """Raises InvalidDefinition, also for an address of another group: one engine would be asked as two."""
    made = BrokerGroupDefinition.from_value(name, {"address": address})
    for other in list_groups(admin.store):
        if taken := set(made.addresses) & set(other.addresses) if other.name != name else set():
            shown = ":".join(map(str, min(taken)))
            raise InvalidDefinition(
                thing(made.kind, name), [f"address: {shown} is that of {thing(made.kind, other.name)}"]
            )
    return made


def set_address(admin: Administrator, name: str, address: str) -> BrokerGroupDefinition:
    """Change where a group's engine is. Raises EntryNotFound, InvalidDefinition."""
    _checked(admin, name, address)
    return verbs.change(admin, BrokerGroupDefinition, name, lambda old: replace(old, address=address))


def set_writes(admin: Administrator, name: str, writes: str, seen: int | None = None) -> BrokerGroupDefinition:
    """Change which new messages a group takes while others could take them.

    Raises EntryNotFound, InvalidDefinition; VersionConflict where it has another version than `seen`.
    """
    return verbs.change(admin, BrokerGroupDefinition, name, lambda old: replace(old, writes=writes), seen)


def remove(admin: Administrator, name: str) -> None:
    """Remove a group: its queues move to the others, the messages in them do not. Raises EntryNotFound."""
    verbs.delete(admin, BrokerGroupDefinition, name)


def record_of(admin: Administrator, name: str) -> EngineRecord | None:
    """The engine that holds the group's messages, as it was recorded."""
    return EngineRecords(admin.store, admin.clock).read(name)


def accept(admin: Administrator, name: str, found: Greeting) -> tuple[EngineRecord | None, EngineRecord]:
    """Make this engine the group's own, whatever was recorded; return the old and the new record."""
    old = record_of(admin, name)
    new = EngineRecords(admin.store, admin.clock).accept(name, found)
    shown = None if old is None else old._asdict()
    audit.record(admin.store, admin.clock, admin.who, "accept", KIND, [name], shown, new._asdict())
    return old, new

"""Broker groups: list, put.

The supervisor writes the addresses, so these verbs leave no record in the audit journal. It stays in memory with the
other processes, so this module imports little; operators' verbs are in broker_group_verbs.py.
"""

from collections.abc import Mapping

from common.config.broker_group import BrokerGroupDefinition
from common.config.store import Change, ConfigStore
from common.placement import GROUPS_MAX


def list_groups(store: ConfigStore) -> list[BrokerGroupDefinition]:
    """All broker groups by name. Raises InvalidDefinition."""
    entries = store.entries(BrokerGroupDefinition.kind, limit=GROUPS_MAX)
    return [BrokerGroupDefinition.from_value(name, found.value) for name, found in entries]


def put(store: ConfigStore, addresses: Mapping[str, str]) -> None:
    """Write these groups' addresses, all or none; an address that is stored already is left alone.

    Raises InvalidDefinition.
    """
    changes = []
    for name, address in addresses.items():
        wanted = BrokerGroupDefinition.from_value(name, {"address": address})
        found = store.get(wanted.kind, name)
        if found is None or found.value.get("address") != address:
            kept = {} if found is None else dict(found.value)
            changes.append(Change(name, {**kept, **wanted.to_value()}, 0 if found is None else found.version))
    if changes:
        store.put_many(BrokerGroupDefinition.kind, changes)

"""Makes the form that is in force of an application whose definition this version cannot read as a whole.

The definition may be of a later version, or be wrong. Each field that can be read counts as it is now, so that a new
restriction is in force. Each other field keeps its last readable form, so that a change that concerns later versions
only does not stop the application. Keys are told apart one by one, because revoking one must not depend on what else
can be read.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from common.config.definitions.application import KEY_FIELDS, ApplicationDefinition, DerivedKey, Key
from common.config.errors import InvalidDefinition


def readable_part(name: str, value: Any, last: Mapping[str, Any]) -> ApplicationDefinition:
    """The application as far as `value` can be read, and as `last` says where it cannot.

    A key is accepted when `value` names its id, with the secret of `value` or else of `last`. Where `value` does not
    tell the ids of its keys (see `tells_keys`) those of `last` are accepted.

    Fields that this version does not know are those of `last`: the result is for use, not to be written back.

    Args:
        last: the last readable value.
    """
    given = value if isinstance(value, Mapping) else {}
    others = {field: each for field, each in given.items() if field not in KEY_FIELDS}
    read = {field: each for field, each in others.items() if _parsed(name, {field: each}) is not None}
    kept = {field: each for field, each in last.items() if field not in KEY_FIELDS and field not in read}
    if isinstance(value, Mapping):  # a field that is gone has its default now
        kept = {field: each for field, each in kept.items() if field in given}
    made = ApplicationDefinition.from_value(name, {**kept, **read})
    held = ApplicationDefinition.from_value(name, last)
    keys = _keys(name, given, held) if tells_keys(value) else held.keys
    return replace(made, keys=keys, extra=held.extra)


def tells_keys(value: Any) -> bool:
    """Whether the ids of all keys can be read, so that a revoked one is known."""
    if not isinstance(value, Mapping):
        return False
    lists = [value.get(field, []) for field in KEY_FIELDS]
    return all(isinstance(keys, list | tuple) for keys in lists) and all(
        isinstance(key, Mapping) and isinstance(key.get("key_id"), str) for keys in lists for key in keys
    )


def _keys(name: str, given: Mapping[str, Any], held: ApplicationDefinition) -> tuple[Key | DerivedKey, ...]:
    found = []
    for field in KEY_FIELDS:
        for item in given.get(field, []):
            alone = _parsed(name, {field: [item]})
            key = alone.keys[0] if alone is not None else held.key(item["key_id"])
            if key is not None:
                found.append(key)
    return tuple(found)


def _parsed(name: str, value: Mapping[str, Any]) -> ApplicationDefinition | None:
    try:
        return ApplicationDefinition.from_value(name, value)
    except InvalidDefinition:
        return None

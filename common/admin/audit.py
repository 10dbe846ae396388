"""The audit journal: author, action, old and new value of every change, without secrets. A full journal drops the
oldest records.

A record is written after its change. A crash in between can lose the record, but a record never shows a change that was
not made. It is durable when the verb returns. Records are in the order of their writers' clocks; `version` orders the
changes of one entry, because each was a compare-and-set on the one before.
"""

import secrets
from typing import Any

from common.clock import Clock
from common.config.store import ConfigStore

NAMES_MAX = 50  # of a bulk change, so that a record stays small


def record(
    store: ConfigStore,
    clock: Clock,
    who: str,
    action: str,
    kind: str,
    names: list[str],
    old: dict[str, Any] | None,
    new: dict[str, Any] | None,
    version: int | None = None,
) -> None:
    """Append one record, durably. A bulk change is one record: the count, the first names, and one definition for all.

    Args:
        version: of the (first) entry after its change; None: the changed thing has no version.
    """
    now_ms = clock.now_ms()
    value = {
        "at_ms": now_ms,
        "who": who,
        "action": action,
        "kind": kind,
        "names": names[:NAMES_MAX],
        "count": len(names),
        "old": _bounded(old),
        "new": _bounded(new),
        "version": version,
    }
    store.put("audit", f"{now_ms:014d}-{secrets.token_hex(4)}", value, 0)


def _bounded(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """The value with large fields left out: a group may name 10,000 topics."""
    if value is None or len(str(value)) < 20_000:
        return value
    return {name: field if len(str(field)) < 1_000 else f"({len(field)} items)" for name, field in value.items()}


def latest(
    store: ConfigStore, limit: int = 100, *, kind: str | None = None, name: str | None = None, who: str | None = None
) -> list[dict[str, Any]]:
    """The newest records, newest first by their writers' clocks, with this kind, name and author."""
    found: list[dict[str, Any]] = []
    for record_name in reversed(store.names("audit", limit=1 << 30)):
        entry = store.get("audit", record_name)
        if len(found) == limit:
            break
        if entry is not None and _is_of(entry.value, kind, name, who):
            found.append(entry.value)
    return found


def _is_of(record: dict[str, Any], kind: str | None, name: str | None, who: str | None) -> bool:
    return kind in (None, record["kind"]) and who in (None, record["who"]) and (name is None or name in record["names"])

"""The journal of changes: who did what, old and new, without secrets. Kept in the store; the oldest go when it is full.

A record is written behind its change, so a crash in between can lose the record but never show a change that was not made.
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
) -> None:
    """Append one record. A bulk change is one: the count, the first names, and one definition for all."""
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
    }
    store.put("audit", f"{now_ms:014d}-{secrets.token_hex(4)}", value, 0)


def _bounded(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """A group may name 10,000 topics; its record need not."""
    if value is None or len(str(value)) < 20_000:
        return value
    return {name: field if len(str(field)) < 1_000 else f"({len(field)} items)" for name, field in value.items()}


def latest(store: ConfigStore, limit: int = 100) -> list[dict[str, Any]]:
    """The newest records, newest first."""
    names = store.names("audit", limit=1 << 30)[-limit:]
    found = [store.get("audit", name) for name in reversed(names)]
    return [entry.value for entry in found if entry]

"""The processes that are expected to apply each change of the configuration."""

from typing import Any

from common.admin import audit
from common.admin.administrator import Administrator
from common.config.applying import missing
from common.config.errors import EntryNotFound
from common.config.store import Applied
from common.quoting import quoted


def states(admin: Administrator) -> list[dict[str, Any]]:
    """One row per process: current, behind (in these kinds), or no contact."""
    wanted, now_ms = admin.store.version(), admin.clock.now_ms()

    def row(name: str, report: Applied, has_contact: bool) -> dict[str, Any]:
        behind = [kind for kind, at in wanted.items() if report.version.get(kind, 0) < at]
        state = "no contact" if not has_contact else "behind" if behind else "current"
        age_s = round((now_ms - report.at_ms) / 1000, 1)
        return {"name": name, "state": state, "behind": behind, "reported_s_ago": age_s, "pid": report.pid}

    rows = [row(name, report, True) for name, report in admin.store.applied().items()]
    rows += [row(name, report, False) for name, report in missing(admin.store).items()]
    return sorted(rows, key=lambda each: each["name"])


def forget(admin: Administrator, name: str) -> None:
    """Expect a process no more. Raises EntryNotFound."""
    if name not in admin.store.members() and name not in admin.store.applied():
        raise EntryNotFound(f"process {quoted(name)}: not found")
    admin.store.forget(name)
    audit.record(admin.store, admin.clock, admin.who, "forget", "member", [name], None, None)

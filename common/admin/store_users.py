"""Users of the configuration store: those that may change it, and those that may only read it, such as proxies."""

from collections.abc import Collection

from common.admin import audit
from common.admin.administrator import Administrator
from common.config.store import StoreUser


def set_users(
    admin: Administrator, writers: Collection[str] | None = None, readers: Collection[str] | None = None
) -> list[StoreUser]:
    """Give the store to these users; see `ConfigStore.set_users`. The journal has their names, never a password."""
    found = admin.store.set_users(writers, readers)
    shown = {rights: [each.user for each in found if each.rights == rights] for rights in ("writes", "reads")}
    audit.record(admin.store, admin.clock, admin.who, "change", "configuration", ["access"], None, shown)
    return found

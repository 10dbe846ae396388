"""Applications: keys, grants and settings. A secret leaves this module once, as the answer of create or rotate."""

import secrets
from dataclasses import dataclass, field, replace

from common.admin import administrator as verbs
from common.admin.administrator import Administrator
from common.admin.errors import StateConflict
from common.config.definitions import LIVE_KEYS_MAX, ApplicationDefinition, Grant, Key
from common.config.errors import EntryNotFound
from common.config.setting import Changes
from common.quoting import quoted, thing


@dataclass(frozen=True)
class NewKey:
    app: str
    key_id: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class Grants:
    """Patterns: names, or prefixes followed by `*`. Pull patterns hold for topics and for groups."""

    send: tuple[str, ...] = ()
    pull: tuple[str, ...] = ()

    def all(self) -> list[Grant]:
        return [Grant("send", pattern) for pattern in self.send] + [Grant("pull", pattern) for pattern in self.pull]


def create(admin: Administrator, name: str, grants: Grants = Grants()) -> NewKey:
    """Create an application with its first key. Without grants it may do nothing."""
    key = _new_key(admin)
    app = ApplicationDefinition(name, (key,), tuple(dict.fromkeys(grants.all())))
    verbs.create(admin, [ApplicationDefinition.from_value(name, app.to_value())])
    return NewKey(name, key.key_id, key.secret)


def rotate(admin: Administrator, name: str) -> NewKey:
    """Add a second key. Clients change over to it without a stop; then revoke the first one.

    Raises:
        StateConflict: there are two keys already.
    """
    key = _new_key(admin)

    def new(old: ApplicationDefinition) -> ApplicationDefinition:
        if len(old.keys) >= LIVE_KEYS_MAX:
            ids = ", ".join(each.key_id for each in old.keys)
            raise StateConflict(f"{thing(old.kind, name)}: {len(old.keys)} keys are in use ({ids}): revoke one first")
        return replace(old, keys=(*old.keys, key))

    verbs.change(admin, ApplicationDefinition, name, new)
    return NewKey(name, key.key_id, key.secret)


def revoke(admin: Administrator, name: str, key_id: str) -> ApplicationDefinition:
    """Reject the key from now on, within a second at every proxy. Raises EntryNotFound."""

    def new(old: ApplicationDefinition) -> ApplicationDefinition:
        if old.key(key_id) is None:
            raise EntryNotFound(f"{thing(old.kind, name)}: key {quoted(key_id)} not found")
        return replace(old, keys=tuple(key for key in old.keys if key.key_id != key_id))

    return verbs.change(admin, ApplicationDefinition, name, new)


def grant(admin: Administrator, name: str, grants: Grants) -> ApplicationDefinition:
    """Add grants; existing ones stay."""

    def new(old: ApplicationDefinition) -> ApplicationDefinition:
        return replace(old, grants=tuple(dict.fromkeys([*old.grants, *grants.all()])))

    return verbs.change(admin, ApplicationDefinition, name, new)


def ungrant(admin: Administrator, name: str, grants: Grants) -> ApplicationDefinition:
    """Remove grants, by the patterns that they were given with. Raises EntryNotFound for a missing one."""

    def new(old: ApplicationDefinition) -> ApplicationDefinition:
        unknown = [each for each in grants.all() if each not in old.grants]
        if unknown:
            missing = unknown[0]
            raise EntryNotFound(
                f"{thing(old.kind, name)}: grant to {missing.action} {quoted(missing.pattern)} not found"
            )
        return replace(old, grants=tuple(each for each in old.grants if each not in set(grants.all())))

    return verbs.change(admin, ApplicationDefinition, name, new)


class ApplicationSettings(Changes):
    """Settings of an application, without its keys and grants."""

    definition = ApplicationDefinition


def set_application(admin: Administrator, name: str, settings: ApplicationSettings) -> ApplicationDefinition:
    """Change limits and allowed origins; in force within a second at every proxy."""
    return verbs.set_settings(admin, ApplicationDefinition, name, settings)


def list_applications(
    admin: Administrator, prefix: str = "", after: str = "", limit: int = 1000
) -> list[ApplicationDefinition]:
    return [app for app, _ in verbs.page(admin, ApplicationDefinition, prefix, after, limit)]


def show(admin: Administrator, name: str) -> tuple[ApplicationDefinition, int]:
    return verbs.get(admin, ApplicationDefinition, name)


def delete(admin: Administrator, name: str) -> None:
    verbs.delete(admin, ApplicationDefinition, name)


def ensure_operator(admin: Administrator, name: str, held: NewKey | None) -> NewKey:
    """Return a working key of the machine's own application, which may do everything: `held` if it is valid, else a new
    one.

    Needs only the right to change the configuration, which every caller has anyway.
    """
    everything = Grants(send=("*",), pull=("*",))
    found = admin.store.get("application", name)
    if found is None:
        return create(admin, name, everything)
    app = ApplicationDefinition.from_value(name, found.value)
    if held and (key := app.key(held.key_id)) and secrets.compare_digest(key.secret, held.secret):
        return held
    key = _new_key(admin)
    verbs.change(admin, ApplicationDefinition, name, lambda old: replace(old, keys=(*old.keys[-1:], key)))
    return NewKey(name, key.key_id, key.secret)


def _new_key(admin: Administrator) -> Key:
    return Key("k-" + secrets.token_hex(5), secrets.token_urlsafe(32), admin.clock.now_ms())

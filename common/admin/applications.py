"""Applications: keys and grants. A secret leaves this module once, as the answer of create or rotate."""

import secrets
from dataclasses import dataclass, field, replace
from typing import Any

from common.admin import administrator as verbs
from common.admin.administrator import Administrator
from common.admin.errors import Refused
from common.config.definitions import LIVE_KEYS_MAX, ApplicationDefinition, Grant, Key
from common.config.errors import EntryNotFound


@dataclass(frozen=True)
class NewKey:
    app: str
    key_id: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class Grants:
    """Patterns: names, or prefixes with `*` behind them. Pull patterns hold for topics and for groups."""

    send: tuple[str, ...] = ()
    pull: tuple[str, ...] = ()

    def all(self) -> list[Grant]:
        return [Grant("send", pattern) for pattern in self.send] + [Grant("pull", pattern) for pattern in self.pull]


def create(admin: Administrator, name: str, grants: Grants = Grants()) -> NewKey:
    """A new application with its first key; without grants it may do nothing."""
    key = _new_key(admin)
    app = ApplicationDefinition(name, (key,), tuple(dict.fromkeys(grants.all())))
    verbs.create(admin, [ApplicationDefinition.from_value(name, app.to_value())])
    return NewKey(name, key.key_id, key.secret)


def rotate(admin: Administrator, name: str) -> NewKey:
    """Add a second key beside the first, so that nothing stops while clients change over; then revoke the old one.

    Raises:
        Refused: two keys live already.
    """
    key = _new_key(admin)

    def new(old: ApplicationDefinition) -> ApplicationDefinition:
        if len(old.keys) >= LIVE_KEYS_MAX:
            ids = ", ".join(each.key_id for each in old.keys)
            raise Refused(f"application={name}: {len(old.keys)} keys live already ({ids}); revoke one first")
        return replace(old, keys=(*old.keys, key))

    verbs.change(admin, ApplicationDefinition, name, new)
    return NewKey(name, key.key_id, key.secret)


def revoke(admin: Administrator, name: str, key_id: str) -> ApplicationDefinition:
    """Refuse the key from now on, within a second at every proxy. Raises EntryNotFound."""

    def new(old: ApplicationDefinition) -> ApplicationDefinition:
        if old.key(key_id) is None:
            raise EntryNotFound(f"application={name}: it has no key {key_id}")
        return replace(old, keys=tuple(key for key in old.keys if key.key_id != key_id))

    return verbs.change(admin, ApplicationDefinition, name, new)


def grant(admin: Administrator, name: str, grants: Grants) -> ApplicationDefinition:
    """Allow more; what is granted already stays as it is."""

    def new(old: ApplicationDefinition) -> ApplicationDefinition:
        return replace(old, grants=tuple(dict.fromkeys([*old.grants, *grants.all()])))

    return verbs.change(admin, ApplicationDefinition, name, new)


def ungrant(admin: Administrator, name: str, grants: Grants) -> ApplicationDefinition:
    """Take grants back, by the patterns that they were given with. Raises EntryNotFound for one that it does not have."""

    def new(old: ApplicationDefinition) -> ApplicationDefinition:
        unknown = [each for each in grants.all() if each not in old.grants]
        if unknown:
            raise EntryNotFound(f"application={name}: it has no grant to {unknown[0].action} {unknown[0].pattern}")
        return replace(old, grants=tuple(each for each in old.grants if each not in set(grants.all())))

    return verbs.change(admin, ApplicationDefinition, name, new)


@dataclass(frozen=True)
class ApplicationSettings:
    """What a caller may choose beside keys and grants; None leaves what was there."""

    rate_messages: int | None = None
    rate_bytes: int | None = None
    addresses: tuple[str, ...] | None = None
    certificates: tuple[str, ...] | None = None

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


def set_application(admin: Administrator, name: str, settings: ApplicationSettings) -> ApplicationDefinition:
    """Change limits and where it may call from; in force within a second at every proxy."""
    return verbs.change(admin, ApplicationDefinition, name, lambda old: replace(old, **settings.given()))


def list_applications(
    admin: Administrator, prefix: str = "", after: str = "", limit: int = 1000
) -> list[ApplicationDefinition]:
    return [app for app, _ in verbs.page(admin, ApplicationDefinition, prefix, after, limit)]


def show(admin: Administrator, name: str) -> tuple[ApplicationDefinition, int]:
    return verbs.get(admin, ApplicationDefinition, name)


def delete(admin: Administrator, name: str) -> None:
    verbs.delete(admin, ApplicationDefinition, name)


def ensure_operator(admin: Administrator, name: str, held: NewKey | None) -> NewKey:
    """The machine's own application, which may do everything: return `held` if it still works, else a key that does.

    Needs no more than the right to change the configuration, which whoever calls this has anyway.
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

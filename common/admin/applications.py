"""Applications: keys, grants and settings. A secret leaves this module once, as the answer of create or rotate."""

import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from common.admin import administrator as verbs
from common.admin import audit
from common.admin.administrator import Administrator, OnUnreadable
from common.admin.errors import StateConflict
from common.config.definitions import (
    DEAD_LETTERS,
    KEY_FIELDS,
    LIVE_KEYS_MAX,
    PULL,
    PULL_GROUP,
    PULL_TOPIC,
    SEND,
    ApplicationDefinition,
    DerivedKey,
    Grant,
    Key,
)
from common.config.definitions.readable_part import readable_part, tells_keys
from common.config.errors import EntryNotFound, InvalidDefinition
from common.config.root_keys import OPTION
from common.config.setting import Changes
from common.quoting import quoted, thing


@dataclass(frozen=True)
class NewKey:
    app: str
    key_id: str
    secret: str = field(repr=False)


_VERBS = {
    SEND: "send to", PULL_TOPIC: "pull from", PULL_GROUP: "pull as", DEAD_LETTERS: "read the dead letters of",
}  # fmt: skip

EVERYTHING = (Grant(SEND, "*"), Grant(PULL, "*"), Grant(DEAD_LETTERS, "*"))
"""Grants of an operator's application. PULL allows proxies of earlier versions what the two others say."""


@dataclass(frozen=True)
class Grants:
    """Patterns: names, or prefixes followed by `*`.

    Attributes:
        send, pull_topics: of topics. pull_groups, dead_letters: of groups.
        pull: of topics and groups; a short form.
    """

    send: tuple[str, ...] = ()
    pull: tuple[str, ...] = ()
    pull_topics: tuple[str, ...] = ()
    pull_groups: tuple[str, ...] = ()
    dead_letters: tuple[str, ...] = ()

    def all(self) -> list[Grant]:
        """The grants, in today's actions."""
        by_action = ((SEND, self.send), (PULL, self.pull), (PULL_TOPIC, self.pull_topics),
                     (PULL_GROUP, self.pull_groups), (DEAD_LETTERS, self.dead_letters))  # fmt: skip
        parts = (Grant(action, pattern).parts() for action, patterns in by_action for pattern in patterns)
        return list(dict.fromkeys(part for each in parts for part in each))


def create(admin: Administrator, name: str, grants: Grants = Grants()) -> NewKey:
    """Create an application with its first key. Without grants it may do nothing."""
    return _create(admin, name, tuple(grants.all()))


def _create(admin: Administrator, name: str, grants: tuple[Grant, ...]) -> NewKey:
    key, made = _new_key(admin, name)
    app = ApplicationDefinition(name, (key,), grants)
    verbs.create(admin, [ApplicationDefinition.from_value(name, app.to_value())])
    return made


def rotate(admin: Administrator, name: str) -> NewKey:
    """Add a second key. Clients change over to it without a stop; then revoke the first one.

    Raises:
        StateConflict: there are two keys already, or the secret of the new key would be stored in clear and that of the
            first one is not.
    """
    key, made = _new_key(admin, name)

    def new(old: ApplicationDefinition) -> ApplicationDefinition:
        if len(old.keys) >= LIVE_KEYS_MAX:
            ids = ", ".join(each.key_id for each in old.keys)
            raise StateConflict(f"{thing(old.kind, name)}: {len(old.keys)} keys are in use ({ids}): revoke one first")
        derived = [each.key_id for each in old.keys if isinstance(each, DerivedKey)]
        if derived and isinstance(key, Key):
            problem = (
                f"the secret of key {derived[0]} is derived from a root key, and a new one would be stored in clear"
            )
            raise StateConflict(f"{thing(old.kind, name)}: {problem}: use {OPTION} FILE")
        return replace(old, keys=(*old.keys, key))

    verbs.change(admin, ApplicationDefinition, name, new)
    return made


def revoke(admin: Administrator, name: str, key_id: str) -> ApplicationDefinition:
    """Reject the key from now on, within a second at every proxy.

    Works also on a definition that this version cannot read, as long as the ids of its keys can be read.

    Raises:
        EntryNotFound.
        StateConflict: the ids cannot be read either.
    """

    def new(old: ApplicationDefinition) -> ApplicationDefinition:
        if old.key(key_id) is None:
            raise EntryNotFound(f"{thing(old.kind, name)}: key {quoted(key_id)} not found")
        return replace(old, keys=tuple(key for key in old.keys if key.key_id != key_id))

    try:
        return verbs.change(admin, ApplicationDefinition, name, new)
    except InvalidDefinition:
        return _revoke_unread(admin, name, key_id)


def _revoke_unread(admin: Administrator, name: str, key_id: str) -> ApplicationDefinition:
    """Remove the key from a definition that cannot be read, and leave the rest of it as it is."""
    subject = thing(ApplicationDefinition.kind, name)
    found = admin.store.get(ApplicationDefinition.kind, name)
    if found is None:
        raise EntryNotFound(f"{subject}: not found")
    if not tells_keys(found.value):
        raise StateConflict(f"{subject}: this version cannot read its keys: delete it to reject all of them at once")
    value = dict(found.value)
    for field_name in KEY_FIELDS:
        if field_name in value:
            value[field_name] = [key for key in value[field_name] if key["key_id"] != key_id]
    if value == found.value:
        raise EntryNotFound(f"{subject}: key {quoted(key_id)} not found")
    now = admin.store.put(ApplicationDefinition.kind, name, value, found.version)
    old, new = (
        {"keys": [{"key_id": key["key_id"]} for field_name in KEY_FIELDS for key in each.get(field_name, [])]}
        for each in (found.value, value)
    )
    audit.record(admin.store, admin.clock, admin.who, "change", ApplicationDefinition.kind, [name], old, new, now)
    return readable_part(name, value, {})


def grant(admin: Administrator, name: str, grants: Grants) -> ApplicationDefinition:
    """Add grants; existing ones stay."""

    def new(old: ApplicationDefinition) -> ApplicationDefinition:
        return _with(old, grants.all())

    return verbs.change(admin, ApplicationDefinition, name, new)


def ungrant(admin: Administrator, name: str, grants: Grants) -> ApplicationDefinition:
    """Remove grants, by the patterns that they were given with. Raises EntryNotFound for a missing one."""
    removed = grants.all()

    def new(old: ApplicationDefinition) -> ApplicationDefinition:
        # A grant of an earlier version is split when a part of it goes.
        held = [part for each in old.grants for part in (each.parts() if set(each.parts()) & set(removed) else (each,))]
        unknown = [each for each in removed if each not in held]
        if unknown:
            what = f"{_VERBS[unknown[0].action]} {quoted(unknown[0].pattern)}"
            raise EntryNotFound(f"{thing(old.kind, name)}: grant to {what} not found")
        return replace(old, grants=tuple(each for each in held if each not in removed))

    return verbs.change(admin, ApplicationDefinition, name, new)


class StoredKeys(NamedTuple):
    """Storage of the secrets of all keys: derived, or in clear.

    Attributes:
        clear: number of keys with secrets in clear, by application.
        derived: number of keys by the id of their root key.
    """

    clear: Counter[str]
    derived: Counter[str]

    @property
    def in_clear(self) -> str:
        """The keys whose secrets are stored in clear, in words."""
        keys, apps = self.clear.total(), len(self.clear)
        return (
            f"{apps:,} application{'s' * (apps != 1)} with {keys:,} key{'s' * (keys != 1)} whose secrets are in clear"
        )


def stored_keys(entries: Iterable[tuple[str, Any]]) -> StoredKeys:
    """Count the keys of applications, by name and stored value. Those that this version cannot read are left out."""
    found = StoredKeys(Counter(), Counter())
    for name, value in entries:
        try:
            app = ApplicationDefinition.from_value(name, value)
        except InvalidDefinition:
            continue
        for key in app.keys:
            found.derived.update([key.root] if isinstance(key, DerivedKey) else [])
            found.clear.update([] if isinstance(key, DerivedKey) else [name])
    return found


class ApplicationSettings(Changes):
    """Settings of an application, without its keys and grants."""

    definition = ApplicationDefinition


def set_application(
    admin: Administrator, name: str, settings: ApplicationSettings, seen: int | None = None
) -> ApplicationDefinition:  # fmt: skip
    """Change limits and allowed origins; in force within a second at every proxy. See `administrator.change` for `seen`."""
    return verbs.set_settings(admin, ApplicationDefinition, name, settings, seen)


def list_applications(
    admin: Administrator, prefix: str = "", after: str = "", limit: int = 1000,
    on_unreadable: OnUnreadable | None = None,
) -> list[ApplicationDefinition]:  # fmt: skip
    """See `administrator.page`."""
    return verbs.page(admin, ApplicationDefinition, prefix, after, limit, on_unreadable)


def show(admin: Administrator, name: str) -> tuple[ApplicationDefinition, int]:
    return verbs.get(admin, ApplicationDefinition, name)


def delete(admin: Administrator, name: str) -> None:
    verbs.delete(admin, ApplicationDefinition, name)


def is_valid(admin: Administrator, held: NewKey) -> bool:
    """Whether an application has this key with this secret.

    A secret whose root key is not here counts as right: only a process that has the root key can tell.
    """
    found = admin.store.get("application", held.app)
    key = None if found is None else ApplicationDefinition.from_value(held.app, found.value).key(held.key_id)
    if key is None:
        return False
    secret = admin.root_keys().secret_of(held.app, key)
    return secret is None or secrets.compare_digest(secret, held.secret)


def ensure_operator(admin: Administrator, name: str, held: NewKey | None) -> NewKey:
    """Return a working key of the machine's own application, which may do everything: `held` if it is valid, else a new
    one.

    Needs only the right to change the configuration, which every caller has anyway.
    """
    if admin.store.get("application", name) is None:
        return _create(admin, name, EVERYTHING)
    if held is not None and held.app == name and is_valid(admin, held):
        return held
    key, made = _new_key(admin, name)
    verbs.change(
        admin, ApplicationDefinition, name, lambda old: _with(replace(old, keys=(*old.keys[-1:], key)), EVERYTHING)
    )
    return made


def complete_operator(admin: Administrator, name: str) -> bool:
    """Give the machine's own application the grant for dead letters, if an earlier version made it; False: not needed."""
    found, _ = show(admin, name)
    if Grant(PULL, "*") not in found.grants or found.patterns(DEAD_LETTERS):
        return False
    verbs.change(admin, ApplicationDefinition, name, lambda old: _with(old, EVERYTHING))
    return True


def withdraw(admin: Administrator, key: NewKey) -> None:
    """Take back a key that was just made and could not be kept, with its application if that has no other."""
    left = revoke(admin, key.app, key.key_id)
    if not left.keys:
        delete(admin, key.app)


def _with(old: ApplicationDefinition, grants: Iterable[Grant]) -> ApplicationDefinition:
    """The application with more grants, without those that older ones include."""
    held = {part for each in old.grants for part in each.parts()}
    return replace(old, grants=(*old.grants, *(each for each in grants if not set(each.parts()) <= held)))


def _new_key(admin: Administrator, name: str) -> tuple[Key | DerivedKey, NewKey]:
    """A key for the store, and what its application gets of it."""
    key, secret = admin.root_keys().new_key(name, "k-" + secrets.token_hex(5), admin.clock.now_ms())
    return key, NewKey(name, key.key_id, secret)

"""Applications: keys, grants and settings. A secret leaves this module once, as the answer of create or rotate."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from common.admin import administrator as verbs
from common.admin import audit
from common.admin.administrator import Administrator, OnUnreadable
from common.admin.errors import StateConflict
from common.config.definitions import (
    DEAD_LETTERS,
    LIVE_KEYS_MAX,
    PULL,
    PULL_GROUP,
    PULL_TOPIC,
    SEND,
    ApplicationDefinition,
    Grant,
    Key,
)
from common.config.definitions.readable_part import readable_part, tells_keys
from common.config.errors import EntryNotFound, InvalidDefinition
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
    key = _new_key(admin)
    return _create(admin, name, key, tuple(grants.all()))


def _create(admin: Administrator, name: str, key: Key, grants: tuple[Grant, ...]) -> NewKey:
    app = ApplicationDefinition(name, (key,), grants)
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
    held = found.value.get("keys", [])
    left = [key for key in held if key["key_id"] != key_id]
    if len(left) == len(held):
        raise EntryNotFound(f"{subject}: key {quoted(key_id)} not found")
    value = {**found.value, "keys": left}
    now = admin.store.put(ApplicationDefinition.kind, name, value, found.version)
    old, new = ({"keys": [{"key_id": key["key_id"]} for key in keys]} for keys in (held, left))
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
    """Whether an application has this key with this secret."""
    found = admin.store.get("application", held.app)
    key = None if found is None else ApplicationDefinition.from_value(held.app, found.value).key(held.key_id)
    return key is not None and secrets.compare_digest(key.secret, held.secret)


def ensure_operator(admin: Administrator, name: str, held: NewKey | None) -> NewKey:
    """Return a working key of the machine's own application, which may do everything: `held` if it is valid, else a new
    one.

    Needs only the right to change the configuration, which every caller has anyway.
    """
    key = _new_key(admin)
    if admin.store.get("application", name) is None:
        return _create(admin, name, key, EVERYTHING)
    if held is not None and held.app == name and is_valid(admin, held):
        return held
    verbs.change(
        admin, ApplicationDefinition, name, lambda old: _with(replace(old, keys=(*old.keys[-1:], key)), EVERYTHING)
    )
    return NewKey(name, key.key_id, key.secret)


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


def _new_key(admin: Administrator) -> Key:
    return Key("k-" + secrets.token_hex(5), secrets.token_urlsafe(32), admin.clock.now_ms())

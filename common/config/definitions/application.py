"""Applications: keys, grants and settings."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from common.config.checks import Checks
from common.config.definition import Definition
from common.config.definitions.common import rate_bytes, rate_messages
from common.config.setting import Option, setting
from common.config.values import NetworkList, TextList, WholeNumber
from common.dead_letters import GROUP_PREFIX_CHARS_MAX, is_dead_letter_topic
from common.quoting import listed

LIVE_KEYS_MAX = 2
KEY_FIELDS = ("keys", "derived_keys")
"""The stored fields of keys with their secrets in clear, and of those whose secrets are derived. Processes of earlier
versions keep `derived_keys`, and accept no key of it."""
GRANTS_MAX = 200
ADDRESSES_MAX = 100
CERTIFICATES_MAX = 20
CREATIONS_MAX = 1_000_000_000

SEND, PULL_TOPIC, PULL_GROUP, DEAD_LETTERS = "send", "topic", "group", "dead_letters"
PULL = "pull"
"""Action of earlier versions: PULL_TOPIC and PULL_GROUP. To processes of those versions it is DEAD_LETTERS as well, so
commands no longer write it."""

_STORED_IN = {"grants": (SEND, PULL), "pull_grants": (PULL_TOPIC, PULL_GROUP, DEAD_LETTERS)}
"""The stored fields and their actions. Earlier versions keep `pull_grants` and grant nothing by it."""


@dataclass(frozen=True)
class Key:
    """One of an application's live keys. The secret's ASCII bytes, as shown once to the user, are the HMAC key."""

    key_id: str
    secret: str = field(repr=False)
    created_at_ms: int


@dataclass(frozen=True)
class DerivedKey:
    """A live key whose secret is not stored: it follows from a root key, see common/config/root_keys.py.

    Attributes:
        root: id of the root key.
    """

    key_id: str
    salt: str
    root: str
    created_at_ms: int


@dataclass(frozen=True, order=True)
class Grant:
    """Permission for one action on the names that match a pattern: a name, or a prefix followed by `*`.

    Attributes:
        action: SEND to topics, PULL_TOPIC from topics, PULL_GROUP as groups, or DEAD_LETTERS: pull those of groups. PULL
            is in definitions of earlier versions.
    """

    action: str
    pattern: str

    def parts(self) -> "tuple[Grant, ...]":
        """The grant in today's actions."""
        if self.action == PULL:
            return (Grant(PULL_TOPIC, self.pattern), Grant(PULL_GROUP, self.pattern))
        return (self,)


@dataclass(frozen=True)
class ApplicationDefinition(Definition):
    """An application. Without a key it cannot authenticate; without a grant it may do nothing."""

    kind: ClassVar[str] = "application"

    keys: tuple[Key | DerivedKey, ...] = ()  # the oldest first
    grants: tuple[Grant, ...] = ()
    rate_messages: int = rate_messages("Accept from it")
    rate_bytes: int = rate_bytes("Accept from it")
    addresses: tuple[str, ...] = setting(
        (),
        NetworkList("", ADDRESSES_MAX),
        "Allow calls from this network, as in 10.1.0.0/16.",
        unset="none: from anywhere",
        option=Option("address", metavar="NETWORK"),
    )
    certificates: tuple[str, ...] = setting(
        (),
        TextList("", CERTIFICATES_MAX),
        "Allow TLS connections whose client certificate has this name.",
        unset="none: no certificate is needed",
        option=Option("certificate", metavar="NAME"),
    )

    groups_max: int = setting(
        10_000,
        WholeNumber("groups", 0, CREATIONS_MAX),
        "Let it pull under at most this many group names without a definition, at each engine.",
        unset="0: only groups with a definition",
        more="Each costs an engine memory while it is in use, and its progress until it expires.",
    )
    family_topics_max: int = setting(
        1_000_000,
        WholeNumber("topics", 0, CREATIONS_MAX),
        "Let it create at most this many topics of families by its sends and pulls, at each engine.",
        unset="0: none",
        more="Each costs an engine disk, and stays.",
    )

    @classmethod
    def checked_parts(cls, checks: Checks) -> dict[str, Any]:
        keys = sorted(_keys(checks), key=lambda key: key.created_at_ms)
        return {"keys": tuple(keys), "grants": tuple(_grants(checks))}

    def to_value(self) -> dict[str, Any]:
        """The stored form, with the secrets that are stored in clear; only for the store."""
        keys: dict[str, Any] = {"keys": [asdict(key) for key in self.keys if isinstance(key, Key)]}
        if derived := [asdict(key) for key in self.keys if isinstance(key, DerivedKey)]:
            keys["derived_keys"] = derived
        grants = {
            field_name: [[grant.action, grant.pattern] for grant in self.grants if grant.action in actions]
            for field_name, actions in _STORED_IN.items()
        }
        if not grants["pull_grants"]:
            del grants["pull_grants"]
        return {**self.extra, **keys, **grants, **self._stored_settings()}

    def without_secrets(self) -> dict[str, Any]:
        """The form without secrets, for people, logs and the audit journal."""
        keys = [{"key_id": key.key_id, "created_at_ms": key.created_at_ms} for key in self.keys]
        shown = {name: value for name, value in self.to_value().items() if name not in KEY_FIELDS}
        return {**shown, "keys": keys}

    def key(self, key_id: str) -> Key | DerivedKey | None:
        return next((key for key in self.keys if key.key_id == key_id), None)

    def patterns(self, action: str) -> tuple[str, ...]:
        """The patterns that are granted for the action, by grants of any version."""
        parts = (part for grant in self.grants for part in grant.parts())
        return tuple(dict.fromkeys(part.pattern for part in parts if part.action == action))

    def allows(self, action: str, name: str) -> bool:
        """Whether the action is granted for this topic or group."""
        prefixes = tuple(each[:-1] for each in self.patterns(action) if each.endswith("*"))
        return name in self.patterns(action) or name.startswith(prefixes)


def _keys(checks: Checks) -> Iterator[Key | DerivedKey]:
    ids: set[str] = set()
    for name in KEY_FIELDS:
        for at, item in enumerate(checks.list_of(name, Mapping, LIVE_KEYS_MAX)):
            inner = checks.inside(f"{name}[{at}]", item)
            key_id, created_at_ms = inner.text("key_id", 1, 64), inner.integer("created_at_ms", 0, 0, 1 << 53)
            if name == "keys":
                yield Key(key_id, inner.text("secret", 16, 256), created_at_ms)
            else:
                yield DerivedKey(key_id, inner.text("salt", 16, 64), inner.text("root", 1, 64), created_at_ms)
            if key_id in ids:
                checks.fault(name, "two keys have the same key_id: use different ones")
            ids.add(key_id)


def _grants(checks: Checks) -> Iterator[Grant]:
    for name, actions in _STORED_IN.items():
        for at, item in enumerate(checks.list_of(name, list, GRANTS_MAX)):
            field_name = f"{name}[{at}]"
            if len(item) != 2 or item[0] not in actions:
                checks.wrong(field_name, item, "is not a grant", f"use [{listed(actions)}, pattern]")
            elif checks.pattern(field_name, item[1]) and _check_pattern(checks, field_name, *item):
                yield Grant(item[0], item[1])


def _check_pattern(checks: Checks, field_name: str, action: str, pattern: str) -> bool:
    """Check the rules of single actions."""
    if action == PULL_TOPIC and is_dead_letter_topic(pattern):
        checks.wrong(field_name, pattern, "names dead letters", "grant dead letters of their group instead")
        return False
    if action == DEAD_LETTERS and pattern.endswith("*") and len(pattern) > GROUP_PREFIX_CHARS_MAX + 1:
        rule = f"use a prefix of at most {GROUP_PREFIX_CHARS_MAX} characters for dead letters"
        checks.wrong(field_name, pattern, "is too long a prefix", rule)
        return False
    return True

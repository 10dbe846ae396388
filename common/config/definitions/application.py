"""Applications: keys, grants and settings."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from common.config.checks import Checks
from common.config.definition import Definition
from common.config.definitions.common import rate_bytes, rate_messages
from common.config.setting import Option, setting
from common.config.values import NetworkList, TextList

LIVE_KEYS_MAX = 2
GRANTS_MAX = 200
ADDRESSES_MAX = 100
CERTIFICATES_MAX = 20


@dataclass(frozen=True)
class Key:
    """One of an application's live keys. The secret's ASCII bytes, as shown once to the user, are the HMAC key."""

    key_id: str
    secret: str = field(repr=False)
    created_at_ms: int


@dataclass(frozen=True, order=True)
class Grant:
    """`action` is send or pull; `pattern` a name, or a prefix followed by `*`.

    Pull patterns hold for topics and groups.
    """

    action: str
    pattern: str


@dataclass(frozen=True)
class ApplicationDefinition(Definition):
    """An application. Without a key it cannot authenticate; without a grant it may do nothing."""

    kind: ClassVar[str] = "application"

    keys: tuple[Key, ...] = ()
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

    @classmethod
    def checked_parts(cls, checks: Checks) -> dict[str, Any]:
        return {"keys": tuple(_keys(checks)), "grants": tuple(_grants(checks))}

    def to_value(self) -> dict[str, Any]:
        """The stored form, with the secrets; only for the store."""
        keys = [{"key_id": key.key_id, "secret": key.secret, "created_at_ms": key.created_at_ms} for key in self.keys]
        grants = [[grant.action, grant.pattern] for grant in self.grants]
        return {**self.extra, "keys": keys, "grants": grants, **self._stored_settings()}

    def without_secrets(self) -> dict[str, Any]:
        """The form without secrets, for people, logs and the audit journal."""
        keys = [{"key_id": key.key_id, "created_at_ms": key.created_at_ms} for key in self.keys]
        return {**self.to_value(), "keys": keys}

    def key(self, key_id: str) -> Key | None:
        return next((key for key in self.keys if key.key_id == key_id), None)


def _keys(checks: Checks) -> Iterator[Key]:
    given = checks.list_of("keys", Mapping, LIVE_KEYS_MAX)
    for at, item in enumerate(given):
        inner = checks.inside(f"keys[{at}]", item)
        yield Key(
            key_id=inner.text("key_id", 1, 64),
            secret=inner.text("secret", 16, 256),
            created_at_ms=inner.integer("created_at_ms", 0, 0, 1 << 53),
        )
    ids = [item.get("key_id") for item in given]
    if len(set(map(str, ids))) != len(ids):
        checks.fault("keys", "two keys have the same key_id: use different ones")


def _grants(checks: Checks) -> Iterator[Grant]:
    for at, item in enumerate(checks.list_of("grants", list, GRANTS_MAX)):
        if len(item) != 2 or item[0] not in ("send", "pull"):
            checks.wrong(f"grants[{at}]", item, "is not a grant", 'use ["send" or "pull", pattern]')
        elif checks.pattern(f"grants[{at}]", item[1]):
            yield Grant(item[0], item[1])

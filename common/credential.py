"""Credentials: minted by an application, verified by a proxy; and the permissions of their bearer.

signature = HMAC-SHA256(secret, "penstock/1\\n" + app + "\\n" + key_id + "\\n" + decimal(issued_at_ms)), where the
secret is the text that `penstock app create` showed, as ASCII bytes. It is a bearer token: it does not cover the body
of a call.
"""

import hmac
import logging
from collections.abc import Iterable
from typing import Any

from common.callers import Origin
from common.clock import Clock
from common.config.definitions import DEAD_LETTERS, PULL_GROUP, PULL_TOPIC, SEND, ApplicationDefinition, DerivedKey
from common.config.view import ConfigView
from common.dead_letters import dead_letter_pattern
from common.errors import AuthenticationError, CredentialUnchecked
from common.limited_log import LimitedLog
from common.minting import CredentialFields as CredentialFields  # with the verifier, for those who need both
from common.minting import mint as mint
from common.minting import sign

limited = LimitedLog(logging.getLogger("penstock.credentials"))

WINDOW_MS = 300_000
REFUSED = (
    "credential rejected: the application or key is unknown, or the signature is wrong: check app, key id and secret"
)
ROOT_MISSING = "application=%s key=%s: its calls are refused: --secrets-key has no root key %s, which its secret needs"
_DUMMY_SECRET = "0" * 43  # so that an unknown application costs the same work as a wrong signature


class Principal:
    """An authenticated application and its permissions, as of one generation of the configuration.

    Callers may cache it by the credential's bytes until `expires_at_ms`, while the view's generation is `generation`.
    """

    __slots__ = (
        "_dead_letters", "_groups", "_send", "_topics", "app", "expires_at_ms", "generation", "key_id", "origin",
        "pull_patterns", "send_patterns",
    )  # fmt: skip

    def __init__(self, app: ApplicationDefinition, key_id: str, expires_at_ms: int, generation: int):
        self.app = app.name
        self.key_id = key_id
        self.expires_at_ms = expires_at_ms
        self.generation = generation
        self.origin = Origin(app.addresses, app.certificates)
        self.send_patterns = app.patterns(SEND)
        self._send = _Patterns(self.send_patterns)
        self.pull_patterns = app.patterns(PULL_TOPIC)
        self._topics = _Patterns(self.pull_patterns)
        self._groups = _Patterns(app.patterns(PULL_GROUP))
        self._dead_letters = _Patterns(map(dead_letter_pattern, app.patterns(DEAD_LETTERS)))

    def may_send(self, topic: str) -> bool:
        return self._send.match(topic)

    def may_pull_as(self, group: str) -> bool:
        """Whether the application may pull as this group. A pull also needs a grant for each of its topics."""
        return self._groups.match(group)

    def may_pull_from(self, topic: str) -> bool:
        """Whether the application may pull from this topic, which is not one of dead letters."""
        return self._topics.match(topic)

    def may_read_dead_letters(self, topic: str) -> bool:
        """Whether the application may pull from this topic of dead letters."""
        return self._dead_letters.match(topic)


class _Patterns:
    __slots__ = ("_exact", "_prefixes")

    def __init__(self, given: Iterable[str]):
        patterns = list(given)
        self._exact = frozenset(pattern for pattern in patterns if not pattern.endswith("*"))
        self._prefixes = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))

    def match(self, name: str) -> bool:
        return name in self._exact or name.startswith(self._prefixes)


class Verifier:
    def __init__(self, view: ConfigView, clock: Clock):
        self._view = view
        self._clock = clock

    def verify(self, fields: Any) -> Principal:
        """Return the bearer of a credential: any object with the four fields of the contract's struct, types unchecked.

        Raises:
            AuthenticationError: its sentence mentions clocks only to a caller that holds the secret.
        """
        generation = self._view.generation  # before the look-up, so that a cache does not miss a change in between
        if not self._view.is_trusted:
            raise CredentialUnchecked(
                f"credential not checked: this proxy has had no contact to its configuration for {self._view.age_s:.0f} s: "
                "use another proxy, or try again later"
            )
        if not self._view.trusts_keys_of(str(fields.app)):
            raise CredentialUnchecked(
                "credential not checked: the keys of its application cannot be read by this proxy's version: use another "
                "proxy, or try again later"
            )
        app, secret = self._find(fields)
        if not _signature_matches(fields, secret) or app is None:
            raise AuthenticationError(REFUSED)
        age_ms = self._clock.now_ms() - fields.issued_at_ms
        if abs(age_ms) > WINDOW_MS:
            when = f"{age_ms // 1000} s ago" if age_ms > 0 else f"{-age_ms // 1000} s in the future"
            raise AuthenticationError(
                f"credential expired: issued {when} by this proxy's clock, but it is valid for {WINDOW_MS // 1000} s: "
                "mint a new one, or set the clock"
            )
        return Principal(app, fields.key_id, fields.issued_at_ms + WINDOW_MS, generation)

    def _find(self, fields: Any) -> tuple[ApplicationDefinition | None, str]:
        app = self._view.application(fields.app) if isinstance(fields.app, str) else None
        key = app.key(fields.key_id) if app else None
        secret = self._view.root_keys.secret_of(app.name if app else "", key)
        if app is not None and isinstance(key, DerivedKey) and secret is None:
            limited.warning(ROOT_MISSING, app.name, key.key_id, key.root, about=key.root)
        return (app, secret) if secret else (None, _DUMMY_SECRET)


def _signature_matches(fields: Any, secret: str) -> bool:
    signature = fields.signature if isinstance(fields.signature, bytes) else b""
    if not isinstance(fields.issued_at_ms, int):
        return False
    wanted = sign(secret, str(fields.app), str(fields.key_id), fields.issued_at_ms)
    return hmac.compare_digest(signature, wanted)

"""A provider of OpenID Connect: its description, its keys, the way there, and the exchange of a code for a token.

References: OpenID Connect Discovery 1.0, sections 3 and 4; RFC 6749, section 4.1; RFC 7636.
"""

import base64
import json
import threading
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from common.clock import Clock
from console.errors import ProviderUnavailable, SignInRefused
from console.security.openid_attempt import OpenIdAttempt
from console.security.openid_settings import ExpectedToken, OpenIdSettings, is_safe_url

TIMEOUT_S, ANSWER_BYTES_MAX = 5.0, 1 << 20
DESCRIPTION_S, KEYS_S_LEAST = 3_600.0, 60.0
AWAY_S = 5.0
"""A provider that does not answer is not asked again for so long: visitors could hold all threads of the pages."""
USED_MAX = 10_000
TokenCheck = Callable[[str, Mapping[str, Any], ExpectedToken, int], dict[str, Any]]
"""`openid_tokens.check_id_token`, which is imported only where there is a provider: its library takes some 15 MB."""
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class OpenIdProvider:
    """One object for all threads."""

    def __init__(self, settings: OpenIdSettings, clock: Clock, check: TokenCheck) -> None:
        self.settings, self._clock, self._check = settings, clock, check
        self.host = urlsplit(settings.issuer).netloc
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._lock = threading.Lock()
        self._description: dict[str, Any] = {}
        self._described_s = self._keys_s = -DESCRIPTION_S
        self._away_s = -AWAY_S
        self._keys: dict[str, Any] = {}
        self._used: OrderedDict[str, None] = OrderedDict()

    def way(self, attempt: OpenIdAttempt, redirect_uri: str) -> str:
        """Where to send the browser. Raises ProviderUnavailable, SignInRefused."""
        query = {
            "response_type": "code", "client_id": self.settings.client_id, "redirect_uri": redirect_uri,
            "scope": self.settings.scopes, "state": attempt.state, "nonce": attempt.nonce,
            "code_challenge": attempt.challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        endpoint = self._describe()["authorization_endpoint"]
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query)}"

    def way_out(self, redirect_uri: str) -> str:
        """Where a person signs out of the provider, too; empty: it names no such page, or is away."""
        try:
            endpoint = self._describe().get("end_session_endpoint", "")
        except (ProviderUnavailable, SignInRefused):
            return ""
        if not is_safe_url(endpoint):
            return ""
        query = urlencode({"client_id": self.settings.client_id, "post_logout_redirect_uri": redirect_uri})
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{query}"

    def claims(self, attempt: OpenIdAttempt, code: str, redirect_uri: str) -> dict[str, Any]:
        """The checked claims that the provider gives for a code, once per attempt.

        Raises:
            ProviderUnavailable, SignInRefused
        """
        self._use(attempt.state)
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri,
            "client_id": self.settings.client_id, "code_verifier": attempt.verifier,
        }  # fmt: skip
        answer = self._exchange(form)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise SignInRefused("its answer has no ID token")
        expected = ExpectedToken(self.settings.issuer, self.settings.client_id, attempt.nonce)
        now_s = self._clock.now_ms() // 1000
        try:
            return self._check(token, self._key_set(False), expected, now_s)
        except SignInRefused:
            if not self._may_have_new_keys():
                raise
            return self._check(token, self._key_set(True), expected, now_s)

    def _use(self, state: str) -> None:
        """Note that an attempt is used. Raises SignInRefused the second time."""
        with self._lock:
            if state in self._used:
                raise SignInRefused("this answer was used already: begin again")
            self._used[state] = None
            while len(self._used) > USED_MAX:
                self._used.popitem(last=False)

    def _exchange(self, form: dict[str, str]) -> dict[str, Any]:
        description, headers = self._describe(), {"Accept": "application/json"}
        if self.settings.secret:
            if "client_secret_basic" in description.get(
                "token_endpoint_auth_methods_supported", ["client_secret_basic"]
            ):
                pair = f"{quote(self.settings.client_id, safe='')}:{quote(self.settings.secret, safe='')}"
                headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
            else:
                form = {**form, "client_secret": self.settings.secret}
        return self._ask(description["token_endpoint"], headers, urlencode(form).encode())

    def _describe(self) -> dict[str, Any]:
        """The provider's description, read again after an hour."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            if self._description and now_s - self._described_s < DESCRIPTION_S:
                return self._description
            if now_s - self._away_s < AWAY_S:
                raise ProviderUnavailable(f"{self.host} did not answer just now")
        try:
            found = self._ask(f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration")
        except ProviderUnavailable:
            self._away_s = self._clock.monotonic_s()
            raise
        if found.get("issuer") != self.settings.issuer:
            raise SignInRefused(
                f"it names itself {found.get('issuer')}, and the console is started with --openid-issuer "
                f"{self.settings.issuer}: an operator makes both the same"
            )
        if wrong := [name for name in ENDPOINTS if not is_safe_url(found.get(name))]:
            raise SignInRefused(f"its {wrong[0]} is not an https address")
        with self._lock:
            self._description, self._described_s = found, now_s
        return found

    def _may_have_new_keys(self) -> bool:
        return self._clock.monotonic_s() - self._keys_s >= KEYS_S_LEAST

    def _key_set(self, again: bool) -> dict[str, Any]:
        """The provider's keys; `again`: those that it has now."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            if self._keys and not again and now_s - self._keys_s < DESCRIPTION_S:
                return self._keys
        found = self._ask(self._describe()["jwks_uri"])
        with self._lock:
            self._keys, self._keys_s = found, now_s
        return found

    def _ask(self, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> dict[str, Any]:
        """The JSON object of an answer. Raises ProviderUnavailable, SignInRefused."""
        request = urllib.request.Request(url, body, dict(headers or {"Accept": "application/json"}))
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                data = answer.read(ANSWER_BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error) from error
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise ProviderUnavailable(f"{self.host} does not answer: {reason}") from error
        return self._object(data)

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        if error.code >= 500 or error.code < 400:
            return ProviderUnavailable(f"{self.host} answers with status {error.code}")
        try:
            told = self._object(error.read(ANSWER_BYTES_MAX)).get("error", "")
        except (SignInRefused, OSError):
            told = ""
        return SignInRefused(f"it answers with status {error.code}{f' ({told!s:.60})' if told else ''}")

    def _object(self, data: bytes) -> dict[str, Any]:
        try:
            found = json.loads(data) if len(data) <= ANSWER_BYTES_MAX else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise SignInRefused("its answer is not JSON")
        return found

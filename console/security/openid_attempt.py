"""One sign-in by OpenID Connect on its way: kept in a cookie of the browser that began it.

The console keeps nothing for visitors, so they cannot fill its database. It signs the cookie, which binds the provider's answer to the
browser: an answer that comes to another one has no such cookie. Reference for the challenge: RFC 7636.
"""

import base64
import hashlib
import json
import secrets
from dataclasses import asdict, dataclass

LASTS_S = 600
TEXT_CHARS_MAX = 3_500  # browsers keep cookies of 4 KiB


@dataclass(frozen=True)
class OpenIdAttempt:
    """
    Attributes:
        state: comes back with the answer. nonce: comes back in the token.
        verifier: proves to the provider that the code is used by the one who asked for it.
        target: the page to go on with.
    """

    state: str
    nonce: str
    verifier: str
    target: str
    ends_s: int

    @classmethod
    def new(cls, target: str, now_s: int) -> "OpenIdAttempt":
        return cls(
            secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48), target, now_s + LASTS_S
        )

    @property
    def challenge(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def to_cookie(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode()

    @classmethod
    def from_cookie(cls, text: str) -> "OpenIdAttempt | None":
        """None: there is none, or it is not one of ours."""
        if not 0 < len(text) <= TEXT_CHARS_MAX:
            return None
        try:
            value = json.loads(base64.urlsafe_b64decode(text.encode()))
            found = cls(**value)
        except (ValueError, TypeError, RecursionError):
            return None
        texts = (found.state, found.nonce, found.verifier, found.target)
        is_sound = all(isinstance(each, str) and each for each in texts) and isinstance(found.ends_s, int)
        return found if is_sound else None

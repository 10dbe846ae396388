"""ID tokens of OpenID Connect: signature and claims are checked by joserfc, of the extra `penstock[console-openid]`.

Reference: OpenID Connect Core 1.0, section 3.1.3.7.
"""

from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from console.errors import SignInRefused
from console.security.openid_settings import ExpectedToken

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
"""Signatures by public keys only: a shared secret or none would let others sign."""
LEEWAY_S = 60
SUBJECT_CHARS_MAX = 255
TOKEN_CHARS_MAX = 64 << 10


def check_id_token(text: str, keys: Mapping[str, Any], expected: ExpectedToken, now_s: int) -> dict[str, Any]:
    """The claims of a token that is valid now.

    Args:
        keys: the provider's JSON Web Key Set.
    Raises:
        SignInRefused: in a sentence that names the rule.
    """
    if len(text) > TOKEN_CHARS_MAX:
        raise SignInRefused("its token is too long")
    try:
        claims = dict(jwt.decode(text, KeySet.import_key_set(dict(keys)), algorithms=list(ALGORITHMS)).claims)  # type: ignore[arg-type]
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise SignInRefused(f"its token cannot be verified: {' '.join(str(error).split())[:200]}") from error
    _check_claims(claims, expected, now_s)
    return claims


def _check_claims(claims: Mapping[str, Any], expected: ExpectedToken, now_s: int) -> None:
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    expires_s, issued_s, subject = _time(claims, "exp"), _time(claims, "iat"), claims.get("sub")
    if claims.get("iss") != expected.issuer:
        raise SignInRefused(f"its token is of issuer {claims.get('iss')}, and the console expects {expected.issuer}")
    if expected.client_id not in audiences:
        told = ", ".join(map(str, audiences)) or "nobody"
        raise SignInRefused(f"its token is for {told}, and the console is {expected.client_id}")
    if len(audiences) > 1 and claims.get("azp") != expected.client_id:
        raise SignInRefused("its token is for several clients and was made for another one than the console")
    if expires_s is None or issued_s is None:
        raise SignInRefused("its token does not say when it was made and when it expires")
    if expires_s <= now_s - LEEWAY_S:
        raise SignInRefused("its token has expired: begin again, and compare the clocks of both machines")
    if issued_s > now_s + LEEWAY_S:
        raise SignInRefused("its token is from the future: compare the clocks of both machines")
    if claims.get("nonce") != expected.nonce:
        raise SignInRefused("its token belongs to another sign-in: begin again")
    if not isinstance(subject, str) or not 1 <= len(subject) <= SUBJECT_CHARS_MAX or not subject.isprintable():
        raise SignInRefused("its token has no subject that the console can keep")


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """A claim in Unix seconds; None: it is no time."""
    value = claims.get(name)
    is_time = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1 << 40
    return value if is_time else None

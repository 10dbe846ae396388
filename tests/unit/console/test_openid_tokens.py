"""ID tokens, roles and attempts of OpenID Connect: what is accepted, and what is refused in which words."""

import pytest

pytest.importorskip("joserfc", reason="the extra console-openid")
from joserfc import jwt
from joserfc.jwk import KeySet, OctKey, RSAKey

from console.errors import SignInRefused
from console.roles import Role
from console.security.openid_attempt import OpenIdAttempt
from console.security.openid_roles import parse_roles, role_of
from console.security.openid_settings import ExpectedToken, is_safe_url
from console.security.openid_tokens import check_id_token

NOW_S = 1_800_000_000
EXPECTED = ExpectedToken("https://id.example", "console", "the-nonce")
KEY, OTHER_KEY = (RSAKey.generate_key(2048, {"kid": kid}) for kid in ("one", "two"))
KEYS = KeySet([KEY]).as_dict()
GOOD = {
    "iss": "https://id.example", "aud": "console", "sub": "7", "nonce": "the-nonce", "iat": NOW_S, "exp": NOW_S + 300,
}  # fmt: skip


def token(key=KEY, algorithm="RS256", **claims):
    value = {name: each for name, each in {**GOOD, **claims}.items() if each is not None}
    return jwt.encode({"alg": algorithm, "kid": "one"}, value, key, algorithms=[algorithm])


def test_a_good_token_gives_its_claims():
    assert check_id_token(token(email="a@b"), KEYS, EXPECTED, NOW_S)["email"] == "a@b"
    assert check_id_token(token(aud=["console", "other"], azp="console"), KEYS, EXPECTED, NOW_S)["sub"] == "7"


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"iss": "https://evil.example"}, "is of issuer https://evil.example"),
        ({"iss": None}, "is of issuer None"),
        ({"aud": "another"}, "is for another, and the console is console"),
        ({"aud": []}, "is for nobody"),
        ({"aud": ["console", "another"]}, "made for another one"),
        ({"exp": NOW_S - 61}, "has expired"),
        ({"exp": None}, "does not say when"),
        ({"exp": True}, "does not say when"),
        ({"iat": NOW_S + 61}, "from the future"),
        ({"nonce": "of another sign-in"}, "belongs to another sign-in"),
        ({"nonce": None}, "belongs to another sign-in"),
        ({"sub": None}, "no subject"),
        ({"sub": ""}, "no subject"),
        ({"sub": "x" * 256}, "no subject"),
        ({"sub": "a\u202eb"}, "no subject"),
    ],
)
def test_a_token_with_a_wrong_claim_is_refused_in_a_sentence(claims, words):
    with pytest.raises(SignInRefused, match=words):
        check_id_token(token(**claims), KEYS, EXPECTED, NOW_S)


def test_a_token_that_another_key_signed_or_none_is_refused():
    head, body, _ = token().split(".")
    unsigned = "eyJhbGciOiJub25lIn0." + body + "."
    by_secret = token(OctKey.generate_key(256), "HS256")
    for text in (token(OTHER_KEY), unsigned, by_secret, f"{head}.{body}.AAAA", "", "a.b", "x" * 70_000, "é.é.é"):
        with pytest.raises(SignInRefused, match=r"cannot be verified|too long"):
            check_id_token(text, KEYS, EXPECTED, NOW_S)
    for keys in ({}, {"keys": []}, {"keys": [{"kty": "nonsense"}]}, {"keys": 7}):
        with pytest.raises(SignInRefused, match="cannot be verified"):
            check_id_token(token(), keys, EXPECTED, NOW_S)


def test_roles_come_from_the_table_and_without_one_people_are_viewers():
    roles = parse_roles("ops=operator, cn=dev=owner")
    assert role_of({"groups": ["cn=dev", "ops"]}, "groups", roles) == Role.OPERATOR
    assert role_of({"groups": "cn=dev"}, "groups", roles) == Role.OWNER
    assert role_of({"realm": {"roles": "ops"}}, "realm.roles", roles) == Role.OPERATOR
    for claims in ({}, {"groups": None}, {"groups": ["admin"]}, {"groups": [{}, 7]}, {"groups": {"admin": True}}):
        assert role_of(claims, "groups", roles) == Role.VIEWER
    for text in ("ops", "=admin", "ops=root"):
        with pytest.raises(ValueError, match="use VALUE=ROLE"):
            parse_roles(text)


def test_an_attempt_is_read_from_its_own_cookie_only():
    made = OpenIdAttempt.new("/topics", 10)
    assert OpenIdAttempt.from_cookie(made.to_cookie()) == made
    assert len({made.state, made.nonce, made.verifier}) == 3 and len(made.verifier) >= 43
    for text in ("", "x", "e30=", "W10=", "é", "A" * 5_000, OpenIdAttempt.new("", 1).to_cookie()):
        assert OpenIdAttempt.from_cookie(text) is None


def test_the_challenge_is_that_of_the_example_in_rfc_7636():
    attempt = OpenIdAttempt("state", "nonce", "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "/", 1)
    assert attempt.challenge == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


@pytest.mark.parametrize(
    ("url", "is_safe"),
    [
        ("https://id.example/realm", True), ("http://localhost:9400", True), ("http://127.0.0.1:1/x", True),
        ("http://[::1]/", True), ("http://id.example", False), ("ftp://id.example", False), ("https://", False),
        ("https://a@id.example", False), ("https://id.example/#x", False), ("https://id.example/ x", False),
        ("https://[x", False), (7, False), ("file:///etc/passwd", False),
    ],
)  # fmt: skip
def test_a_provider_is_asked_by_tls_or_on_this_machine(url, is_safe):
    assert is_safe_url(url) == is_safe

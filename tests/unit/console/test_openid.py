"""Sign-in by OpenID Connect against a real small provider, oidc-provider-mock from PyPI, by HTTP."""

import base64
import hashlib
import json
import logging
import time
import urllib.error
import urllib.request
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from common.clock import FakeClock
from console.roles import Role
from console.security.openid_attempt import OpenIdAttempt
from console.security.openid_provider import OpenIdProvider
from console.security.openid_settings import OpenIdSettings
from console.security.openid_tokens import check_id_token
from console.security.sign_in_brake import FREE
from tests.unit.console.consoles import SETUP, text_of

oidc_provider_mock = pytest.importorskip("oidc_provider_mock")
ROLES = {"ops": Role.OPERATOR, "bosses": Role.ADMIN}
ANSWER = "/sign-in/openid/answer"


@pytest.fixture(scope="module")
def issuer():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with oidc_provider_mock.run_server_in_thread() as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture
def signing(console, issuer):
    """A console with an administrator and the provider; its clock is the real one until a test turns it."""
    console.account("ada", "admin")
    return with_provider(console, OpenIdSettings(issuer, "console", "a secret", "groups", ROLES))


def with_provider(console, settings):
    return console.with_parts(openid=OpenIdProvider(settings, FakeClock(int(time.time() * 1000)), check_id_token))


def person(issuer, subject, **claims):
    """Tell the provider what it says about a person."""
    request = urllib.request.Request(
        f"{issuer}/users/{subject}", json.dumps(claims).encode(), {"Content-Type": "application/json"}, method="PUT"
    )
    urllib.request.urlopen(request, timeout=10).close()


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def at_provider(way, subject="", action="authorize"):
    """What the person does on the provider's page; returns the query of the way back."""
    try:
        urllib.request.build_opener(_Stay).open(way, urlencode({"sub": subject, "action": action}).encode(), timeout=10)
    except urllib.error.HTTPError as answer:
        return urlsplit(answer.headers["Location"]).query
    raise AssertionError("the provider does not send the browser back")


def state_of(begun):
    return parse_qs(urlsplit(begun.location).query)["state"][0]


def sign_in(console, subject, client=None, target="/topics"):
    client = client or console.visitor()
    begun = client.get(f"/sign-in/openid?next={target}")
    assert begun.status_code == 303, text_of(begun)
    return client, client.get(f"{ANSWER}?{at_provider(begun.location, subject)}")


def test_the_way_to_the_provider_has_state_nonce_and_challenge(signing, issuer):
    begun = signing.visitor().get("/sign-in/openid")
    query = parse_qs(urlsplit(begun.location).query)
    assert begun.location.startswith(f"{issuer}/") and query["response_type"] == ["code"]
    assert query["code_challenge_method"] == ["S256"] and len(query["code_challenge"][0]) == 43
    assert len(query["state"][0]) == len(query["nonce"][0]) == 43
    assert query["redirect_uri"] == ["http://localhost/sign-in/openid/answer"]
    cookie = begun.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Max-Age=600" in cookie


def test_a_person_signs_in_is_known_again_by_issuer_and_subject_and_signs_out(signing, issuer):
    person(issuer, "u-17", preferred_username="Olga Ö.", groups=["ops"])
    client, answer = sign_in(signing, "u-17")
    assert (answer.status_code, answer.location) == (303, "/topics")
    assert client.get("/audit").status_code == 200, "the claim gives the role operator"
    made = signing.parts.accounts.find("Olga")
    assert made.is_linked and made.role == Role.OPERATOR and made.password is None
    signing.as_role("viewer", "eve")
    person(issuer, "u-17", preferred_username="eve", groups=[])
    client, _ = sign_in(signing, "u-17")
    again = signing.parts.accounts.find("Olga")
    assert again.id == made.id and again.role == Role.VIEWER, "the role follows the claim, the name does not"
    assert client.get("/audit").status_code == 403
    page = client.get("/account").get_data(as_text=True)
    csrf = page.partition('name="csrf" value="')[2].partition('"')[0]
    gone = client.post("/sign-out", data={"csrf": csrf})
    assert gone.location == "/sign-in?said=sign_in.leave" and client.get("/topics").status_code == 302
    assert f"Sign out of {urlsplit(issuer).netloc}" in text_of(client.get(gone.location))


def test_a_name_or_address_of_an_account_gives_no_way_into_it(signing, issuer):
    person(issuer, "evil", preferred_username="ada", email="ada")
    sign_in(signing, "evil")
    assert signing.parts.accounts.find("ada").is_linked is False
    assert signing.parts.accounts.find("ada-2").role == Role.VIEWER


def test_without_a_table_of_roles_people_begin_as_viewers_and_keep_what_an_administrator_gave(console, issuer):
    console.account("ada", "admin")
    with_provider(console, OpenIdSettings(issuer, "console", "a secret"))
    person(issuer, "nils", email="nils", groups=["bosses"], role="admin")
    sign_in(console, "nils")
    own = console.parts.accounts.find("nils")
    assert own.role == Role.VIEWER
    console.parts.accounts.change(SETUP, own.id, "owner", True, [console.team_id])
    sign_in(console, "nils")
    assert console.parts.accounts.find("nils").role == Role.OWNER
    console.parts.accounts.change(SETUP, own.id, "owner", False, [])
    _, answer = sign_in(console, "nils")
    assert answer.status_code == 401 and "is switched off" in text_of(answer)


def test_an_answer_counts_once_in_the_browser_that_began_and_for_10_minutes(signing):
    client, other = signing.visitor(), signing.visitor()
    begun = client.get("/sign-in/openid")
    kept = client.get_cookie("penstock-openid").value
    query = at_provider(begun.location, "u-1")
    stolen = other.get(f"{ANSWER}?{query}")
    assert stolen.status_code == 401 and "no sign-in was begun in this browser" in text_of(stolen)
    assert client.get(f"{ANSWER}?{query}").status_code == 303
    client.set_cookie("penstock-openid", kept)
    assert "was used already" in text_of(client.get(f"{ANSWER}?{query}"))
    for wrong in ("state=x", "", "code=y&state=", f"{query}x"):
        client.get("/sign-in/openid")
        assert client.get(f"{ANSWER}?{wrong}").status_code == 401
    begun = client.get("/sign-in/openid")
    signing.clock.advance(601_000)
    assert client.get(f"{ANSWER}?{at_provider(begun.location, 'u-1')}").status_code == 401


def test_a_token_that_has_expired_meanwhile_is_refused(signing):
    signing.parts.openid._clock.advance(86_400_000)
    _, answer = sign_in(signing, "u-1")
    assert answer.status_code == 401 and "has expired" in text_of(answer) and "clocks" in text_of(answer)


def test_a_token_for_another_client_is_refused(signing, issuer, monkeypatch):
    """The provider makes it for the client that asked; the console was started as another one."""
    provider, honest = signing.parts.openid, signing.parts.openid.settings
    client = signing.visitor()
    begun = client.get("/sign-in/openid")
    query = at_provider(begun.location, "u-1")
    real = provider._exchange

    def exchange(form):
        answer = real(form)
        provider.settings = OpenIdSettings(issuer, "another", "a secret")
        return answer

    monkeypatch.setattr(provider, "_exchange", exchange)
    answer = client.get(f"{ANSWER}?{query}")
    provider.settings = honest
    assert answer.status_code == 401 and "the console is another" in text_of(answer)


def test_the_code_of_another_browsers_sign_in_is_refused(signing):
    client, other = signing.visitor(), signing.visitor()
    begun, there = client.get("/sign-in/openid"), other.get("/sign-in/openid")
    code = parse_qs(at_provider(begun.location, "u-1"))["code"][0]
    answer = other.get(f"{ANSWER}?{urlencode({'code': code, 'state': state_of(there)})}")
    assert answer.status_code == 401 and "belongs to another sign-in" in text_of(answer)
    answer = signing.visitor().get(f"{ANSWER}?code=made-up&state=x")
    assert answer.status_code == 401


def test_the_exchange_proves_that_it_began_the_sign_in(signing, monkeypatch):
    """The provider of the tests does not check it, so the request is looked at."""
    sent, real = [], signing.parts.openid._exchange
    monkeypatch.setattr(signing.parts.openid, "_exchange", lambda form: sent.append(form) or real(form))
    client = signing.visitor()
    begun = client.get("/sign-in/openid")
    asked = parse_qs(urlsplit(begun.location).query)
    assert client.get(f"{ANSWER}?{at_provider(begun.location, 'u-1')}").status_code == 303
    digest = hashlib.sha256(sent[0]["code_verifier"].encode()).digest()
    assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == asked["code_challenge"][0]
    assert sent[0]["redirect_uri"] == asked["redirect_uri"][0]


def test_an_address_with_many_wrong_codes_is_put_on_the_brake(signing):
    answers = []
    for _ in range(FREE + 1):
        client = signing.visitor()
        state = state_of(client.get("/sign-in/openid"))
        answers.append(text_of(client.get(f"{ANSWER}?code=made-up&state={state}")))
    assert "too many attempts" not in answers[-2] and "too many attempts have failed" in answers[-1]


def test_a_person_who_declines_is_told(signing):
    client = signing.visitor()
    begun = client.get("/sign-in/openid")
    answer = client.get(f"{ANSWER}?{at_provider(begun.location, action='deny')}&state={state_of(begun)}")
    assert answer.status_code == 401 and "access_denied" in text_of(answer)


def test_visitors_fill_no_audit(signing):
    """Neither by cookies that they make up, nor by answers that the provider has not given, nor on the brake."""
    before = signing.parts.log.latest(limit=1)[0]["id"]
    forged = OpenIdAttempt.new("/", int(time.time()))
    for _ in range(3):
        client = signing.visitor()
        for cookie in (forged.to_cookie(), signing.parts.signatures.sign("browser", forged.to_cookie())):
            client.set_cookie("penstock-openid", cookie)
            answer = client.get(f"{ANSWER}?state={forged.state}&error=flood")
            assert answer.status_code == 401 and "no sign-in was begun" in text_of(answer)
        state = state_of(client.get("/sign-in/openid"))
        assert client.get(f"{ANSWER}?state={state}&error=flood").status_code == 401
    assert signing.parts.log.latest(limit=1)[0]["id"] == before
    for _ in range(3 * FREE):
        state = state_of(client.get("/sign-in/openid"))
        client.get(f"{ANSWER}?code=made-up&state={state}")
    assert signing.parts.log.latest(limit=1)[0]["id"] == before + FREE, "what the provider refuses, until the brake"


def test_a_provider_of_another_name_is_a_fault_of_the_configuration(console, issuer):
    console.account("ada", "admin")
    other = f"{issuer}/"
    answer = with_provider(console, OpenIdSettings(other, "console")).visitor().get("/sign-in/openid")
    assert answer.status_code == 401 and f"started with --openid-issuer {other}" in text_of(answer)


@pytest.mark.parametrize("away", ["http://127.0.0.1:1", "http://localhost:1/realm"])
def test_with_the_provider_away_the_page_says_so_and_passwords_still_work(console, away):
    console.account("ada", "admin")
    client = with_provider(console, OpenIdSettings(away, "console")).visitor()
    answer = client.get("/sign-in/openid")
    assert answer.status_code == 503 and "does not answer" in text_of(answer)
    assert 'name="password"' in answer.get_data(as_text=True)
    assert client.get("/sign-in?said=sign_in.leave").status_code == 200
    assert "did not answer just now" in text_of(client.get("/sign-in/openid")), "it is not asked again at once"


def test_without_an_administrator_or_a_provider_nobody_comes_in_by_it(console, issuer):
    assert console.visitor().get("/sign-in/openid").status_code == 404
    client = with_provider(console, OpenIdSettings(issuer, "console", "a secret")).visitor()
    assert "no administrator yet" in text_of(client.get("/sign-in/openid"))
    assert console.parts.accounts.count() == 0

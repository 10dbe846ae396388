"""Sign-in: links, passwords, sessions, the brake."""

import pytest

from console.security.origins import Origins
from console.security.passwords import Passwords
from console.security.sign_in_brake import FREE, FREE_BY_NAME, KEYS_MAX, PAUSE_S_MAX, SignInBrake
from tests.unit.console.consoles import SETUP, text_of

PASSWORD = "correct horse"
FIRST = {"name": "ada", "team": "platform", "password": PASSWORD, "again": PASSWORD}


@pytest.fixture
def ada(console):
    console.parts.accounts.add(SETUP, "ada", "admin", [console.team_id], console.parts.passwords.encode(PASSWORD))
    return console


def sign_in(client, name="ada", password=PASSWORD, **more):
    return client.post("/sign-in", data={"name": name, "password": password, **more})


def test_the_first_link_makes_an_administrator_and_works_once(console):
    path = f"/link/{console.parts.links.make(None)}"
    client = console.visitor()
    assert client.get(path).status_code == client.get(path).status_code == 200, "looking at it does not use it"
    assert client.post(path, data=FIRST).status_code == 303
    assert client.get("/people").status_code == 200
    late = console.visitor()
    assert late.get(path).status_code == late.post(path, data={**FIRST, "name": "eve"}).status_code == 410
    assert [each.name for each in console.parts.accounts.all()] == ["ada"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"password": "short", "again": "short"}, "Use 10 to 256 characters"),
        ({"again": "different words"}, "two passwords differ"),
        ({"name": "<b>"}, "beginning with a letter or digit"),
        ({"team": ""}, "beginning with a letter or digit"),
    ],
)
def test_a_faulty_form_does_not_use_the_link(console, fields, words):
    path = f"/link/{console.parts.links.make(None)}"
    answer = console.visitor().post(path, data={**FIRST, **fields})
    assert answer.status_code == 422 and words in text_of(answer)
    assert console.visitor().post(path, data=FIRST).status_code == 303


def test_a_link_expires(console):
    path = f"/link/{console.parts.links.make(None)}"
    console.clock.advance(24 * 3_600_000 + 1)
    assert console.visitor().get(path).status_code == 410


def test_a_new_link_voids_the_one_before_and_a_used_one_ends_all_sessions(ada):
    account = ada.parts.accounts.find("ada")
    old = ada.browser(ada.parts.sessions.open(account))
    first, second = ada.parts.links.make(account.id), ada.parts.links.make(account.id)
    assert ada.visitor().get(f"/link/{first}").status_code == 410
    fields = {"password": "another horse", "again": "another horse"}
    assert ada.visitor().post(f"/link/{second}", data=fields).status_code == 303
    assert old.get("/topics").status_code == 302, "the session of the old password has ended"
    assert (
        sign_in(ada.visitor()).status_code == 401
        and sign_in(ada.visitor(), password="another horse").status_code == 303
    )


def test_each_sign_in_has_a_new_token_and_ends_the_session_before(ada):
    client = ada.visitor()
    sign_in(client)
    first = client.get_cookie("penstock").value
    sign_in(client)
    assert client.get_cookie("penstock").value != first
    assert ada.parts.sessions.find(first) is None


def test_a_token_that_a_visitor_brought_is_not_taken_over(ada):
    client = ada.visitor()
    client.set_cookie("penstock", "chosen-by-somebody-else")
    sign_in(client)
    assert client.get_cookie("penstock").value != "chosen-by-somebody-else"


def test_a_session_ends_when_idle_after_its_time_and_by_signing_out(ada):
    client = ada.visitor()
    sign_in(client)
    for _ in range(13):
        ada.clock.advance(29 * 60_000)
        assert client.get("/topics").status_code == 200
    ada.clock.advance(31 * 60_000)
    assert client.get("/topics").status_code == 302
    sign_in(client)
    for _ in range(26):
        ada.clock.advance(28 * 60_000)
        client.get("/topics")
    assert client.get("/topics").status_code == 302, "12 hours are the end, however busy"


def test_a_switched_off_account_is_out_at_once(ada):
    bob = ada.as_role("operator", "bob")
    admin = ada.browser(ada.parts.sessions.open(ada.parts.accounts.find("ada")))
    assert admin.post(f"/people/{bob.session.account.id}", role="operator").status_code == 200
    assert bob.get("/topics").status_code == 302
    assert "last administrator" in text_of(
        admin.post(f"/people/{admin.session.account.id}", role="viewer", is_active="on")
    )


@pytest.mark.parametrize("name", ["ada", "nobody", "", "a" * 5_000, "\x00", "ada' OR '1'='1", "﷽" * 64])
def test_wrong_passwords_and_unknown_names_get_one_answer(ada, name):
    answer = sign_in(ada.visitor(), name, "wrong password")
    assert answer.status_code == 401 and "The name or the password is wrong." in text_of(answer)


def test_failures_put_on_the_brake_for_the_name_whatever_the_password(ada):
    for _ in range(FREE):
        assert sign_in(ada.visitor(), password="wrong").status_code == 401
    answer = sign_in(ada.visitor())
    assert answer.status_code == 429 and int(answer.headers["Retry-After"]) >= 1
    ada.clock.advance(1_001)
    assert sign_in(ada.visitor()).status_code == 303


def test_the_brake_grows_to_five_minutes_forgets_after_an_hour_and_is_bounded():
    now = [0.0]
    brake = SignInBrake(lambda: now[0])
    for _ in range(100):
        brake.failed("ada")
    assert brake.wait_s("ada") == PAUSE_S_MAX
    now[0] += 3_601
    brake.failed("ada")
    assert brake.wait_s("ada") == 0.0
    for number in range(KEYS_MAX + 10):
        brake.failed(f"name {number}")
    assert len(brake._failed) == KEYS_MAX


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("/topics", "/topics"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil", "/"),
        ("/a\nb", "/"),
        ("", "/"),
    ],
)
def test_sign_in_goes_on_to_pages_of_the_console_only(ada, target, place):
    assert sign_in(ada.visitor(), next=target).location == place


def test_passwords_are_argon2id_and_the_database_has_no_secret(ada):
    assert ada.parts.accounts.find("ada").password.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    session = ada.as_role("viewer").session
    link = ada.parts.links.make(session.account.id)
    with ada.parts.database.read() as connection:
        dump = "\n".join(connection.connection.iterdump())
    assert session.token not in dump and link not in dump and PASSWORD not in dump


def test_a_password_of_no_account_is_never_right():
    passwords = Passwords()
    assert not passwords.is_right(None, "of nobody") and not passwords.is_right("not an encoding", "x")


def test_failed_and_good_sign_ins_are_in_the_audit(ada):
    sign_in(ada.visitor(), password="wrong")
    sign_in(ada.visitor())
    assert [row["action"] for row in ada.parts.log.latest(limit=2)] == ["sign-in", "failed sign-in"]


def test_strangers_do_not_keep_an_account_out_of_a_browser_that_it_has_used(ada):
    own = ada.visitor()
    sign_in(own)
    for _ in range(FREE + 7):
        sign_in(ada.visitor(), password="wrong")
    assert sign_in(ada.visitor()).status_code == 429
    assert sign_in(own).status_code == 303
    for _ in range(FREE):
        assert sign_in(own, password="wrong").status_code == 401
    assert sign_in(own).status_code == 429, "nor may it guess without end"


def test_a_made_up_cookie_of_a_browser_and_one_of_another_account_are_strangers(ada):
    eve = ada.parts.accounts.add(SETUP, "eve", "viewer", [], ada.parts.passwords.encode(PASSWORD))
    for cookie in (f"{ada.parts.accounts.find('ada').id} 00.00", ada.parts.signatures.sign("browser", f"{eve} 00")):
        for _ in range(FREE):
            sign_in(ada.visitor(), password="wrong")
        client = ada.visitor()
        client.set_cookie("penstock-browser", cookie)
        assert sign_in(client).status_code == 429


def test_guesses_of_one_name_from_many_addresses_are_put_on_the_brake(ada):
    for number in range(FREE_BY_NAME):
        client = ada.app.test_client()
        answer = client.post(
            "/sign-in", data={"name": "ada", "password": "wrong"}, environ_base={"REMOTE_ADDR": f"10.0.0.{number}"}
        )
        assert answer.status_code == 401
    late = ada.app.test_client()
    fields = {"name": "ada", "password": PASSWORD}
    assert late.post("/sign-in", data=fields, environ_base={"REMOTE_ADDR": "10.1.0.1"}).status_code == 429


def test_a_new_password_a_used_link_switching_off_and_an_administrator_end_the_tokens(ada):
    account = ada.parts.accounts.find("ada")
    client = ada.browser(ada.parts.sessions.open(account))
    bob = ada.as_role("operator", "bob").session.account

    def token(of=account):
        return ada.parts.tokens.make(SETUP, of, "stolen", "viewer", 366)

    taken = token()
    new = {"old": PASSWORD, "password": "another horse", "again": "another horse"}
    assert client.post("/account/password", **new).status_code == 303
    assert ada.parts.tokens.find(taken) is None
    taken, link = token(), ada.parts.links.make(account.id)
    fields = {"password": PASSWORD, "again": PASSWORD}
    assert ada.visitor().post(f"/link/{link}", data=fields).status_code == 303
    assert ada.parts.tokens.find(taken) is None
    admin = ada.browser(ada.parts.sessions.open(account))
    taken = token(bob)
    admin.post(f"/people/{bob.id}", role="operator")
    admin.post(f"/people/{bob.id}", role="operator", is_active="on")
    assert ada.parts.tokens.find(taken) is None, "switching on again does not bring it back"
    taken, session = token(bob), ada.parts.sessions.open(bob)
    assert admin.post(f"/people/{bob.id}/end").status_code == 200
    assert ada.parts.tokens.find(taken) is None and ada.parts.sessions.find(session.token) is None
    assert ada.parts.log.latest(limit=1)[0]["new"] == {"sessions": 1, "api_tokens": 1}
    assert admin.post("/people/99999/end").status_code == 422


def test_a_token_is_made_only_with_the_password(ada):
    browser = ada.browser(ada.parts.sessions.open(ada.parts.accounts.find("ada")))
    fields = {"name": "deploy", "role": "viewer", "days": "30"}
    assert "not your present password" in text_of(browser.post("/api/tokens", **fields, password="guess"))
    assert browser.post("/api/tokens", **fields).status_code == 422
    assert ada.parts.tokens.of(browser.session.account.id) == []
    assert "penstock_" in text_of(browser.post("/api/tokens", **fields, password=PASSWORD))


def test_old_failures_leave_the_audit_and_actions_stay(ada):
    sign_in(ada.visitor())
    sign_in(ada.visitor(), password="wrong")
    ada.clock.advance(91 * 86_400_000)
    sign_in(ada.visitor(), password="wrong")
    actions = [row["action"] for row in ada.parts.log.latest(limit=10)]
    assert actions.count("failed sign-in") == 1 and "sign-in" in actions


def test_a_one_time_link_has_the_public_url(ada):
    behind = ada.with_parts(origins=Origins("https://console.example.org", "127.0.0.1"))
    session = behind.parts.sessions.open(behind.parts.accounts.find("ada"))
    client, host = behind.visitor(), {"Host": "console.example.org", "Origin": "https://console.example.org"}
    client.set_cookie("__Host-penstock", session.token, domain="console.example.org")
    made = client.post(f"/people/{session.account.id}/link", data={"csrf": session.csrf}, headers=host)
    assert "https://console.example.org/link/" in made.get_data(as_text=True)

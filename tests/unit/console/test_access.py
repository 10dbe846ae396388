"""Every route with every role, and what a form needs beside the role."""

import pytest

from console.roles import ROLE_NAMES, Role
from console.security.access import ACCESS
from console.security.origins import Origins
from tests.e2e.console.walked_pages import IN_STORIES, OPERATED, WATCHED
from tests.unit.console.consoles import SETUP, text_of

VALUES = {
    "name": "orders",
    "request_id": 1,
    "user_id": 1,
    "team_id": 1,
    "key_id": "k-1",
    "key": "k-1",
    "token": "none",
    "broker_group": "main",
    "kind": "csv",
    "queue": 0,
    "offset": 0,
    "token_id": 1,
    "silence_id": 1,
    "channel_id": 1,
    "rule_id": 1,
    "command": "start",
    "filename": "console.css",
}
NO_PAGES = {
    "actions.export", "lists_csv.topics", "lists_csv.groups", "dead_letters.export", "messages.body",  # files
    "charts.points", "map.stream", "tail.live", "health.alive", "health.ready", "static",  # for programs
    "broker_groups.live", "map.live", "migrations.live", "migrations.positions", "requests.applied",  # parts of pages
    "openid.begin", "openid.answer",  # to the provider and back
}  # fmt: skip


def test_every_endpoint_has_a_role_and_no_role_is_for_an_endpoint_that_is_gone(console):
    assert {rule.endpoint for rule in console.app.url_map.iter_rules()} == set(ACCESS)


def test_no_page_is_left_out_of_the_walk_of_axe(console):
    adapter = console.app.url_map.bind("console.test")
    walked = {adapter.match(path.partition("?")[0])[0] for path in (*WATCHED, *OPERATED, *IN_STORIES)}
    pages = {rule.endpoint for rule in console.app.url_map.iter_rules() if "GET" in rule.methods}
    assert {each for each in pages if not each.startswith("api.")} - walked == NO_PAGES


def with_token(console, browser, path, method):
    """The API's answer to a token of the browser's account; the browser's cookie comes along and does not count."""
    account = browser.session.account
    with console.app.test_request_context():
        tokens = console.parts.tokens
        token = tokens.make(SETUP, account, "test", account.role.label, 1)
        answer = browser.client.open(
            path, method=method, headers={"Authorization": f"Bearer {token}"}, json={} if method == "POST" else None
        )
        tokens.revoke(SETUP, account.id, tokens.of(account.id)[-1].id)
    return answer


def test_every_route_answers_the_roles_from_its_own_on_and_no_other(console):
    """A page may find nothing (404) or refuse an empty form (4xx); what it must not do is answer 401 or 403, or fail."""
    browsers = {name: console.as_role(name) for name in ROLE_NAMES}
    wrong, asked = [], 0
    for rule in console.app.url_map.iter_rules():
        needed = ACCESS[rule.endpoint]
        with console.app.test_request_context():
            path = console.app.url_map.bind("").build(rule.endpoint, {k: VALUES[k] for k in rule.arguments})
        for method in rule.methods - {"HEAD", "OPTIONS"}:
            answers = {"nobody": console.visitor().open(path, method=method)}
            for name, browser in browsers.items():
                if rule.endpoint == "sign_in.leave":
                    browser = console.browser(console.parts.sessions.open(browser.session.account))
                answers[name] = (
                    with_token(console, browser, path, method)
                    if rule.endpoint.startswith("api.")
                    else (
                        browser.client.open(
                            path, method=method, data={"csrf": browser.session.csrf} if method == "POST" else None
                        )
                    )
                )
            for name, answer in answers.items():
                role = Role[name.upper()]
                status, asked = answer.status_code, asked + 1
                to_sign_in = status in (302, 303) and (answer.location or "").startswith("/sign-in")
                refused = status in (401, 403) or (to_sign_in and name == "nobody")
                own_refusal = rule.endpoint == "sign_in.enter"  # an empty form: wrong password
                if status >= 500 or ((role < needed) != refused and not own_refusal):
                    wrong.append(f"{method} {path} as {name}: {status}")
        if rule.endpoint == "people.end_access":
            browsers = {
                name: console.browser(console.parts.sessions.open(each.session.account))
                for name, each in browsers.items()
            }
    assert wrong == [] and asked > 200


def test_a_route_that_is_not_in_the_table_answers_nobody(console):
    console.app.add_url_rule("/forgotten", "forgotten", lambda: "secret")
    assert console.as_role("admin").get("/forgotten").status_code == 404


@pytest.mark.parametrize(
    ("headers", "is_accepted"),
    [
        ({}, True),
        ({"Origin": "http://localhost"}, True),
        ({"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
    ],
)
def test_a_change_from_another_site_is_refused(console, headers, is_accepted):
    browser = console.as_role("admin")
    fields = {"csrf": browser.session.csrf, "team": "new"}
    status = browser.client.post("/people/teams", data=fields, headers=headers).status_code
    assert (status == 200, "new" in [team.name for team in console.parts.accounts.teams()]) == (
        is_accepted,
        is_accepted,
    )
    assert status in (200, 403)


@pytest.mark.parametrize("token", ["", "x" * 43, None])
def test_a_change_with_a_missing_or_forged_token_is_refused(console, token):
    browser = console.as_role("admin")
    fields = {"team": "new"} | ({} if token is None else {"csrf": token})
    answer = browser.client.post("/people/teams", data=fields)
    assert answer.status_code == 403 and "another session" in text_of(answer)
    assert "new" not in [team.name for team in console.parts.accounts.teams()]


def test_a_token_of_another_session_is_refused(console):
    ada, bob = console.as_role("admin", "ada"), console.as_role("admin", "bob")
    assert ada.client.post("/people/teams", data={"csrf": bob.session.csrf, "team": "new"}).status_code == 403


def test_a_change_as_json_is_refused(console):
    browser = console.as_role("admin")
    assert browser.client.post("/people/teams", json={"csrf": browser.session.csrf, "team": "x"}).status_code == 400


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "[", "a b", ""])
def test_a_host_name_that_is_not_the_consoles_is_refused(console, host):
    assert console.visitor().get("/sign-in", headers={"Host": host}).status_code in (400, 404)


def test_https_by_a_proxy_takes_origins_of_the_public_url_only():
    origins = Origins("https://penstock.example", "127.0.0.1")
    assert origins.is_own("penstock.example", "https://penstock.example", "same-origin")
    assert not origins.is_own("penstock.example", "http://penstock.example", None)
    assert origins.knows_host("penstock.example:443") and origins.is_https


def test_with_https_the_cookie_is_bound_to_host_and_tls(console):
    console.with_parts(origins=Origins("https://penstock.example", "127.0.0.1"))
    console.parts.accounts.add(SETUP, "ada", "admin", [], console.parts.passwords.encode("correct horse"))
    fields = {"name": "ada", "password": "correct horse"}
    answer = console.visitor().post("/sign-in", data=fields, headers={"Host": "penstock.example"})
    cookies = answer.headers.getlist("Set-Cookie")
    assert {each.partition("=")[0] for each in cookies} == {"__Host-penstock", "__Host-penstock-browser"}
    assert answer.headers["Strict-Transport-Security"]
    for cookie in cookies:
        assert {"Secure", "HttpOnly", "Path=/", "SameSite=Lax"} <= set(cookie.split("; "))


def test_every_answer_has_a_policy_without_inline_script_and_pages_have_none(console):
    browser = console.as_role("admin")
    console.as_role("owner").ask()
    for path in ("/", "/topics", "/requests/1", "/requests/new", "/people", "/audit", "/nothing", "/static/console.js"):
        answer = browser.get(path)
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        page = answer.get_data(as_text=True)
        assert "<script>" not in page and "style=" not in page and " on" + "click=" not in page


def test_an_owner_sees_messages_of_the_own_teams_topics_only(console):
    owner = console.as_role("owner")
    operator = console.as_role("operator")
    number = owner.ask()
    assert operator.post(f"/requests/{number}/approve", version=1).status_code == 303
    assert owner.get("/topics/orders/messages").status_code == 200
    other = console.browser(console.account("eve", "owner", console.other_team_id))
    for path in ("/topics/orders/messages", "/topics/orders/messages/0/0", "/topics/orders/messages/0/0/body"):
        assert other.get(path).status_code == 403, path
    assert other.post("/topics/orders/messages", body="x").status_code == 403
    assert other.post(f"/requests/{number}/comment", text="x").status_code == 403
    assert other.post(f"/requests/{number}/withdraw", version=3).status_code == 403

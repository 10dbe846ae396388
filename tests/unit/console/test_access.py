"""Every route with every role, and what a form needs beside the role."""

import re

import pytest

from console.application import STATIC
from console.roles import ROLE_NAMES, Role
from console.routes import Route, action, add, menu, page, routes, titled_pages
from console.security.origins import Origins
from tests.unit.console.consoles import SETUP, text_of

OPEN = {
    "health.alive", "health.ready", "sign_in.form_page", "sign_in.enter", "sign_in.link", "sign_in.use_link",
    "openid.begin", "openid.answer", "api.openapi",
}  # fmt: skip
OWN_CHANGES = {"sign_in.leave", "own.set_password", "token_page.make", "token_page.revoke"}
IN_STORIES = {"sign_in.link", "connections.form"}


def test_every_endpoint_is_in_the_routes(console):
    assert {rule.endpoint for rule in console.app.url_map.iter_rules()} == {*routes(), STATIC}


def test_only_these_routes_are_open_to_visitors_and_only_these_changes_to_viewers():
    assert {each.endpoint for each in routes().values() if each.role == Role.NOBODY} == OPEN
    changes = {each.endpoint for each in routes().values() if each.method != "GET" and each.role < Role.OWNER}
    assert changes - OPEN == OWN_CHANGES


def test_a_route_without_a_role_or_of_a_known_endpoint_cannot_be_added():
    known = routes()["limits.change"]
    with pytest.raises(TypeError, match="role"):
        page("/forgotten")
    for role in (None, "admin", 4):
        with pytest.raises(TypeError, match="give it a role"):
            action("/forgotten", role=role)(lambda: "")
    with pytest.raises(TypeError, match="has a route already"):
        add(Route("/forgotten", "GET", Role.ADMIN, known.endpoint, known.answer))
    assert "/forgotten" not in {each.path for each in routes().values()}


def test_a_page_with_arguments_has_a_sample_and_an_entry_of_the_menu_has_a_title():
    with pytest.raises(TypeError, match="give a sample"):
        page("/forgotten/<name>", role=Role.ADMIN)
    with pytest.raises(TypeError, match="title"):
        page("/forgotten", role=Role.ADMIN, menu=1)


def test_every_page_has_samples_that_are_its_own_but_those_of_stories(console):
    adapter = console.app.url_map.bind("console.test")
    pages = [each for each in routes().values() if each.is_page]
    for each in pages:
        assert {adapter.match(sample.partition("?")[0])[0] for sample in each.samples} <= {each.endpoint}
    assert {each.endpoint for each in pages if not each.samples} == IN_STORIES


def test_menu_and_palette_have_the_pages_of_a_role(console):
    titles = {role: [each.title for each in menu(role)] for role in Role}
    assert titles[Role.OWNER] == titles[Role.VIEWER] and titles[Role.VIEWER][:2] == ["Overview", "Topics"]
    assert titles[Role.OPERATOR][: len(titles[Role.OWNER])] == titles[Role.OWNER] and "Limits" in titles[Role.OPERATOR]
    assert titles[Role.ADMIN][: len(titles[Role.OPERATOR])] == titles[Role.OPERATOR] and "People" in titles[Role.ADMIN]
    assert {"Ask for a topic", "Limits"}.isdisjoint(each.title for each in titled_pages(Role.VIEWER))
    for name in ROLE_NAMES:
        browser, role = console.as_role(name), Role[name.upper()]
        shown = browser.get("/").get_data(as_text=True).partition("<nav")[2].partition("</nav>")[0]
        assert re.findall(r">\s*([^<>]+?)\s*</a>", shown) == titles[role]
        assert {browser.get(each.path).status_code for each in titled_pages(role)} == {200}


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


def example_path(route: Route) -> str:
    """A path of the route, which need not name anything there is."""
    return re.sub(r"<int:\w+>", "1", re.sub(r"<(?:path:)?\w+>", "orders", route.path))


def answer_of(console, route, browser):
    path = example_path(route)
    if route.endpoint.startswith("api."):
        return with_token(console, browser, path, route.method)
    return browser.client.open(
        path, method=route.method, data={"csrf": browser.session.csrf} if route.method == "POST" else None
    )


def with_new_sessions(console, browsers):
    return {name: console.browser(console.parts.sessions.open(each.session.account)) for name, each in browsers.items()}


def test_every_route_answers_the_roles_from_its_own_on_and_no_other(console):
    """A page may find nothing (404) or refuse an empty form (4xx); what it must not do is answer 401 or 403, or fail."""
    browsers = {name: console.as_role(name) for name in ROLE_NAMES}
    wrong, asked = [], 0
    static = Route("/static/console.css", "GET", Role.NOBODY, STATIC, console.app.send_static_file)
    for route in (*routes().values(), static):
        answers = {"nobody": console.visitor().open(example_path(route), method=route.method)}
        answers |= {name: answer_of(console, route, browser) for name, browser in browsers.items()}
        for name, answer in answers.items():
            status, asked = answer.status_code, asked + 1
            to_sign_in = status in (302, 303) and (answer.location or "").startswith("/sign-in")
            refused = status in (401, 403) or (to_sign_in and name == "nobody")
            own_refusal = route.endpoint == "sign_in.enter"  # an empty form: wrong password
            if status >= 500 or ((Role[name.upper()] < route.role) != refused and not own_refusal):
                wrong.append(f"{route.method} {example_path(route)} as {name}: {status}")
        if route.endpoint in ("people.end_access", "sign_in.leave"):
            browsers = with_new_sessions(console, browsers)
    assert wrong == [] and asked == 5 * (len(routes()) + 1)


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

"""The JSON API: tokens, the document, the same effects as the pages, hostile input."""

import pytest

from common.admin import audit
from console.api.operations import OPERATIONS
from console.database.api_tokens import DAYS_MAX, TOKENS_MAX
from console.errors import InvalidForm
from console.routes import routes
from tests.unit.console.consoles import SETUP, WISH, RunningConsole, text_of


class Program:
    """A program with a token of an account."""

    def __init__(self, console: RunningConsole, role: str, name: str, token_role: str = "") -> None:
        session = console.account(name, role, *([console.team_id] if role == "owner" else []))
        self.account, self._client = session.account, console.visitor()
        self.token = console.parts.tokens.make(SETUP, session.account, "test", token_role or role, 30)

    def call(self, method: str, path: str, value: object = None, token: str | None = None):
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        return self._client.open(f"/api/v1{path}", method=method, headers=headers, json=value)


@pytest.fixture
def owner(console) -> Program:
    return Program(console, "owner", "olga")


@pytest.fixture
def operator(console) -> Program:
    return Program(console, "operator", "otto")


ASKED = {**{name: value for name, value in WISH.items() if name != "team"}, "team": "shop"}


def test_a_topic_is_asked_for_approved_and_there_as_by_the_pages(console, owner, operator):
    made = owner.call("POST", "/requests", ASKED).get_json()
    assert (made["state"], made["team"], made["asker"]) == ("requested", "shop", "olga")
    done = operator.call("POST", f"/requests/{made['id']}/approve", {"version": 1, "reason": "Fits"}).get_json()
    assert done["state"] == "applied" and [each["kind"] for each in done["events"]] == [
        "requested",
        "approved",
        "applied",
    ]
    topic = owner.call("GET", "/topics/orders").get_json()
    assert topic["settings"]["queues"] == 8 and topic["team"] == "shop" and topic["version"] == done["written_version"]
    assert owner.call("GET", "/topics?q=ORD&limit=1").get_json() == {"names": ["orders"], "total": 1, "after": None}
    second = operator.call("POST", f"/requests/{made['id']}/reject", {"version": 1, "reason": "x"})
    assert second.status_code == 409 and "otto was faster" in second.get_json()["error"]
    records = operator.call("GET", "/audit").get_json()["records"]
    assert {"approved", "ask for topic", "make API token"} <= {each["action"] for each in records}


def test_faults_of_a_request_are_named_by_field(owner):
    answer = owner.call("POST", "/requests", {**ASKED, "peak_messages": -1, "name": "a/b"})
    assert answer.status_code == 422 and set(answer.get_json()["faults"]) == {"peak_messages", "name"}


def test_apply_shows_a_difference_and_makes_it_and_export_has_it(console, operator):
    declared = {"topics": {"orders": {"queues": 4}}, "groups": {"billing": {"topics": ["orders"]}}}
    dry = operator.call("POST", "/apply", {"declared": declared, "dry_run": True}).get_json()
    assert [each["change"] for each in dry["changes"]] == ["create", "create"] and dry["applied"] is False
    assert console.store.count("topic") == 0
    assert operator.call("POST", "/apply", {"declared": declared}).get_json()["applied"] is True
    assert operator.call("POST", "/apply", {"declared": declared}).get_json()["changes"] == []
    exported = operator.call("GET", "/export").get_json()
    assert exported["topics"] == {"orders": {"queues": 4}}
    assert operator.call("POST", "/apply", {"declared": exported}).get_json()["changes"] == []
    shrunk = operator.call("POST", "/apply", {"declared": {"topics": {"orders": {"queues": 2}}}})
    assert shrunk.status_code == 409 and "cannot shrink" in shrunk.get_json()["error"]
    gone = operator.call("POST", "/apply", {"declared": {"topics": {}}, "prune": ["group/billing"]}).get_json()
    assert gone["changes"][0]["change"] == "delete" and console.store.count("group") == 0
    assert {row["who"] for row in audit.latest(console.store, 20)} == {"console:otto"}


def test_a_token_is_hashed_at_rest_shown_once_and_ends(console, owner):
    browser = console.as_role("viewer", "vera")
    page = browser.post("/api/tokens", name="deploy <b>", role="viewer", days="30")
    token = page.get_data(as_text=True).partition('class="once">')[2].partition("<")[0]
    assert owner.call("GET", "/topics", token=token).status_code == 200
    again = browser.get("/api").get_data(as_text=True)
    assert token not in again and "deploy &lt;b&gt;" in again and "<b>" not in again.partition("deploy")[2][:20]
    with console.parts.database.read() as connection:
        assert token not in str(connection.exec_driver_sql("SELECT * FROM api_tokens").all())
    browser.post(f"/api/tokens/{console.parts.tokens.of(browser.session.account.id)[0].id}/revoke")
    assert owner.call("GET", "/topics", token=token).status_code == 401
    console.clock.advance(31 * 86_400_000)
    assert owner.call("GET", "/topics").status_code == 401


def test_a_token_has_never_more_rights_than_its_account(console):
    program = Program(console, "operator", "otto", token_role="viewer")
    refused = program.call("GET", "/audit")
    assert (
        refused.status_code == 403
        and refused.get_json()["error"] == "This needs the role operator; the token has viewer."
    )
    full = console.parts.tokens.make(SETUP, program.account, "full", "operator", 1)
    assert program.call("GET", "/audit", token=full).status_code == 200
    console.parts.accounts.change(SETUP, program.account.id, "viewer", True, [])
    assert program.call("GET", "/audit", token=full).status_code == 403
    console.parts.accounts.change(SETUP, program.account.id, "operator", False, [])
    assert program.call("GET", "/topics", token=full).status_code == 401
    for role, days, name in (
        ("admin", 1, "x"),
        ("operator", 0, "x"),
        ("operator", DAYS_MAX + 1, "x"),
        ("", 1, "x"),
        ("viewer", 1, ""),
    ):
        with pytest.raises(InvalidForm):
            console.parts.tokens.make(SETUP, program.account, name, role, days)
    for _ in range(TOKENS_MAX):  # the switched-off account has none any more
        console.parts.tokens.make(SETUP, program.account, "more", "viewer", 1)
    with pytest.raises(InvalidForm, match="the most"):
        console.parts.tokens.make(SETUP, program.account, "more", "viewer", 1)


def test_nobody_revokes_another_ones_token(console, owner):
    eve = console.as_role("admin", "eve")
    token_id = console.parts.tokens.of(owner.account.id)[0].id
    eve.post(f"/api/tokens/{token_id}/revoke")
    assert owner.call("GET", "/topics").status_code == 200


@pytest.mark.parametrize("token", ["", "x", "penstock_" + "a" * 43, "penstock_" + "a" * 5_000, "penstock_\x7f", "ü"])
def test_a_wrong_token_is_refused_and_many_of_them_are_delayed_but_no_right_one(console, owner, token):
    for _ in range(5):
        assert owner.call("GET", "/topics", token=token).status_code in (401, 429)
    if token.strip():
        assert owner.call("GET", "/topics", token=token).status_code == 429
    assert owner.call("GET", "/topics").status_code == 200


def test_a_session_is_no_token_and_a_token_is_no_session(console, owner):
    browser = console.as_role("admin")
    answer = browser.get("/api/v1/topics")
    assert answer.status_code == 401 and answer.headers["WWW-Authenticate"] == "Bearer"
    assert console.visitor().get("/topics", headers={"Authorization": f"Bearer {owner.token}"}).status_code == 302


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "application/json"), (b"{", "application/json"), (b"[]", "application/json"), (b"3", "application/json"),
        (b"[" * 100_000, "application/json"), (b"{}", "text/plain"), (b"\xff", "application/json"),
        (b'{"declared": []}', "application/json"), (b'{"declared": {"topics": {"a": {"queues": 1e999}}}}', "application/json"),
        (b'{"declared": {"topics": {"a\\u202e": {}}}}', "application/json"), (b'{"declared": {}, "prune": {}}', "application/json"),
        (b'{"declared": {"topics": {"a": {"description": {"a": 1}}}}}', "application/json"),
        (b'{"declared": {"applications": {"a": {}}}}', "application/json"),
    ],
)  # fmt: skip
def test_a_body_that_makes_no_sense_is_a_sentence_as_json(console, operator, body, kind):
    headers = {"Authorization": f"Bearer {operator.token}", "Content-Type": kind}
    answer = console.visitor().post("/api/v1/apply", data=body, headers=headers)
    assert answer.status_code in (400, 422) and answer.get_json()["error"], answer.data
    assert console.store.count("topic") == 0 and "Traceback" not in answer.get_data(as_text=True)


@pytest.mark.parametrize(
    "path", ["/topics?limit=-1", "/topics?limit=x", "/audit?before=9999999999999999999", "/history?names=x"]
)
def test_a_query_that_makes_no_sense_is_refused(operator, path):
    answer = operator.call("GET", path)
    assert answer.status_code in (400, 404) and answer.get_json()["error"]


def test_an_unknown_path_is_json_too(operator):
    answer = operator.call("GET", "/nothing/here")
    assert answer.status_code == 404 and answer.get_json()["status"] == 404
    assert operator.call("DELETE", "/topics").get_json()["status"] == 404


def test_the_store_away_is_503_with_a_reason(console, operator):
    console.store.set_available(False, console.clock.now_ms())
    answer = operator.call("POST", "/apply", {"declared": {"topics": {"a": {}}}})
    assert answer.status_code == 503 and answer.get_json()["error"]


def test_the_document_has_every_operation_with_its_role_and_the_page_shows_them(console):
    document = console.visitor().get("/api/v1/openapi.json").get_json()
    found = {each["operationId"] for path in document["paths"].values() for each in path.values()}
    assert found == {each.removeprefix("api.") for each in routes() if each.startswith("api.")}
    assert document["paths"]["/api/v1/apply"]["post"]["x-role"] == "operator"
    assert document["paths"]["/api/v1/requests/{request_id}"]["get"]["parameters"][0]["schema"] == {"type": "integer"}
    page = text_of(console.as_role("viewer").get("/api"))
    assert all(each.summary in page.replace("&#39;", "'") for each in OPERATIONS)


def test_alerts_are_silenced_and_read(operator):
    fields = {"rule": "lag", "subject": "group:billing", "reason": "moved", "duration_ms": 3_600_000}
    made = operator.call("POST", "/alerts/silences", fields).get_json()["id"]
    assert operator.call("GET", "/alerts").get_json()["silences"][0]["reason"] == "moved"
    operator.call("POST", f"/alerts/silences/{made}/end", {})
    assert operator.call("GET", "/alerts").get_json()["silences"] == []
    assert operator.call("POST", "/alerts/silences", {**fields, "duration_ms": 5}).status_code == 422

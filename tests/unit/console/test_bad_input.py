"""Input that makes no sense, at every route: it is refused or ignored, and never an internal error or markup of the page."""

import re
from pathlib import Path
from urllib.parse import quote

import pytest

import console
from common.admin import groups, topics
from common.admin.groups import GroupSettings
from common.admin.topics import TopicSettings
from console.application import FORM_PARTS_MAX
from console.asking import consumption_wish, topic_change, topic_wish
from console.asking.approval_policy import ApprovalPolicy
from console.asking.team_quota import BOUNDS
from console.pages import limits
from console.routes import routes
from tests.unit.console.consoles import SETUP

MARKUP = "<script>alert(1)<b>\"'{{7*7}}\u202e\x00\x1b[31m"
TEXTS = ("", MARKUP, "9" * 30, "-1", "٣", "x" * 2_000)
READ = re.compile(r'\b(?:get|getlist|field|choice|text_of|whole_of)\((?:\w+, )?"(\w+)"|\bname="(\w+)"')
SOURCES = [*Path(console.__file__).parent.rglob("*.py"), *Path(console.__file__).parent.rglob("*.html")]
SETTINGS = {
    *consumption_wish.DEFAULTS,
    *topic_wish.DEFAULTS,
    *topic_change.FIELDS,
    *limits.NUMBERS,
    *BOUNDS,
    *ApprovalPolicy().to_value(),
}
FIELDS = SETTINGS | {name for path in SOURCES for found in READ.findall(path.read_text()) for name in found if name}
"""Every name that a page reads from a query or a form, as its source, its template or its table has it."""
ENDS_SESSIONS = ("sign_in.leave", "people.end_access")


def paths_of(route):
    for name, number in (("orders", "0"), ("billing", "1"), (quote(MARKUP, safe=""), "9" * 30), ("%F0%9F", "1")):
        yield re.sub(r"<int:\w+>", number, re.sub(r"<\w+>", name, route.path))


@pytest.fixture
def filled(console):
    """A console that has a topic, a group and a request."""
    admin = console.parts.configuration.admin("test")
    topics.create(admin, ["orders"], TopicSettings())
    groups.create(admin, "billing", GroupSettings(topics=["orders"]))
    console.as_role("owner").ask(name="stock")
    return console


def faults_of(answer, told):
    status = answer.status_code
    if status >= 500 and status != 503:
        return [f"{told}: {status}"]
    if answer.mimetype == "text/html" and ("<script>alert" in answer.get_data(as_text=True)):
        return [f"{told}: markup"]
    return []


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text)[:20])
def test_no_page_and_no_action_fails_or_shows_markup(filled, text):
    browser, found = filled.as_role("admin"), []
    fields = dict.fromkeys(FIELDS, text)
    for route in routes().values():
        if route.endpoint.startswith("api.") or route.endpoint in ENDS_SESSIONS:
            continue
        for path in paths_of(route):
            if route.method == "GET":
                answer = browser.get(path, query_string=fields)
            else:
                answer = browser.post(path, **fields)
            found += faults_of(answer, f"{route.endpoint} {path[:60]}")
    assert not found, "\n".join(found)


def test_the_fields_are_found():
    assert {"name", "version", "rate_messages", "topics_max", "names", "q", "moves", "writes"} <= FIELDS and len(
        FIELDS
    ) < FORM_PARTS_MAX


@pytest.mark.parametrize("value", [*TEXTS, None, 1e300, -1, True, [], {}, [[]]], ids=lambda value: repr(value)[:20])
def test_no_operation_of_the_api_fails(filled, value):
    session, found = filled.account("ada", "admin"), []
    token = filled.parts.tokens.make(SETUP, session.account, "test", "admin", 1)
    headers, client = {"Authorization": f"Bearer {token}"}, filled.visitor()
    for route in (each for each in routes().values() if each.endpoint.startswith("api.")):
        for path in paths_of(route):
            query = dict.fromkeys(FIELDS, value) if route.method == "GET" and isinstance(value, str) else {}
            body = dict.fromkeys((*FIELDS, "declared", "chunks"), value) if route.method == "POST" else None
            answer = client.open(path, method=route.method, headers=headers, query_string=query, json=body)
            found += faults_of(answer, f"{route.endpoint} {path[:60]}")
    assert not found, "\n".join(found)

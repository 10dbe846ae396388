"""Text from strangers: bodies, keys, names, comments. It is shown as text, and never runs or hides."""

import csv
import io
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.admin import topics
from common.admin.topics import TopicSettings
from console.database.action_log import Actor
from console.installation.stored_messages import FoundMessage
from console.pages.actions import cell
from console.shown import UNSEEN, dump, visible
from engine.link.errors import LinkError
from tests.unit.console.consoles import WISH, text_of

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'{{7*7}}\u202egnp.exe\x00\x1b[31m𝕏"


@dataclass
class OneMessage:
    """Stands for the engines' messages: every look-up finds this body."""

    body: bytes

    def one(self, topic, queue, offset):
        return FoundMessage(
            topic, queue, offset, HOSTILE, 1_700_000_000_000, HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, self.body
        )

    def browse(self, topic, queue, offset, limit):
        return [self.one(topic, queue, offset)]


def messages_page(console, body, path="0/0"):
    topics.create(console.parts.configuration.admin("test"), ["orders"], TopicSettings())
    console.with_parts(messages=OneMessage(body))
    return console.as_role("operator").get(f"/topics/orders/messages{path}")


@pytest.mark.parametrize(
    "path", ["/0/0", "/0/0?view=text", "/0/0?view=json", "/0/0?view=hex", "?by=place&queue=0&offset=0"]
)
@pytest.mark.parametrize(
    "body", [HOSTILE.encode(), b'{"a": "</pre><script>x</script>"}', b"\xff\xfe\x00", b"[" * 100_000]
)
def test_a_message_is_text_in_every_view(console, path, body):
    answer = messages_page(console, body, path)
    page = answer.get_data(as_text=True)
    assert answer.status_code == 200
    assert "<script>" not in page and "<img" not in page and "\u202e" not in page and "\x1b" not in page
    assert "&lt;script&gt;" in page


def test_a_body_of_4_mib_is_cut_and_downloads_whole_as_a_file(console):
    body = b"<b>" * (4 << 18)
    answer = messages_page(console, body, "/0/0")
    assert len(answer.data) < 600_000 and "Only the beginning is shown" in text_of(answer)
    for view in ("json", "hex"):
        assert len(console.as_role("operator", view).get(f"/topics/orders/messages/0/0?view={view}").data) < 600_000
    file = console.as_role("operator", "ola").get("/topics/orders/messages/0/0/body")
    assert file.data == body and file.mimetype == "application/octet-stream"
    assert file.headers["Content-Disposition"].startswith("attachment")


def test_a_request_with_markup_is_shown_as_written(console):
    owner = console.as_role("owner")
    number = owner.ask(description=HOSTILE)
    owner.post(f"/requests/{number}/comment", text=HOSTILE)
    for path in (f"/requests/{number}", "/audit", "/"):
        page = console.as_role("operator", f"op{len(path)}").get(path).get_data(as_text=True)
        assert "<script>alert" not in page and "\u202e" not in page, path
    assert "49" not in text_of(owner.get(f"/requests/{number}")).partition("History")[2]


@pytest.mark.parametrize(
    "path",
    ["/topics?q=%3Cscript%3E%E2%80%AE", "/topics/%3Cscript%3E", "/groups/%00", "/groups?q=<b>", "/topics?after=%FF"],
)
def test_hostile_addresses_are_pages_without_markup(console, path):
    page = console.as_role("viewer").get(path)
    assert page.status_code in (200, 404) and "<script>" not in page.get_data(as_text=True)


@pytest.mark.parametrize(
    "path", ["/static/../__main__.py", "/static/%2e%2e/errors.py", "/static//etc/passwd", "/link/../people"]
)
def test_no_path_leaves_the_static_folder(console, path):
    assert console.visitor().get(path).status_code in (302, 308, 404, 410)


def test_a_spreadsheet_takes_no_cell_of_the_export_for_a_formula(console):
    for name in ('=HYPERLINK("http://evil")', "+1", "-1", "@x", "\t=1"):
        console.parts.log.note(Actor(name, ""), "failed sign-in", f"account {name}")
    answer = console.as_role("operator").get("/audit.csv")
    rows = list(csv.reader(io.StringIO(answer.get_data(as_text=True))))
    assert len(rows) > 5 and not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@", "\t"))]
    assert cell("=1") == "'=1" and cell(None) == "" and cell({"a": 1}) == '{"a": 1}'


@given(st.text())
def test_what_is_visible_has_no_unseen_character_and_else_stays(text):
    shown = visible(text)
    assert not UNSEEN.search(shown) and (shown == text) == (not UNSEEN.search(text))


@given(st.binary(max_size=100))
def test_a_dump_has_every_byte(data):
    digits = "".join(line[10:58].replace(" ", "") for line in dump(data).splitlines())
    assert bytes.fromhex(digits) == data


@pytest.mark.parametrize("path", ["/sign-in", "/topics", "/search", "/nothing", "/api/v1/topics", "/healthz"])
@pytest.mark.parametrize("host", ["localhost", "evil.example"])
def test_a_query_that_is_no_utf_8_is_refused_and_is_no_error(console, caplog, path, host):
    wrong = {"QUERY_STRING": "said=\x80&q=\xff", "HTTP_HOST": host}
    assert console.as_role("viewer").get(path, environ_overrides=wrong).status_code == 400
    assert console.visitor().get("/sign-in", environ_overrides={"QUERY_STRING": "q=%80\xc3\xb6"}).status_code == 200
    assert not caplog.records


def test_an_internal_error_is_a_number_and_no_trace(console, caplog):
    topics.create(console.parts.configuration.admin("test"), ["orders"], TopicSettings())
    console.with_parts(messages=None)
    answer = console.as_role("operator").get("/topics/orders/messages/0/0")
    page = text_of(answer)
    number = page.rpartition("under ")[2].partition(".")[0]
    assert answer.status_code == 500 and "Traceback" not in page and "NoneType" not in page
    assert f"error={number}" in caplog.text and "NoneType" in caplog.text


def test_an_engine_that_is_away_is_said_and_the_rest_of_the_page_is_there(console):
    topics.create(console.parts.configuration.admin("test"), ["orders"], TopicSettings())
    browser = console.as_role("operator")
    page = text_of(browser.get("/topics/orders"))
    assert "No broker group is known" in page and "replicated" in page
    assert "The search failed" in text_of(browser.get("/topics/orders/messages?by=place&queue=0&offset=0"))
    assert browser.get("/topics/orders/messages/0/0").status_code == 503

    class Away:
        def one(self, *_):
            raise LinkError("gone")

    console.with_parts(messages=Away())
    assert console.as_role("operator", "ola").get("/topics/orders/messages/0/0").status_code == 503


FAULTY_SEARCHES = (
    "by=id", "by=id&id=", "by=place", "by=place&queue=-1&offset=0", "by=place&queue=0&offset=9e9",
    f"by=place&queue=0&offset={'9' * 30}", "by=time&from=yesterday", "by=time&from=9999-12-31T23:59:59-23:59",
    "by=magic",
)  # fmt: skip


@pytest.mark.parametrize("query", FAULTY_SEARCHES)
def test_a_search_that_cannot_be_made_says_what_it_needs(console, query):
    topics.create(console.parts.configuration.admin("test"), ["orders"], TopicSettings())
    answer = console.as_role("operator").get(f"/topics/orders/messages?{query}")
    assert answer.status_code == 200
    assert "Give a" in text_of(answer) or "Search by id" in text_of(answer) or "search failed" in text_of(answer)


def test_forms_that_are_too_large_are_refused(console):
    owner = console.as_role("owner")
    assert owner.post("/requests", **{**WISH, "description": "x" * 3_000_000}).status_code == 413
    assert owner.client.post("/requests", data={f"f{n}": "x" for n in range(5_000)}).status_code in (403, 413)

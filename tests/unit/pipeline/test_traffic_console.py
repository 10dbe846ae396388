"""What a report on traffic asks the console for and gives to it: minutes in chunks, refusals in order, wrong answers."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pipeline.errors import ConsoleRefused, OptionsError
from pipeline.traffic.console_api import CHUNKS_PER_CALL, ConsoleApi
from pipeline.traffic.minutes import CHUNK_S, FIGURES, MINUTES, MinuteRow, reported_chunks
from pipeline.traffic.page import refused_table
from pipeline.traffic.refusals import read_refusals, stepped

BEGIN_S = 10 * CHUNK_S


def told(*rows):
    """An answer of the console, of (application, code, points)."""
    return {
        "step_s": 60,
        "refused": [
            {"application": who, "code": code, "name": f"C{code}", "messages": sum(c for _, c in points), "points": points}
            for who, code, points in rows
        ],
    }  # fmt: skip


def test_minutes_become_chunks_of_six_hours_whose_gaps_count_as_zero():
    rows = [
        MinuteRow("orders", BEGIN_S + CHUNK_S - 120, 600, 6_000, 5, 20), MinuteRow("orders", BEGIN_S + CHUNK_S + 60, 60, 60, None, None),
        MinuteRow("pay", BEGIN_S, 6, 0, -3, 9),
    ]  # fmt: skip
    first, second, pay = reported_chunks(rows)
    assert [(each.topic, each.begin_s) for each in (first, second, pay)] == [
        ("orders", BEGIN_S), ("orders", BEGIN_S + CHUNK_S), ("pay", BEGIN_S),
    ]  # fmt: skip
    assert all(len(each.figures[name]) == MINUTES for each in (first, second, pay) for name in FIGURES)
    assert first.figures["stored"] == [None] * (MINUTES - 2) + [10.0, 0.0]
    assert first.figures["sent_p99"][-2:] == [0.02, None]
    assert second.figures["stored_bytes"] == [0.0, 1.0] + [None] * (MINUTES - 2)
    assert pay.figures["sent_p50"][0] == 0.0, "clocks that differ make no negative time in the history"


def test_refusals_come_by_code_with_all_before_each_application():
    rows = read_refusals(
        told(("b", 200, [(0, 1)]), (None, 105, [(0, 2)]), ("a", 200, [(60, 5)]), (None, 200, [(0, 1), (60, 5)]))
    )
    assert [(row.code, row.application) for row in rows] == [(200, None), (200, "a"), (200, "b"), (105, None)]
    assert stepped(rows, 60) == {0: 3.0, 60: 5.0}
    assert stepped(rows, 300) == {0: 8.0}
    table = refused_table(read_refusals(told(("<b>", 200, [(0, 1)]))))
    assert "&lt;b&gt;" in table and "<b>" not in table


@pytest.mark.parametrize("answer", [{}, [], {"refused": [1]}, {"step_s": 60, "refused": [{"application": None}]}])
def test_a_malformed_answer_on_refusals_is_told(answer):
    with pytest.raises(ConsoleRefused, match="malformed"):
        read_refusals(answer)


@pytest.fixture
def console():
    """A server that answers with `console.answer`, and notes what it was sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            size = int(self.headers.get("Content-Length") or 0)
            made.asked.append((self.path, self.headers["Authorization"], self.rfile.read(size)))
            status, value, headers = made.answer
            self.send_response(status)
            for name, text in headers.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(value)

        do_GET = do_POST

        def log_message(self, *_):
            pass

    made = HTTPServer(("127.0.0.1", 0), Handler)
    made.asked, made.answer = [], (200, b'{"minutes": 7}', {})
    made.url = f"http://127.0.0.1:{made.server_port}"
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text("secret\n")
    return str(path)


def test_chunks_are_given_in_calls_of_bounded_size_with_the_token(console, token):
    chunks = reported_chunks([MinuteRow("orders", BEGIN_S + number * CHUNK_S, 6, 6, 1, 1) for number in range(25)])
    assert ConsoleApi(f"{console.url}/", token).feed(chunks) == 14
    sizes = [len(json.loads(body)["chunks"]) for _, _, body in console.asked]
    assert (sizes, {path for path, _, _ in console.asked}) == ([CHUNKS_PER_CALL, 5], {"/api/v1/traffic"})
    assert {bearer for _, bearer, _ in console.asked} == {"Bearer secret"}


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((403, b'{"error": "This needs the role operator."}', {}), "403: This needs the role operator"),
        ((500, b"oops", {}), "500: Internal Server Error"), ((200, b"no json", {}), "Expecting value"),
        ((200, b"[]", {}), "no JSON object"), ((302, b"", {"Location": "http://127.0.0.1:1/"}), "302: Found"),
    ],
)  # fmt: skip
def test_a_console_that_refuses_is_told_in_one_line(console, token, answer, sentence):
    console.answer = answer
    with pytest.raises(ConsoleRefused, match=sentence) as raised:
        ConsoleApi(console.url, token).feed(reported_chunks([MinuteRow("orders", BEGIN_S, 6, 6, 1, 1)]))
    assert "\n" not in str(raised.value) and "secret" not in str(raised.value)


def test_all_faults_of_url_and_token_are_told_at_once(tmp_path):
    with pytest.raises(OptionsError, match=r"use http:// or https://.*console token .*no such file"):
        ConsoleApi("ftp://x", str(tmp_path / "none"))

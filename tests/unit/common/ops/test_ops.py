"""The operator's side of a process, each part by itself."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time

import gevent
import pytest
from gevent import socket as gsocket
from prometheus_client import CollectorRegistry, Counter

from common.ops import CountsCollector, TopLabels, announce_ready, start_ops
from common.ops.log import PLACE_LINES_MAX, PLACES_MAX, JsonFormatter, PlaceLimit, TextFormatter
from common.ops.service_manager import notify
from tests.waiting import until


def fetch(port: int, path: str, method: str = "GET") -> tuple[int, bytes]:
    with gevent.Timeout(5), gsocket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        data = b""
        while chunk := peer.recv(65536):
            data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@pytest.fixture
def ops():
    state = {"engine": True, "config": True}
    registry = CollectorRegistry()
    Counter("calls", "Calls answered.", registry=registry).inc(3)
    server = start_ops("127.0.0.1", 0, registry, lambda: state)
    yield server.port, state
    server.stop()


def test_metrics_page_shows_the_registry(ops):
    assert b"calls_total 3.0" in fetch(ops[0], "/metrics")[1]


class Costly:
    """A collector whose page takes a while to make."""

    made = 0

    def collect(self):
        self.made += 1
        time.sleep(0.02)
        return []


def test_a_page_that_is_costly_to_make_is_shared_for_a_while():
    costly, registry = Costly(), CollectorRegistry()
    registry.register(costly)
    before, server = costly.made, start_ops("127.0.0.1", 0, registry, dict)
    for _ in range(5):
        fetch(server.port, "/metrics")
    assert costly.made == before + 1
    server.stop()


def test_series_of_topics_and_groups_can_be_left_out_and_are_not_made_then():
    registry, series = CollectorRegistry(), Costly()
    Counter("calls", "Calls answered.", registry=registry)
    server = start_ops("127.0.0.1", 0, registry, dict, series=series)
    before = series.made
    assert b"calls_total" in fetch(server.port, "/metrics?series=none")[1] and series.made == before
    assert b"calls_total" in fetch(server.port, "/metrics")[1] and series.made == before + 1
    server.stop()


def test_a_cheap_page_is_new_within_moments():
    registry = CollectorRegistry()
    calls = Counter("calls", "Calls answered.", registry=registry)
    server = start_ops("127.0.0.1", 0, registry, dict)
    assert b"calls_total 0.0" in fetch(server.port, "/metrics")[1]
    calls.inc()
    until(lambda: b"calls_total 1.0" in fetch(server.port, "/metrics")[1], "the page is made anew", 1.0)
    server.stop()


def test_healthz_answers_200_even_when_not_ready(ops):
    ops[1]["engine"] = False
    assert fetch(ops[0], "/healthz")[0] == 200


def test_readyz_turns_503_and_gives_the_reason(ops):
    assert fetch(ops[0], "/readyz")[0] == 200
    ops[1]["engine"] = "no connection for 3 s"
    status, body = fetch(ops[0], "/readyz")
    assert (status, json.loads(body)["faults"]) == (503, {"engine": "no connection for 3 s"})


def test_unknown_page_is_404_and_other_methods_405(ops):
    assert (fetch(ops[0], "/")[0], fetch(ops[0], "/metrics", "POST")[0]) == (404, 405)


def test_readiness_line_holds_the_pid_and_closes_the_pipe():
    reader, writer = os.pipe()
    announce_ready(writer, {"host": "127.0.0.1", "port": 7, "ops_port": 8})
    with os.fdopen(reader) as lines:
        assert json.loads(lines.read()) == {"host": "127.0.0.1", "port": 7, "ops_port": 8, "pid": os.getpid()}


def test_readiness_line_to_a_parent_that_has_gone_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    announce_ready(writer, {"port": 1})


def test_top_labels_are_bounded_and_keep_the_sum():
    labels = TopLabels(limit=2)
    assert labels.fold({"a": 5, "b": 9, "c": 1}) == {"a": 5, "b": 9, "other": 1}
    assert labels.fold({"a": 5, "b": 9, "c": 100}) == {"a": 5, "b": 9, "other": 100}


def test_counts_collector_reads_at_scrape_time_only():
    totals, registry = {"pay": 2.0}, CollectorRegistry()
    registry.register(CountsCollector("sent", "Messages sent.", "topic", lambda: totals))
    totals["pay"] = 4.0
    assert registry.get_sample_value("sent_total", {"topic": "pay"}) == 4.0


def record(**extra) -> logging.LogRecord:
    made = logging.LogRecord("engine.log", logging.INFO, __file__, 1, "truncated %d→%d", (4096, 4010), None)
    made.__dict__.update(extra)
    return made


def test_text_line_names_the_thing_first():
    line = TextFormatter("engine").format(record(about={"topic": "pay", "queue": 3}))
    assert line.endswith(" INFO engine: topic=pay queue=3: truncated 4096→4010")


def test_a_place_in_the_code_writes_a_few_lines_per_minute_and_says_how_many_were_left_out():
    now_s = [0.0]
    limit = PlaceLimit(lambda: now_s[0])

    def line(number: int, name: str = "penstock.engine") -> logging.LogRecord:
        return logging.LogRecord(name, logging.WARNING, "client.py", 7, "try %d", (number,), None)

    assert sum(limit.filter(line(number)) for number in range(1000)) == PLACE_LINES_MAX
    now_s[0] = 60.0
    following = line(1000)
    assert limit.filter(following)
    assert TextFormatter("engine").format(following).endswith("try 1000 (980 more lines from here were left out)")
    assert json.loads(JsonFormatter("engine").format(following))["left_out"] == 980
    now_s[0] = 120.0
    assert sum(limit.filter(line(number, "kazoo.client")) for number in range(1000)) == 1


@pytest.mark.parametrize(("name", "passed"), [("x", PLACES_MAX + PLACE_LINES_MAX), ("waitress", PLACE_LINES_MAX)])
def test_lines_whose_text_is_always_another_are_limited_by_their_place(name, passed):
    limit = PlaceLimit(lambda: 0.0)
    records = [logging.LogRecord(name, 30, "a.py", 1, f"line {n}", (), None) for n in range(3 * PLACES_MAX)]
    assert sum(map(limit.filter, records)) == passed


@pytest.mark.parametrize(
    "foreign", ["x\n2026-11-22T10:00:00.000Z INFO engine: all is well", "\x1b[2J", "a\u2028b", "\r"]
)
def test_a_foreign_value_cannot_end_its_line_nor_control_a_terminal(foreign):
    made = logging.LogRecord("engine", logging.WARNING, __file__, 1, "link=%s: refused", (foreign,), None)
    line = TextFormatter("engine").format(made)
    assert line.isprintable() and line.endswith(": refused")


def test_a_trace_is_indented_so_that_its_lines_are_no_events():
    try:
        raise ValueError("bad\n2026-11-22T10:00:00.000Z INFO engine: all is well")
    except ValueError:
        made = logging.LogRecord("engine", logging.ERROR, __file__, 1, "failed", (), sys.exc_info())
    first, *trace = TextFormatter("engine").format(made).splitlines()
    assert first.endswith("engine: failed") and trace and all(line.startswith("  ") for line in trace)


def test_json_line_is_one_object_with_the_thing_as_fields():
    event = json.loads(JsonFormatter("engine").format(record(about={"topic": "pay"})))
    assert (event["topic"], event["message"], event["process"]) == ("pay", "truncated 4096→4010", "engine")


STOPPER = """
from gevent import monkey; monkey.patch_all()
from common.ops.stop import catch_stop, wait_for_stop
catch_stop(); print("ready", flush=True); print(wait_for_stop(), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_wait_for_stop_returns_on_the_signal(number):
    with subprocess.Popen([sys.executable, "-c", STOPPER], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(number)
        assert child.stdout.readline().strip() == number.name
        assert child.wait(5) == 0


def test_logs_are_had_without_gevent():
    code = "import sys, common.ops; common.ops.setup_logging('up'); sys.exit('gevent' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


LOGS_BESIDE_A_THREAD = """
from gevent import monkey
monkey.patch_all()
import logging, sys, gevent
from common.ops import setup_logging
from common.unpatched import original

class SlowStream:
    def write(self, text):
        sys.__stderr__.write(text)
        if "thread" in text:
            writing.release()
            original("time", "sleep")(0.1)
    def flush(self):
        pass

writing = original("_thread", "allocate_lock")()
writing.acquire()
sys.stderr = SlowStream()
setup_logging("engine")
log = logging.getLogger("penstock")
original("_thread", "start_new_thread")(log.info, ("by the thread",))
writing.acquire()
gevent.get_hub().loop.run_callback(log.info, "by the loop")
gevent.sleep(0)
"""


def test_a_callback_of_the_loop_can_log_while_a_thread_of_the_system_does():
    done = subprocess.run([sys.executable, "-c", LOGS_BESIDE_A_THREAD], capture_output=True, text=True, timeout=30)
    lines = [line.partition(" ")[2] for line in done.stderr.splitlines()]
    assert lines == ["INFO engine: by the thread", "INFO engine: by the loop"]


@pytest.fixture(params=["file", "abstract"])
def manager(request, tmp_path, monkeypatch):
    """The socket of a service manager, and its address as systemd writes it."""
    name = str(tmp_path / "notify") if request.param == "file" else f"@penstock-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as received:
        received.bind(name.replace("@", "\0") if request.param == "abstract" else name)
        received.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield received


def test_a_process_that_serves_tells_the_service_manager(manager):
    announce_ready(None, {"port": 9700})
    assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize("path", ["/nowhere/notify", "relative", "/" + 200 * "x", "@"])
def test_a_service_manager_that_is_away_is_logged_and_hinders_nothing(path, monkeypatch, caplog):
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    notify("READY=1")
    assert f"notify_socket={path}: the service manager was not told READY=1" in caplog.text

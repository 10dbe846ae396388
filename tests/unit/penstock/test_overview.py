"""A deployment at a glance: pages as they are read, rates between two looks, and the screen of `penstock top`."""

import http.server
import json
import threading

import pytest

from common.config.reported_process import parse_name
from penstock.commands.top import FIGURES
from penstock.overview.frame import frame, shortened
from penstock.overview.observing import (
    EngineFacts,
    Observation,
    ObservedLag,
    ProcessPlace,
    group_lag,
    rates_between,
    total_lag,
)
from penstock.overview.pages import ProcessPages, read_pages, totals

METRICS = """# HELP penstock_producer_messages_total messages
penstock_build_info{version="1.2.3"} 1.0
penstock_producer_messages_total{durability="fsync"} 3.0
penstock_producer_messages_total{durability="memory"} 4.5e1
penstock_producer_send_seconds_bucket{le="0.1"} 9.0
process_start_time_seconds 1.79567612e+09
"""


def test_metrics_are_added_up_over_their_labels():
    assert totals(METRICS) == {
        "penstock_build_info": 1.0, "penstock_producer_messages_total": 48.0, "process_start_time_seconds": 1_795_676_120.0,
    }  # fmt: skip


@pytest.fixture
def serve():
    servers = []

    def start(ready: str) -> int:
        class Pages(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write((ready if self.path == "/readyz" else METRICS).encode())

            def log_message(self, *_):
                pass

        servers.append(http.server.HTTPServer(("127.0.0.1", 0), Pages))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1].server_port

    yield start
    for each in servers:
        each.shutdown()
        each.server_close()


def test_a_process_tells_its_version_and_why_it_is_not_ready(serve):
    state = {"ready": False, "faults": {"engine": "no link"}, "notes": {"configuration": "old"}}
    pages = read_pages("127.0.0.1", serve(json.dumps(state)))
    assert (pages.version, pages.fault, pages.notes) == ("1.2.3", "engine: no link", {"configuration": "old"})
    assert read_pages("127.0.0.1", serve("what")).fault.startswith("/readyz answers")


def test_a_process_that_does_not_answer_has_a_fault_and_no_error_is_raised():
    assert "do not answer at 127.0.0.1:1" in read_pages("127.0.0.1", 1).fault


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("engine@10.0.0.1:9702/one", ("10.0.0.1", 9702)),
        ("engine@0.0.0.0:9702/one", ("one", 9702)),
        ("engine@[::1]:9702/one;77", ("::1", 9702)),
        ("kafka_bridge", None),
    ],
)
def test_a_reported_name_gives_the_address_that_other_machines_reach(name, address):
    found = parse_name(name)
    assert (found and found.address) == address


PLACES = [
    ProcessPlace("producer_proxy@h:1/m", "producer_proxy", "h", 1, "m", 2),
    ProcessPlace("engine@h:3/m", "engine", "h", 3, "m", 4),
]


def look(at_s: float, sent: float, lag: int, groups: int = 1, fault: str = "") -> Observation:
    metrics = {
        "penstock_producer_messages_total": sent,
        "process_cpu_seconds_total": at_s / 2,
        "process_resident_memory_bytes": 2**20,
    }
    status = {"end_position": 2048, "disk": {"free_bytes": 2**30}, "dead_letters": 7}
    lags = {f"g{number}": ObservedLag(lag + number, 2, 61.0) for number in range(groups)}
    return Observation(
        at_s,
        {PLACES[0].name: ProcessPages("", {}, metrics, "1"), PLACES[1].name: ProcessPages(fault, {}, {}, "")},
        {PLACES[1].name: EngineFacts("", True, "main", status, 5, list(lags), lags)},
    )


def test_rates_are_changes_over_time_and_a_restarted_process_has_none():
    assert rates_between(look(10, 100, 0), look(12, 300, 0)) == {PLACES[0].name: {"sent_per_s": 100.0}}
    assert rates_between(look(10, 100, 0), look(12, 5, 0)) == {}
    assert rates_between(None, look(12, 5, 0)) == {}


def test_the_lag_of_a_group_is_added_up_over_engines_and_the_oldest_counts():
    one, two = ObservedLag(3, 1, 5.0), ObservedLag(4, 0, 9.0)
    seen = Observation(0, {}, {"a": EngineFacts(lag={"g": one}), "b": EngineFacts(lag={"g": two})})
    assert total_lag(seen) == {"g": ObservedLag(7, 1, 9.0)}
    assert group_lag([{"lag": 1, "in_flight": 2, "lag_s": 3.0}, {"lag": 4, "in_flight": 0}]) == ObservedLag(5, 2, 3.0)


def screen(width: int, height: int, groups: int = 3, fault: str = "") -> list[str]:
    before, seen = look(10, 100, 10, groups), look(12, 300, 30, groups, fault)
    return frame("here", PLACES, before, seen, FIGURES, width, height, 1_795_255_200.0)


def test_the_screen_has_rates_processes_and_the_groups_with_the_largest_lag_first():
    lines = screen(80, 24)
    assert lines[0] == "penstock top  10:00:00Z  here"
    assert lines[1].startswith("sent 100/s") and "dead letters 7" in lines[2]
    assert lines[5].split() == ["producer@h:1", "ready", "50%", "1.0", "MiB", "100", "-"]
    assert [line.split() for line in lines[-3:]] == [
        ["g2", "32", "+10", "2", "1.0m"], ["g1", "31", "+10", "2", "1.0m"], ["g0", "30", "+10", "2", "1.0m"],
    ]  # fmt: skip


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (20, 5), (200, 60), (1, 1)])
def test_the_screen_fits_the_terminal_whatever_its_size(width, height):
    lines = screen(width, height, groups=100, fault="no answer")
    assert len(lines) <= height and max(map(len, lines)) <= width


def test_what_does_not_fit_is_counted():
    lines = screen(80, 14, groups=100)
    shown = len([line for line in lines if line.startswith("g")])
    assert lines[-1] == f"… {100 - shown} more groups"
    assert shortened(["a", "b", "c"], 2, "groups") == ["a", "… 2 more groups"]
    assert shortened(["a"], 1, "groups") == ["a"]

"""What a driver prints becomes figures, or a fault that names the system."""

import json

import pytest

from bench.errors import RunError
from bench.peers.driver import Driven, arguments, follow
from bench.peers.figures import from_driver
from bench.peers.penstock import settings_of
from bench.peers.workloads import BATCHED, OPEN, WORKLOADS, Shape, Terms
from bench.servers import Sampler, ServerUse

LATENCY = {
    "count": 4,
    "mean_ms": 1,
    "p50": 1,
    "p90": 2,
    "p99": 3,
    "p99_9": 4,
    "p99_99": 5,
    "max_ms": 6,
    "share_under_1_ms": 0.5,
}


def printed(**changes):
    said = {
        "calls": 40,
        "messages": 4000,
        "window_s": 2.0,
        "latency": LATENCY,
        "start_lag": LATENCY,
        "unsent": 0,
        "errors": {},
    }
    return json.dumps({**said, **changes})


def test_cpu_counts_the_servers_and_not_the_driver():
    uses = [ServerUse("broker", 0.04, 100), ServerUse("namesrv", 0.02, 50), ServerUse("driver", 9.0, 700)]
    figures = from_driver("peer", "single", printed(), uses)
    assert figures.cpu_us_per_message == pytest.approx(15)
    assert (figures.messages_per_s, figures.rss_bytes, figures.driver_cpu_s) == (2000, 150, 9.0)
    assert (figures.p99_9_ms, figures.complaints) == (4, [])


def test_failed_and_unsent_calls_are_complained_of():
    figures = from_driver("peer", "single", printed(calls=0, messages=0, unsent=7, errors={"Busy: no": 1200}), [])
    assert figures.complaints == [
        "1,200 calls failed: Busy: no",
        "7 planned calls could not be sent in time",
        "no call ended in the window",
    ]
    assert (figures.messages_per_s, figures.cpu_us_per_message) == (0, 0)


@pytest.mark.parametrize("line", ["", "Exception in thread main", "{}", "[1]", printed(errors=None)])
def test_a_line_that_is_no_figures_names_the_system(line):
    with pytest.raises(RunError, match="peer: the driver printed"):
        from_driver("peer", "single", line, [])


def test_missing_percentiles_are_named():
    latency = {name: value for name, value in LATENCY.items() if name not in ("p99_9", "max_ms")}
    with pytest.raises(RunError, match="lack p99_9, max_ms"):
        from_driver("peer", "single", printed(latency=latency), [])


def test_the_servers_are_sampled_at_the_drivers_words_and_its_last_line_is_kept(tmp_path):
    sampler = Sampler({"broker": 7}, proc=tmp_path)
    heard = []
    sampler.on_window = heard.append  # type: ignore[method-assign]
    assert (
        follow(iter(["a client library's chatter\n", "opens\n", "closes\n", '{"calls": 1}\n']), sampler)
        == '{"calls": 1}'
    )
    assert heard == [True, False]


def test_a_driver_is_told_all_that_it_asks_for():
    shapes = {BATCHED.name: Shape(loop="pipelined", threads=2, clients=1), OPEN.name: Shape()}
    driven = Driven("peer", {}, [], "kafka", "127.0.0.1:1", shapes)
    given = arguments(driven, BATCHED, Terms(5, 30, clients=16))
    assert dict(zip(given[::2], given[1::2], strict=True)) == {
        "--system": "kafka", "--servers": "127.0.0.1:1", "--loop": "pipelined", "--threads": "2", "--clients": "1",
        "--prefix": "bench-", "--topics": "16", "--queues": "8", "--size": "128", "--batch": "1", "--consumers": "0", "--most": "0",
        "--copies": "1", "--patience": "0", "--fill": "0", "--rate": "0.0", "--warmup": "30", "--seconds": "5",
    }  # fmt: skip


def test_clients_asked_for_are_those_of_sync_loops():
    driven = Driven("peer", {}, [], "kafka", "127.0.0.1:1", {OPEN.name: Shape()})
    own, asked = (arguments(driven, OPEN, Terms(5, 30, clients)) for clients in (None, 16))
    assert (own[own.index("--clients") + 1], asked[asked.index("--clients") + 1]) == ("1", "16")
    assert own[own.index("--rate") + 1] == "10000"


def test_what_was_delivered_is_told_and_topics_that_ran_dry_are_complained_of():
    figures = from_driver("peer", "pull_ack", printed(deliveries=4000, dry=True), [])
    assert (figures.deliveries_per_s, figures.as_dict()["deliveries_per_s"]) == (2000, 2000)
    assert figures.complaints == ["the topics ran dry before the window closed"]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_ours_is_asked_in_settings_that_the_generator_takes(workload):
    settings = settings_of(workload, Terms(5, 30))
    assert settings.topic_names()[-1] == f"{workload.prefix}{workload.topics - 1}"
    assert (settings.sends, settings.pulls) == (not workload.drains, workload.consumers)

"""`penstock up` as a user sees it: quick, small, one per directory, restarted processes, clean stop."""

import json
import os
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.running import RunningPenstock, is_alive
from tests.waiting import until

PROCESSES = ("engine", "producer_proxy", "consumer_proxy")
READY_S_BAR = 2.0
NOISE = 3.0  # a shared test machine is up to so many times slower; the bar itself is printed
RSS_MIB_BAR = 250


def fetch(penstock, name: str, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{penstock.facts['ops'][name]}{path}", timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read()


def rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def test_it_serves_soon_after_the_start(penstock_up):
    print(f"ready after {penstock_up.ready_s:.2f} s (bar {READY_S_BAR} s)")
    assert penstock_up.ready_s < READY_S_BAR * NOISE


def test_four_idle_processes_fit_the_memory_bar(penstock_up):
    sizes = {name: rss_mib(pid) for name, pid in penstock_up.pids.items()}
    print(
        f"idle RSS {sum(sizes.values()):.0f} MiB (bar {RSS_MIB_BAR}): " + str({k: round(v) for k, v in sizes.items()})
    )
    assert sum(sizes.values()) < RSS_MIB_BAR


def test_files_and_keys_are_closed_to_other_users(penstock_up):
    assert penstock_up.data.stat().st_mode & 0o777 == 0o700
    key = penstock_up.data / "cluster.key"
    assert (key.stat().st_mode & 0o777, len(key.read_bytes())) == (0o600, 32)


def test_the_ready_file_and_up_json_say_the_same(penstock_up):
    assert json.loads((penstock_up.data / "up.json").read_text()) == penstock_up.facts
    assert {"producer_proxy", "consumer_proxy", "engine", "ops", "config", "cluster_key", "data", "pids"} <= set(
        penstock_up.facts
    )


@pytest.mark.parametrize("name", PROCESSES)
def test_each_process_has_its_operators_pages(penstock_up, name):
    assert fetch(penstock_up, name, "/healthz")[0] == 200
    status, page = fetch(penstock_up, name, "/readyz")
    assert (status, json.loads(page)["ready"]) == (200, True)
    status, page = fetch(penstock_up, name, "/metrics")
    assert status == 200
    assert page.count(b"# HELP") > 3


def test_a_second_up_on_the_directory_refuses_in_one_line(penstock_up):
    done = penstock_up.call("up")
    assert done.returncode == 4
    assert done.stderr.decode().count("\n") == 1
    assert f"pid {penstock_up.pids['up']}" in done.stderr.decode()


def test_status_shows_every_process_ready(penstock_up):
    state = penstock_up.run("status")
    assert {each["name"] for each in state["processes"]} == {"up", *PROCESSES}
    assert all(each.get("ready", "yes") == "yes" for each in state["processes"])


@pytest.mark.parametrize("chosen, words", [("key", "look-up by key"), ("none", "look-up by reading")])
def test_engines_make_the_files_of_look_up_that_were_asked_for_and_status_says_which(penstock_factory, chosen, words):
    penstock = penstock_factory("--look-up", chosen)
    assert words in penstock.call("status").stdout.decode()
    assert penstock.run("status")["engine"]["status"]["look_up"] == [chosen][: chosen != "none"]


def test_a_look_up_that_there_is_not_is_refused_and_the_choice_is_named(tmp_path):
    done = RunningPenstock(tmp_path / "data").call("up", "--look-up", "id,body")
    assert done.returncode == 2 and "--look-up" in done.stderr.decode() and "'id,key'" in done.stderr.decode()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", PROCESSES)
def test_a_killed_process_comes_back_on_the_same_port(penstock_up, name):
    before = penstock_up.refresh()
    penstock_up.wait_replaced(name, penstock_up.kill(name))
    assert {key: penstock_up.facts[key] for key in (name, "ops")} == {key: before[key] for key in (name, "ops")}
    for each in PROCESSES:
        until(lambda each=each: fetch(penstock_up, each, "/readyz")[0] == 200, f"{each} is ready")


def test_children_die_with_a_killed_supervisor_and_the_directory_is_free(penstock_factory):
    penstock = penstock_factory()
    pids = dict(penstock.pids)
    penstock.kill("up")
    until(lambda: not any(map(is_alive, pids.values())), "all are gone", 5)
    penstock.ready_file.unlink()
    assert penstock.start().pids["engine"] != pids["engine"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_clean_quick_and_leaves_no_addresses(penstock_factory, number):
    penstock = penstock_factory()
    pids, began = dict(penstock.pids), time.monotonic()
    assert penstock.stop(number) == 0
    assert time.monotonic() - began < 10
    assert not any(map(is_alive, pids.values()))
    assert not (penstock.data / "up.json").exists() and not penstock.ready_file.exists()
    assert "does not stop" not in penstock.told()


def test_a_restart_keeps_the_ports(penstock_factory):
    penstock = penstock_factory()
    before = (penstock.producer, penstock.consumer, penstock.facts["ops"])
    penstock.restart()
    assert (penstock.producer, penstock.consumer, penstock.facts["ops"]) == before

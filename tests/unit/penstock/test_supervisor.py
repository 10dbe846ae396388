"""The supervisor with fake children: order, restarts, and that nothing outlives it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.up.plan import UpPlan
from penstock.up.ports import Hosts
from penstock.up.signals import LOOK
from penstock.up.supervisor import Supervisor
from tests.unit.penstock.fakes import is_alive, order
from tests.waiting import until

ROOT = Path(__file__).parents[3]


class Running:
    """A supervisor in a process of its own."""

    def __init__(self, place: Path, how: dict[str, str]) -> None:
        command = [sys.executable, "-m", "tests.unit.penstock.fakes", str(place), json.dumps(how)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def pids(self) -> dict[str, int]:
        """The children's pids at the next time that all serve."""
        for line in self.process.stdout:
            if line.startswith("serving "):
                return json.loads(line.removeprefix("serving "))
        raise AssertionError("ended before all served: " + self.process.stderr.read())

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(15)


@pytest.fixture
def up(tmp_path):
    started: list[Running] = []

    def start(**how: str) -> Running:
        started.append(Running(tmp_path, how))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_the_proxies_before_the_engine_with_code_0(up, tmp_path, number):
    running = up()
    running.pids()
    assert running.stop(number) == 0
    stops = [line.split()[0] for line in order(tmp_path) if line.endswith("stopped")]
    assert (set(stops[:2]), stops[2:]) == ({"producer_proxy", "consumer_proxy"}, ["engine"])


def test_a_killed_child_is_started_again(up):
    running = up()
    before = running.pids()
    os.kill(before["engine"], signal.SIGKILL)
    after = running.pids()
    assert after["engine"] != before["engine"]
    assert after["producer_proxy"] == before["producer_proxy"]


def test_a_process_that_is_needed_later_is_started_once_after_the_signal_to_look(up):
    running = up()
    before = running.pids()
    running.process.send_signal(LOOK)
    after = running.pids()
    assert after.keys() - before.keys() == {"kafka_bridge"} and before.items() <= after.items()
    running.process.send_signal(LOOK)
    os.kill(after["kafka_bridge"], signal.SIGKILL)
    again = running.pids()
    assert again["kafka_bridge"] != after["kafka_bridge"] and again.keys() == after.keys()
    assert running.stop() == 0
    assert not is_alive(again["kafka_bridge"])


def test_children_die_with_a_killed_supervisor(up):
    running = up()
    pids = running.pids()
    running.process.kill()
    running.process.wait(5)
    until(lambda: not any(is_alive(pid) for pid in pids.values()), "all children are gone")


def test_a_child_that_ignores_the_stop_is_killed_within_ten_seconds(up):
    running = up(producer_proxy="stubborn")
    pids = running.pids()
    began = time.monotonic()
    assert running.stop() == 0
    assert time.monotonic() - began < 10
    assert not is_alive(pids["producer_proxy"])


def test_a_child_that_never_serves_ends_everything_and_shows_its_log(up):
    running = up(engine="broken")
    _, errors = running.process.communicate(timeout=15)
    assert running.process.returncode == 1
    assert "engine: does not start (ended with code 3)" in errors
    assert "cannot open the store" in errors


def test_a_console_that_does_not_start_is_left_out_and_the_others_serve(up, tmp_path):
    running = up(console="broken")
    assert set(running.pids()) == {"engine", "producer_proxy", "consumer_proxy"}
    assert running.stop() == 0


def test_a_console_that_has_died_does_not_hold_up_the_news_of_the_others(up, tmp_path):
    running = up(console="good")
    pids = running.pids()
    os.kill(pids["console"], signal.SIGKILL)
    os.kill(pids["producer_proxy"], signal.SIGKILL)
    until(lambda: running.pids()["producer_proxy"] not in (0, pids["producer_proxy"]), "the proxy is announced again")


def test_processes_are_announced_only_once_they_have_reached_each_other(tmp_path):
    announced, ready = [], []
    progress: list[str] = []
    plan = UpPlan(tmp_path, Hosts(), "file:///x", tmp_path / "key", {}, [])
    supervisor = Supervisor(
        plan, print, announced.append, is_ready=lambda children: bool(ready), progress=progress.append
    )
    engine = SimpleNamespace(facts={}, restarts=0, name="engine")
    supervisor.children = [SimpleNamespace(facts={"port": 1}, restarts=0, name="producer_proxy"), engine]
    supervisor._on_child_ready(supervisor.children[0])
    engine.facts = {"port": 2}
    supervisor._on_child_ready(engine)
    assert progress == ["Starting engine", "Connecting"]
    supervisor._announce_when_ready()
    assert announced == [] and supervisor._timeout_s() < 0.1
    ready.append(True)
    supervisor._announce_when_ready()
    supervisor._announce_when_ready()
    assert announced == [supervisor.children]


def test_a_proxy_that_never_reaches_its_engine_is_announced_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.up.supervisor.SETTLE_S", 0.0)
    announced = []
    plan = UpPlan(tmp_path, Hosts(), "file:///x", tmp_path / "key", {}, [])
    supervisor = Supervisor(plan, print, announced.append, is_ready=lambda children: False)
    supervisor.children = [SimpleNamespace(facts={"port": 1}, restarts=0, name="producer_proxy")]
    supervisor._on_child_ready(supervisor.children[0])
    supervisor._announce_when_ready()
    assert announced

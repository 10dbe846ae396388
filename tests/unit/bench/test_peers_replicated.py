"""Switch-over of systems with replicas: what a driver's lines mean, when a gap is over, and who is compared with whom."""

import json
import signal
import sys
import threading
from contextlib import contextmanager

import pytest

from bench.errors import RunError
from bench.peers.driver import Driven, arguments
from bench.peers.figures import Figures
from bench.peers.replicated import __main__ as program
from bench.peers.replicated import kafka, nats, page, penstock, rocketmq, switch_over
from bench.peers.replicated.bars import medians, ratios
from bench.peers.replicated.nodes import Cluster, PeerNode, serving
from bench.peers.replicated.steady import SteadyLoad, steady_load
from bench.peers.replicated.switch_over import SwitchOver
from bench.peers.replicated.workloads import SHAPES, STEADY, WORKLOADS
from bench.peers.workloads import Terms
from bench.servers import ServerUse
from tests.services.zookeeper import PAGE, TIMES
from tests.waiting import until

LATENCY = {"p50": 0.1, "p99": 0.5, "p99_9": 2.0, "p99_99": 3.0, "max_ms": 4.0, "share_under_1_ms": 0.98765}


def driven(command, name="nats"):
    return Driven(name, {}, command, "nats", "127.0.0.1:1", SHAPES, copies=3)


# -- the driver's lines


def test_gaps_beats_and_the_leader_are_read_from_a_driver():
    load = SteadyLoad()
    load.read(iter(["gap 1042.125\n", "beat 10 2 n1 3\n", "gap 21.000\n", "beat 20 2 n2 2\n"]))
    assert load.gaps_ms == [1042.125, 21.0]
    assert (load.beat.stored, load.beat.failed, load.beat.leadership) == (20, 2, "n2 2")


def test_waiting_for_a_driver_that_has_ended_does_not_take_the_whole_time():
    load = SteadyLoad()
    load.read(iter([]))
    with pytest.raises(RunError, match="the driver ended while this was awaited: 5 more messages are stored"):
        load.wait_stored(5, 60)


def test_what_a_driver_complains_of_is_in_the_fault(tmp_path):
    command = [sys.executable, "-c", "import sys; print('no stream', file=sys.stderr); print('beat 0 0 - 0')"]
    with pytest.raises(RunError, match=r"nats: .*no stream"), steady_load(driven(command), tmp_path) as load:
        load.wait_stored(1, 20)


def test_a_steady_load_goes_to_one_queue_and_asks_for_copies():
    line = arguments(driven([]), STEADY, Terms(0, 0))
    asked = dict(zip(line[::2], line[1::2], strict=True))
    assert (asked["--loop"], asked["--queues"], asked["--topics"], asked["--copies"]) == ("steady", "1", "1", "3")
    assert asked["--rate"] == "1000" and asked["--patience"] == "0"


# -- one strike


class Told(SteadyLoad):
    """A load whose driver tells the next of these lines each time that it is looked at."""

    def __init__(self, lines):
        super().__init__()
        self._lines = iter(lines)

    def wait(self, condition, text, timeout_s):
        while not condition():
            self.read([next(self._lines)])
            self.is_over = False


class Struck:
    """A system that notes what was done to it."""

    size = 2

    def __init__(self):
        self.done = []

    def leadership(self, told):
        leader, _, count = told.partition(" ")
        return leader, int(count)

    def strike(self, leader, number):
        self.done.append(("strike", leader, number))

    def restore(self, leader, number):
        self.done.append(("restore", leader, number))


def test_a_gap_is_over_when_another_node_leads_and_messages_flow_again():
    load, system = Told(["beat 100 0 a 2"]), Struck()
    load.wait(lambda: load.beat.stored == 100, "", 1)
    load._lines = iter(
        ["gap 30", "beat 150 1 a 2", "beat 150 7 - 0", "gap 900.5", "beat 151 9 b 1", "gap 25", "beat 5000 9 b 1"]
    )
    assert switch_over.strike(system, load, signal.SIGKILL) == (900.5, 9)
    assert system.done == [("strike", "a", signal.SIGKILL), ("restore", "a", signal.SIGKILL)]


def test_gaps_of_before_a_strike_do_not_count():
    load, system = Told(["gap 5000", "beat 100 3 a 2"]), Struck()
    load.wait(lambda: load.beat.stored == 100, "", 1)
    load._lines = iter(["beat 5000 3 b 1"])
    load_of_second = iter(["beat 9000 3 b 1"])
    load._lines = (line for lines in (load._lines, load_of_second) for line in lines)
    assert switch_over.strike(system, load, signal.SIGSTOP) == (0.0, 0)


def test_a_strike_without_a_switch_is_undone():
    load, system = Told(["beat 100 0 a 2"]), Struck()
    load.wait(lambda: load.beat.stored == 100, "", 1)

    def never(condition, text, timeout_s):
        raise RunError(text)

    load.wait = never
    with pytest.raises(RunError, match="another node leads"):
        switch_over.strike(system, load, signal.SIGSTOP)
    assert system.done[-1] == ("restore", "a", signal.SIGSTOP)


def test_a_system_is_struck_only_when_all_its_nodes_are_in_sync_and_messages_flow():
    load = Told(["beat 1 0 - 0", "beat 2 0 a 1", "beat 3 0 a 2", "beat 2500 0 a 1", "beat 2600 0 a 2", "beat 1 0 x 0"])
    switch_over.wait_whole(Struck(), load)
    assert load.beat == (2600, 0, "a 2")


# -- nodes

SERVER = [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(60)"]


def state(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]


def test_a_killed_node_is_started_again_and_a_stopped_one_continued(tmp_path):
    node = PeerNode("server", SERVER, tmp_path, "up")
    with serving([node]):
        cluster = Cluster(driven([]), {"a": node}, 1)
        first = node.pid
        cluster.strike("a", signal.SIGKILL)
        cluster.restore("a", signal.SIGKILL)
        assert node.pid != first
        cluster.strike("a", signal.SIGSTOP)
        until(lambda: state(node.pid) == "T", "it is stopped")
        cluster.restore("a", signal.SIGSTOP)
        until(lambda: state(node.pid) != "T", "it goes on")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["server-1.out", "server-2.out"]


def test_a_stopped_node_is_ended_with_the_others(tmp_path):
    nodes = [PeerNode(name, SERVER, tmp_path, "up") for name in ("a", "b")]
    with pytest.raises(ZeroDivisionError), serving(nodes):
        nodes[0].strike(signal.SIGSTOP)
        raise ZeroDivisionError
    assert all(node._started.process.returncode is not None for node in nodes)


# -- settings


def lines_of(text):
    return set(text.splitlines())


def test_kafka_has_three_copies_of_which_two_are_enough(tmp_path):
    found = lines_of(kafka.properties(tmp_path, 2, [1, 2, 3, 4, 5, 6]))
    assert {"node.id=2", "min.insync.replicas=2", "default.replication.factor=3"} <= found
    assert {"listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:5"} <= found
    assert "controller.quorum.voters=1@127.0.0.1:4,2@127.0.0.1:5,3@127.0.0.1:6" in found


def test_rocketmqs_brokers_answer_when_all_in_sync_have_a_message(tmp_path):
    found = lines_of(rocketmq.broker_settings(tmp_path, "127.0.0.1:1", "127.0.0.1:2", 30))
    assert {"enableControllerMode=true", "allAckInSyncStateSet=true", "inSyncReplicas=2"} <= found
    assert {"brokerId=-1", "listenPort=30", "haListenPort=31", "controllerAddr=127.0.0.1:2"} <= found
    assert "controllerDLegerPeers=n0-127.0.0.1:2" in lines_of(rocketmq.controller_settings(tmp_path, 2))


def test_nats_servers_know_each_other_and_have_files(tmp_path):
    text = nats.server_settings(tmp_path, 1, [1, 2, 3, 4, 5, 6])
    assert 'listen: "127.0.0.1:2"' in text and 'listen: "127.0.0.1:5"' in text
    assert all(f"nats://127.0.0.1:{port}" in text for port in (4, 5, 6)) and str(tmp_path) in text


def test_a_zookeeper_allows_the_sessions_that_brokers_ask_for(tmp_path):
    tick = next(line for line in lines_of(penstock.zookeeper_settings(tmp_path, 1)) if line.startswith("tickTime="))
    assert 2 * int(tick.partition("=")[2]) <= 2000  # a session has two ticks at least
    assert tick + "\n" in TIMES.findall(PAGE.read_text()), "another one than docs/deployment.md says"


# -- figures


def figures(system, messages, workload="copied", **latency):
    uses = [ServerUse("server", 0.5, 64 << 20)]
    return Figures(system, workload, messages, messages, 1.0, {**LATENCY, **latency}, LATENCY, uses)


GAPS = [
    *(SwitchOver("penstock-java", "kill -9", gap, 0) for gap in (40.0, 60.0, 900.0)),
    *(SwitchOver("rocketmq", "kill -9", gap, 5) for gap in (18_000.0, 21_000.0, 15_000.0)),
    SwitchOver("penstock-java", "SIGSTOP", 930.0, 0),
    SwitchOver("kafka", "SIGSTOP", 30_000.0, 0),
    SwitchOver("kafka-3s", "SIGSTOP", 4_000.0, 0),
]


def test_switch_overs_are_compared_by_their_medians_and_only_with_what_ran():
    assert medians(GAPS)["rocketmq", "kill -9"] == 18_000.0
    found = {(each.peer, each.what): each for each in ratios([], GAPS)}
    assert set(found) == {
        ("rocketmq", "switch-over after kill -9, median"),
        ("kafka", "switch-over after SIGSTOP, median"),
        ("kafka-3s", "switch-over after SIGSTOP, median"),
    }
    assert found["rocketmq", "switch-over after kill -9, median"].ratio == pytest.approx(60 / 18_000)
    assert found["kafka", "switch-over after SIGSTOP, median"].met
    assert not found["kafka-3s", "switch-over after SIGSTOP, median"].met


def test_replicated_calls_are_compared_for_both_of_our_drivers():
    runs = [figures("penstock", 20_000), figures("penstock-java", 15_000), figures("nats", 5_000)]
    assert [(each.ours, each.ratio, each.most) for each in ratios(runs, [])] == [
        ("penstock", 4.0, None), ("penstock-java", 3.0, None),
    ]  # fmt: skip


def a_run(faults=()):
    runs = [figures("penstock", 20_000), figures("rocketmq", 4_000)]
    found = program.as_dict(runs, GAPS, list(faults), Terms(8, 15), [0.3, 2.5])
    return json.loads(json.dumps(found))


def test_the_page_shows_gaps_figures_ratios_and_the_load_of_the_machine():
    text = page.page(a_run(["nats: it did not start"]))
    assert "| rocketmq | kill -9 | 3 | 15,000 | 18,000 | 21,000 | 15 |" in text
    assert "after each: 0.3, 2.5" in text and "## copied:" in text and "copied_2k" not in text
    assert "| switch-over after kill -9, median | penstock-java | rocketmq | 1/300.0 | ≤ 1/10 | met |" in text
    assert "| switch-over after SIGSTOP, median | penstock-java | kafka-3s | 1/4.3 | ≤ 1/5 | **missed** |" in text
    assert "Invalid: nats: it did not start." in text


def test_every_workload_has_a_plot_and_so_have_the_gaps(tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "run.json").write_text(json.dumps(a_run()))
    assert page.main([str(tmp_path / "run.json"), str(tmp_path)]) == 0
    plots = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert plots == ["peers-replicated-copied.svg", "peers-replicated-switch_over.svg"]


# -- the program


def test_a_system_that_breaks_off_costs_its_own_figures_only(tmp_path, monkeypatch):
    class Running:
        size = 2

        def __init__(self, name):
            self.driven = driven([], name)
            self.steady = (self.driven,)

    @contextmanager
    def up():
        yield Running("nats")

    @contextmanager
    def broken():
        raise RunError("java is not installed")
        yield

    monkeypatch.setattr(program, "SYSTEMS", {"kafka": broken, "nats": up})
    monkeypatch.setattr(program, "calls", lambda system, workload, terms: [figures("nats", 9, workload.name)])
    monkeypatch.setattr(
        program,
        "switch_overs",
        lambda system, load, times, warmup_s, say: [SwitchOver("nats", "kill -9", 1.0, 0)] * times,
    )
    monkeypatch.setattr(program.signal, "signal", lambda *of: None)
    out = tmp_path / "new" / "run.json"
    assert program.main(["--only", "kafka,nats", "--times", "2", "--out", str(out)]) == 1
    said = json.loads(out.read_text())
    assert [row["workload"] for row in said["runs"]] == [each.name for each in WORKLOADS]
    assert len(said["switches"]) == 2 and said["faults"] == ["kafka: java is not installed"] and len(said["load"]) == 3


def test_no_thread_of_a_load_is_left(tmp_path):
    before = threading.active_count()
    command = [sys.executable, "-c", "import time; print('beat 9 0 a 1', flush=True); time.sleep(60)"]
    with steady_load(driven(command), tmp_path) as load:
        load.wait(lambda: load.beat.stored == 9, "it is read", 20)
    assert threading.active_count() == before

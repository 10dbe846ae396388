"""The simulator of a broker group: a short form of `make simulate-group`, and its own promises."""

import errno
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sim.group.drawing import draw
from tests.sim.group.ledger import Faulted, Ledger
from tests.sim.group.network import Network
from tests.sim.group.process import Process
from tests.sim.group.scenario import GroupScenario
from tests.sim.group.simulation import GroupSimulation, simulate_group
from tests.sim.scenario import Fault
from tests.sim.seeds import check_seeds
from tests.sim.sent import Broken
from tests.sim.shrink import shrink
from tests.sim.world import World

ROOT = Path(__file__).parents[2]
EDGES = (
    "-SINGLE_MASTER", "SINGLE_MASTER-ASYNC_REPLICATION", "ASYNC_REPLICATION-SEMI_SYNC", "SEMI_SYNC-SYNC_REPLICATION",
    "SYNC_REPLICATION-SYNC_REPLICATION", "SYNC_REPLICATION-SINGLE_MASTER",
)  # fmt: skip


def test_no_promise_is_broken_under_faults_of_the_seeds_of_this_commit():
    check_seeds("tests.sim.group")


def test_runs_do_something_and_something_goes_wrong_in_them():
    total, edges = Counter[str](), Counter[str]()
    for seed in range(60):
        outcome = simulate_group(draw(seed))
        total.update(outcome.faults)
        total.update(kept=outcome.kept, delivered=outcome.delivered, epochs=outcome.epochs)
        edges.update(outcome.edges)
    assert total["kept"] > 100 * 60 and total["delivered"] > 100 * 60, "the runs do hardly anything"
    assert total["epochs"] > 90, "the master hardly ever changes"
    assert total["kill"] and total["power_cut"] and total["partition"] and total["pause"], (
        "nothing goes wrong in the runs"
    )
    assert [edge for edge in EDGES if not edges[edge]] == [], "these changes of the group's state never happen"


def test_a_seed_gives_one_trace_in_every_process():
    code = "from tests.sim.group.simulation import simulate_group; from tests.sim.group.drawing import draw\n"
    code += "print(*(simulate_group(draw(seed)).trace for seed in (3, 4, 11, 22)))"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": str(number)},
        ).stdout
        for number in (1, 2)
    ]  # fmt: skip
    assert runs[0] == runs[1]
    assert len(set(runs[0].split())) == 4


# -- courses that were found


@pytest.mark.parametrize("operation", ["create", "rename"])
@pytest.mark.parametrize("path", ["incarnation", "truncate"])
def test_a_log_whose_cut_fails_is_kept_and_cut_by_the_next_start(operation, path):
    """The old master stands still, another one leads, and a call fails within the cut of what only the old one has."""
    fails = {"who": "a", "operations": (operation,), "code": errno.EIO, "share": 1.0, "path": path}
    faults = Fault("pause", 900, 1_500, {"who": "master"}), Fault("calls", 1_800, 1_500, fails)
    outcome = simulate_group(GroupScenario(0, 3_400, 2, 1, faults, (0,) * 5, log={"segment_bytes": 16 << 10}))
    assert outcome.broken == "" and outcome.faults[f"call {operation}"] > 0 and outcome.epochs > 1


def test_a_slave_whose_disk_is_full_while_it_makes_its_log_follows_once_there_is_room():
    """The log is there, and then the number of the start cannot be noted; no later record wakes the slave."""
    fails = {"who": "slave", "operations": ("write",), "code": errno.ENOSPC, "share": 0.3, "path": ""}
    outcome = simulate_group(
        GroupScenario(
            4155,
            1_161,
            2,
            2,
            (Fault("calls", 539, 1_000, fails),),
            (0,) * 5,
            session_ms=2_000,
            topics=(),
            timers=False,
            threads=True,
            log={"segment_bytes": 16_384, "pending_max": 3},
            node={"tick_ms": 50, "progress_ms": 200},
        )
    )
    assert outcome.broken == "" and outcome.faults["call write"] > 0


def test_a_log_that_a_power_cut_has_torn_does_not_lead_whole_however_often_it_starts():
    """A lone master's process that starts after the power cut is killed before it serves."""
    faults = (
        Fault("slow_disk", 252, 3_000, {"who": "a", "ms": 200}),
        Fault("slow_disk", 252, 3_000, {"who": "b", "ms": 200}),
        Fault("switch", 422, 1_000, {"who": "a", "hands_over": False}),
        Fault("kill", 552, 2_500, {"who": "master"}),
        Fault("power_cut", 1_604, 1_000, {"who": "master"}),
        Fault("kill_all", 1_946, 2_500, {"who": "a"}),
        Fault("kill_in_call", 2_284, 2_500, {"who": "master", "calls": 10}),
    )
    drifts_ppm = (-25_199, 38_358, -8_198, 10_032, -47_772)
    simulation = GroupSimulation(
        GroupScenario(
            2067,
            2_949,
            2,
            2,
            faults,
            drifts_ppm,
            pause_ms=30,
            bytes_max=30,
            retry=0.1,
            log={"segment_bytes": 262_144},
            node={"tick_ms": 50},
        )
    )
    assert simulation.run() == ""
    assert any("diverged" in path for path in simulation.cluster.brokers["a"].env.files), "nothing was torn"


def test_a_master_that_was_greeted_before_it_adopted_the_newest_record_is_used_all_the_same():
    """It stands still with the greeting and the record, under which it stays master, in its socket."""
    both_ways = [pair for name in ("a", "b", "c1") for pair in ((name, "proxy"), ("proxy", name))]
    faults = (
        Fault("partition", 442, 300, {"pairs": both_ways}),
        Fault("pause", 500, 2_500, {"who": "master"}),
        Fault("partition", 577, 1_000, {"pairs": [("b", "a")]}),
        Fault("power_cut", 1_129, 50, {"who": "b"}),
    )
    assert simulate_group(replace(draw(52633), faults=faults)).broken == ""


@pytest.mark.parametrize("seed", range(4))
def test_a_master_that_hands_over_follows_the_next_one_with_its_log_as_it_is(seed):
    times_ms = (701, 1_101, 1_501, 1_901, 2_301, 2_701)
    options = {"who": "master", "hands_over": True, "late_ms": 5}
    switches = tuple(Fault("switch", at_ms, 1, options) for at_ms in times_ms)
    scenario = GroupScenario(seed, 3_000, 2, 1, switches, (0,) * 5, log={"segment_bytes": 16 << 10})
    simulation = GroupSimulation(scenario)
    assert simulation.run() == ""
    assert simulation.injection.count["switched"] >= len(times_ms) - 1
    opened = sum(broker.opened for broker in simulation.cluster.brokers.values())
    assert opened == 2, "a log was opened again"


@pytest.mark.parametrize("after_ms", [0, 5, 15, 40])
def test_a_new_master_that_ends_at_once_after_a_planned_switch_is_replaced_by_the_one_that_handed_over(after_ms):
    options = {"who": "master", "hands_over": True, "late_ms": 5}
    faults = Fault("switch", 701, 1, options), Fault("kill", 725 + after_ms, 30_000, {"who": "b"})
    scenario = GroupScenario(1, 3_000, 2, 1, faults, (0,) * 5, pause_ms=6)
    outcome = simulate_group(scenario, keep_lines=True)
    assert outcome.broken == ""
    before_healing = outcome.lines[: next(at for at, line in enumerate(outcome.lines) if line.endswith("heal"))]
    records = [line for line in before_healing if " record " in line]
    assert "from broker a to b" in records[5] and "broker b is lost: a is master" in records[6]


def test_a_member_leads_in_the_place_of_one_whose_disk_has_no_room_and_the_record_does_not_change_all_the_time():
    faults = Fault("kill", 1_500, 3_000, {"who": "a"}), Fault("disk_full", 1_501, 2_500, {"who": "b"})
    outcome = simulate_group(GroupScenario(0, 4_000, 3, 1, faults, (0,) * 5), keep_lines=True)
    assert outcome.broken == ""
    records = [line for line in outcome.lines if " record " in line]
    assert any("broker b cannot lead: c is master" in line for line in records)
    assert len(records) < 40, "each try of a slave whose disk is full writes a record"


# -- the ledger


@pytest.fixture
def ledger():
    return Ledger(Faulted())


def kept(ledger: Ledger, number: int, offset: int, key: bytes = b"", asked_ms: int = 0) -> bytes:
    sent = ledger.send("fsync", f"s#{number}", key, number, asked_ms)
    ledger.answered(sent, 0, ("fsync", 0, offset), asked_ms + 5)
    return body(number)


def body(number: int) -> bytes:
    return b"|fsync|s#%d|" % number


def test_the_ledger_notices_losses_doubles_and_wrong_order(ledger):
    one, two = kept(ledger, 1, 0, b"k"), kept(ledger, 2, 1, b"k", asked_ms=10)
    places = [("fsync", 0, 0), ("fsync", 0, 1), ("fsync", 0, 2)]
    ledger.check({places[0]: one, places[1]: two})
    with pytest.raises(Broken, match="the log lacks it"):
        ledger.check({places[0]: one})
    with pytest.raises(Broken, match="2 times"):
        ledger.check({places[0]: one, places[1]: two, places[2]: one})
    with pytest.raises(Broken, match="was not sent"):
        ledger.check({places[0]: body(9)})
    swapped = Ledger(Faulted())
    kept(swapped, 1, 1, b"k")
    kept(swapped, 2, 0, b"k", asked_ms=10)
    with pytest.raises(Broken, match="same key"):
        swapped.check({places[0]: two, places[1]: one})


def test_the_ledger_notices_what_readers_must_not_see(ledger):
    one = kept(ledger, 1, 0)
    refused = ledger.send("fsync", "s#2", b"", 2, 0)
    ledger.answered(refused, 203, None, 1)
    with pytest.raises(Broken, match="not stored"):
        ledger.reads(("fsync", 0, 1), body(2))
    unknown = ledger.send("fsync", "s#3", b"", 3, 0)
    ledger.reads(("fsync", 0, 1), body(3))
    ledger.answered(unknown, 300, None, 1)
    with pytest.raises(Broken, match="was read at"):
        ledger.check({("fsync", 0, 0): one})
    with pytest.raises(Broken, match="two messages"):
        ledger.reads(("fsync", 0, 1), body(1))


def test_an_acknowledgement_may_be_forgotten_at_a_switch_only(ledger):
    one = kept(ledger, 1, 0)
    place = "fsync", 0, 0
    ledger.delivers(place, one, 1, 100)
    ledger.done(place, 10_000)
    ledger.delivers(place, one, 1, 9_990)  # on its way before
    ledger.faulted.ends_ms.append(10_200)
    ledger.delivers(place, one, 2, 10_300)
    ledger.faulted.ends_ms.clear()
    with pytest.raises(Broken, match="delivered again"):
        ledger.delivers(place, one, 2, 10_300)


# -- the network


class Recorder(Process):
    """A process that records what arrives."""

    def __init__(self, world: World, network: Network, name: str) -> None:
        self.world, self.network, self.name = world, network, name
        self.number, self.is_up, self.has_power, self._stops, self._waiting = 0, False, True, 0, []
        network.processes[name] = self
        self.got: list[object] = []
        self.begin()

    def accept(self, end) -> None:
        self.end_ = end
        end.on_frame, end.on_closed = self.got.append, lambda: self.got.append("closed")


@pytest.fixture
def pair():
    world = World(7)
    network = Network(world)
    one, other = Recorder(world, network, "a"), Recorder(world, network, "b")
    opened: list = []
    network.dial(one, "b", opened.append, lambda: None)
    world.run(100)
    return world, network, one, other, opened[0]


def frame(number: int) -> bytes:
    return bytes([16, 0, 0, 0, number]) + bytes(15)


def test_a_connection_keeps_its_order_and_a_cut_delays_or_breaks_it(pair):
    world, network, _, other, end = pair
    network.slow_ms = 50
    for number in range(20):
        end.send(frame(number))
    world.run(1_000)
    assert other.got == [frame(number) for number in range(20)]
    network.cut([("a", "b")])
    end.send(frame(99))
    world.run(5_000)
    assert frame(99) not in other.got
    network.heal([("a", "b")])
    world.run(1_000)
    assert other.got[20:] in ([frame(99)], ["closed"])


def test_a_process_that_stands_still_takes_everything_in_order_once_it_goes_on(pair):
    world, _, _, other, end = pair
    other.stop_signal()
    for number in range(3):
        end.send(frame(number))
    world.run(1_000)
    assert other.got == []
    other.continue_signal()
    assert other.got == [frame(number) for number in range(3)]


def test_peers_learn_of_a_kill_and_not_of_a_power_cut(pair):
    world, _, one, other, end = pair
    end.on_closed = lambda: one.got.append("closed")
    other.end(power_cut=True, reason="")
    world.run(5_000)
    assert one.got == []
    one.network.machine_started(other)
    world.run(1_000)
    assert one.got == ["closed"]


# -- shrinking


def test_a_failing_scenario_is_shrunk_to_the_fault_that_matters():
    faults = tuple(Fault(kind, 500, 100, {"who": "a"}) for kind in ("slow_disk", "kill", "stop"))
    scenario = GroupScenario(1, 1_000, 2, 1, faults, (0,) * 5)

    class Found:
        def __init__(self, scenario: GroupScenario) -> None:
            self.scenario = scenario
            self.broken = "it breaks" if any(each.kind == "kill" for each in scenario.faults) else ""

    smallest = shrink(Found(scenario), Found).scenario
    assert [each.kind for each in smallest.faults] == ["kill"] and smallest.topics == () and not smallest.timers

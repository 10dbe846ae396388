"""Three engines in one process; one of them crashes repeatedly and restarts from its simulated disk."""

import pytest

from engine.config import LogConfig
from tests.sim.actors import Asker, Consumer, DelayedSender, Producer, lag
from tests.sim.engine import Engine
from tests.sim.ledger import Ledger
from tests.sim.world import World

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
NAMES = ("a", "b", "c")
GROUPS = {"billing": "orders", "desk": "questions"}
QUEUES = {"orders": 3, "questions": 2}


def clients(engine: Engine, ledger: Ledger) -> list[Producer]:
    for group, topic in GROUPS.items():
        Consumer(engine, f"{group}@{engine.name}", ledger, group, topic, QUEUES[topic])
    return [
        Producer(engine, f"producer@{engine.name}", ledger, "orders", 3, 5_000),
        DelayedSender(engine, f"delayed@{engine.name}", ledger, "orders", 3, 20_000, delay_ms_max=30 * MINUTE_MS),
    ]


def run(seed: int, power_cut: bool, crashes: int = 4) -> tuple[World, dict[str, Ledger]]:
    """Run two hours in which engine b crashes several times and stays down for up to a minute."""
    world = World(seed)
    ledgers = {name: Ledger() for name in NAMES}
    engines = {name: world.engine(name, LogConfig(segment_bytes=128 << 10)) for name in NAMES}
    producers = [producer for name in NAMES for producer in clients(engines[name], ledgers[name])]
    asker = Asker(engines["a"], "asker@a", ledgers["a"], "questions", 2, MINUTE_MS)
    for _ in range(crashes):
        world.run(world.random.randint(10 * MINUTE_MS, 30 * MINUTE_MS))
        engines["b"].crash(power_cut)
        world.run(world.random.randint(1_000, MINUTE_MS))
        engines["b"].start()
    for producer in (*producers, asker):
        producer.stop()
    world.run(HOUR_MS)
    return world, ledgers


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_crash_loses_nothing_that_was_answered_and_leaves_the_others_alone(power_cut):
    world, ledgers = run(11, power_cut)
    for name, ledger in ledgers.items():
        ledger.check({"billing": "orders"}, world.now_ms)
        assert lag(world.engines[name], "billing") == 0
        assert len(ledger.appended) > 500 and len(ledger.timers) > 50
    assert ledgers["a"].asked and not ledgers["b"].asked
    assert [world.engines[name].incarnation for name in NAMES] == [1, 5, 1]


def test_crashes_repeat_themselves_with_the_seed():
    assert run(12, True, 2)[0].trace() == run(12, True, 2)[0].trace() != run(13, True, 2)[0].trace()

"""Links whose output waits until what it shows is on the disk: then a power cut takes back nothing that was answered."""

import pytest

from engine.config import LogConfig
from engine.link import layout
from tests.sim.actors import Consumer, Producer, lag
from tests.sim.engine import Engine
from tests.sim.ledger import Ledger
from tests.sim.world import World

MINUTE_MS = 60_000


def run(seed: int, *, holds: bool) -> tuple[World, Engine, Ledger]:
    """Send with durability MEMORY and pull, while the power is cut several times."""
    world, ledger = World(seed), Ledger()
    engine = world.engine("a", LogConfig(segment_bytes=128 << 10), holds=holds, threads=True, staged=True)
    Consumer(engine, "billing", ledger, "billing", "orders", 3)
    producers = [
        Producer(engine, f"producer-{number}", ledger, "orders", 3, 200, durability=layout.MEMORY)
        for number in range(3)
    ]
    for _ in range(4):
        world.run(world.random.randint(MINUTE_MS // 2, MINUTE_MS))
        engine.crash(power_cut=True)
        world.run(1_000)
        engine.start()
    for producer in producers:
        producer.stop()
    world.run(5 * MINUTE_MS)
    return world, engine, ledger


@pytest.mark.parametrize("seed", [0, 1])
def test_a_power_cut_takes_back_nothing_that_a_client_has_seen(seed):
    world, engine, ledger = run(seed, holds=True)
    ledger.check({"billing": "orders"}, world.now_ms)
    assert lag(engine, "billing") == 0 and len(ledger.appended) > 1_000


def test_without_the_hold_it_takes_back_some():
    with pytest.raises(AssertionError, match=r"with other bytes than before|messages not delivered"):
        world, _, ledger = run(0, holds=False)
        ledger.check({"billing": "orders"}, world.now_ms)

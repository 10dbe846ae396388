"""One engine through a day of virtual time.

All appended messages are delivered and acknowledged; timers fire once and not early.
"""

import subprocess
import sys
from pathlib import Path

from engine.config import LogConfig
from tests.sim.actors import Asker, Consumer, DelayedSender, Producer, lag
from tests.sim.ledger import Ledger
from tests.sim.world import World

ROOT = Path(__file__).parents[2]
HOUR_MS = 3_600_000
GROUPS = {"billing": "orders", "audit": "orders", "ledger": "payments", "desk": "questions"}


def day(seed: int, hours: float = 24) -> World:
    """Run a day of traffic, let it drain, and check the ledger."""
    world, ledger = World(seed), Ledger()
    engine = world.engine("a", LogConfig(segment_bytes=256 << 10, retention_ms=6 * HOUR_MS))
    producers = [
        Producer(engine, "p1", ledger, "orders", 4, 60_000),
        Producer(engine, "p2", ledger, "payments", 2, 90_000),
        DelayedSender(engine, "d1", ledger, "orders", 4, 180_000, delay_ms_max=2 * HOUR_MS),
        Asker(engine, "a1", ledger, "questions", 2, 300_000),
    ]
    for group, topic in GROUPS.items():
        for number in range(2):
            Consumer(
                engine, f"{group}-{number}", ledger, group, topic, {"orders": 4, "payments": 2, "questions": 2}[topic]
            )
    world.run(int(hours * HOUR_MS))
    for producer in producers:
        producer.stop()
    world.run(3 * HOUR_MS)
    ledger.check(GROUPS, world.now_ms)
    assert {lag(engine, group) for group in GROUPS} == {0}
    assert len(ledger.appended) > 100 * hours and len(ledger.timers) > 10 * hours and len(ledger.asked) > 5 * hours
    assert (engine.node is not None and hours < 12) or engine.node.store.retention.deleted_segments > 0
    engine.stop()
    return world


def test_a_day_of_messages_groups_timers_and_requests_is_delivered():
    world = day(seed=1)
    assert world.events > 100_000


def test_the_same_seed_gives_the_same_trace_and_another_seed_another():
    assert day(seed=2, hours=1).trace() == day(seed=2, hours=1).trace() != day(seed=3, hours=1).trace()


PROOF = """
import sys
from tests.sim.test_day import day
seen = set()
sys.addaudithook(lambda event, arguments: seen.add(event))
trace = day(5, 0.25).trace()
touched = sorted(each for each in seen if each == "open" or each.partition(".")[0] in ("socket", "subprocess", "_thread"))
print(trace, touched, [name for name in ("gevent", "rocksdict") if name in sys.modules])
"""


def test_a_simulation_opens_no_socket_and_no_file_and_starts_no_thread():
    done = subprocess.run([sys.executable, "-c", PROOF], cwd=ROOT, capture_output=True, text=True, check=True)
    trace, proof = done.stdout.strip().split(" ", 1)
    assert proof == "[] []"
    assert trace == day(5, 0.25).trace(), "the trace depends on the process"

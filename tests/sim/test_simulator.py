"""The fault simulator: a short form of `make simulate`, and its own promises."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.sim.drawing import draw
from tests.sim.history import History
from tests.sim.seeds import check_seeds
from tests.sim.sent import Broken, GroupRules, LastLease, Sent
from tests.sim.simulation import simulate
from tests.sim.world import World

ROOT = Path(__file__).parents[2]


def test_no_promise_is_broken_under_faults_of_the_seeds_of_this_commit():
    check_seeds("tests.sim")


def test_runs_do_something_and_something_goes_wrong_in_them():
    total = Counter[str]()
    for seed in range(60):
        outcome = simulate(draw(seed))
        total.update(outcome.faults)
        total.update(kept=outcome.kept, delivered=outcome.delivered)
    assert total["kept"] > 100 * 60 and total["delivered"] > 100 * 60, "the runs do hardly anything"
    assert total["read"] and total["write"] and total["kill"] and total["power_cut"], "nothing goes wrong in the runs"


def test_a_seed_gives_one_trace_in_every_process():
    code = "from tests.sim.simulation import simulate; from tests.sim.drawing import draw\n"
    code += "print(*(simulate(draw(seed)).trace for seed in (3, 4, 11)))"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": str(number)},
        ).stdout
        for number in (1, 2)
    ]  # fmt: skip
    assert runs[0] == runs[1]
    assert len(set(runs[0].split())) == 3


@pytest.fixture
def history():
    return History(World(1).engine("a"), (GroupRules("reds", ("orders",), tags=("red",), order="key"),))


def sent(history: History, number: int, key: bytes = b"") -> Sent:
    message = b"|orders|plain#%d|" % number
    return history.send(Sent("orders", f"plain#{number}", number, message, key, "red"))


def deliver(history: History, offset: int, message: Sent, attempt: int = 1, sent_ms: int = 0) -> None:
    place = ("orders", 0, offset)
    history.on_the_way("reds", place)
    lease = LastLease("c", sent_ms + 1_000, history.stamp(history.groups["reds"]))
    history.deliver("reds", place, message.message, attempt, 0, lease, sent_ms)


def test_the_history_notices_what_breaks_a_promise(history):
    first, second = sent(history, 1, b"k"), sent(history, 2, b"k")
    history.stored(first, ("orders", 0, 0), True)
    history.stored(second, ("orders", 0, 1), True)
    with pytest.raises(Broken, match="two messages"):
        history.stored(second, ("orders", 0, 0), True)
    with pytest.raises(Broken, match="before plain#1"):
        deliver(history, 1, second)
    deliver(history, 0, first)
    with pytest.raises(Broken, match="leased to c for 500 ms more"):
        deliver(history, 0, first, sent_ms=500)
    with pytest.raises(Broken, match="attempt 9 after"):
        deliver(history, 0, first, attempt=9, sent_ms=2_000)


def test_the_history_notices_a_refused_message_a_foreign_topic_and_changed_bytes(history):
    refused = sent(history, 1)
    history.refused(refused, 203)
    with pytest.raises(Broken, match="not stored"):
        deliver(history, 0, refused)
    foreign = history.send(Sent("payments", "other#1", 1, b"|payments|other#1|", b"", "red"))
    with pytest.raises(Broken, match="sent to topic payments"):
        deliver(history, 1, foreign)
    changed = sent(history, 2)
    changed.message += b"x"
    with pytest.raises(Broken, match="other bytes"):
        history._sent_of(b"|orders|plain#2|", ("orders", 0, 2))

"""An idle installation sleeps: how often its processes wake, by the voluntary context switches of all their threads."""

import re
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.waiting import until

WAKE_UPS_MAX = {"producer_proxy": 30, "consumer_proxy": 20, "engine": 20}  # per second
WINDOW_S = 4.0
SETTLED_S_MAX = 60.0  # for what a start leaves to be done


@pytest.fixture(scope="module", params=[(), ("--groups", "2")], ids=["one engine", "two broker groups"])
def penstock(request, penstock_factory):
    return penstock_factory(*request.param)


def switches(pid: int) -> dict[str, int]:
    """Voluntary context switches so far, by thread."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended
            found[thread.name] = int(
                re.search(r"^voluntary_ctxt_switches:\s*(\d+)", (thread / "status").read_text(), re.M)[1]
            )
    return found


def wake_ups(pids: dict[str, int]) -> dict[str, float]:
    """Wake-ups per second of each process, in the next WINDOW_S. A busy machine makes them fewer, not more."""
    before, began_s = {name: switches(pid) for name, pid in pids.items()}, time.monotonic()
    until(lambda: time.monotonic() - began_s >= WINDOW_S, "the window's end")
    lasted_s = time.monotonic() - began_s

    def woken(name: str) -> int:
        return sum(count - before[name].get(thread, 0) for thread, count in switches(pids[name]).items())

    return {name: woken(name) / lasted_s for name in pids}


def test_processes_without_work_wake_rarely(penstock):
    bars = {name: bar for name in penstock.pids for kind, bar in WAKE_UPS_MAX.items() if name.startswith(kind)}

    def are_rare() -> bool:
        found = wake_ups({name: penstock.pids[name] for name in bars})
        print("wake-ups per second:", {name: round(rate, 1) for name, rate in found.items()})
        return all(rate <= bars[name] for name, rate in found.items())

    until(are_rare, f"wake-ups per second are within {bars}", SETTLED_S_MAX)

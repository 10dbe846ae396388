"""An idle installation sleeps: its processes wake rarely, by the context switches of all their threads, and miss nothing."""

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from common.contract import Code, Message
from tests.fault.stock_clients import Sender, knows
from tests.waiting import until

WAKE_UPS_MAX = {"producer_proxy": 30, "consumer_proxy": 20, "engine": 20}  # per second
WINDOW_S = 4.0
SETTLED_S_MAX = 60.0  # for what a start leaves to be done
TIMEOUT_MS = 500
NOISE_S = 0.2  # of a busy machine


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


def wait_asleep(penstock) -> None:
    """Return when each process wakes as rarely as it may: nothing has happened for WINDOW_S at least."""
    bars = {name: bar for name in penstock.pids for kind, bar in WAKE_UPS_MAX.items() if name.startswith(kind)}

    def are_rare() -> bool:
        found = wake_ups({name: penstock.pids[name] for name in bars})
        print("wake-ups per second:", {name: round(rate, 1) for name, rate in found.items()})
        return all(rate <= bars[name] for name, rate in found.items())

    until(are_rare, f"wake-ups per second are within {bars}", SETTLED_S_MAX)


def test_processes_without_work_wake_rarely(penstock):
    wait_asleep(penstock)


def test_a_send_to_engines_that_stopped_while_all_slept_ends_as_without_the_sleep(penstock):
    shop = penstock.application("shop", send=["*"])
    penstock.run("topic", "create", "orders", "--durability", "memory")
    engines, took = [pid for name, pid in penstock.pids.items() if name.startswith("engine")], []
    with Sender(penstock.producer, shop) as sender:
        knows(sender, "orders")
        for sleeps in (False, True):
            until(lambda: sender.one("orders").code == Code.OK, "messages are stored")
            if sleeps:
                wait_asleep(penstock)
            for pid in engines:
                os.kill(pid, signal.SIGSTOP)
            try:
                began_s = time.monotonic()
                (result,) = sender.send(Message(topic="orders", body=b"m"), timeout_ms=TIMEOUT_MS)
                took.append(time.monotonic() - began_s)
            finally:
                for pid in engines:
                    os.kill(pid, signal.SIGCONT)
            assert result.code == Code.TIMEOUT
    assert took[0] == pytest.approx(TIMEOUT_MS / 1000, abs=NOISE_S)
    assert took[1] == pytest.approx(took[0], abs=NOISE_S)

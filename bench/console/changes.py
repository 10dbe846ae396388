"""Time from an approval to its use by every process (case `changes`).

Question: is an approved change applied by all processes within a second? A request for a topic is made by the API of the
console, then approved; the time runs from the sending of the approval until the reports of all processes in the
configuration store have the change. Engine, both proxies and the console run; requests follow each other. Excluded:
making the request. The store is a file store, or the one that $PENSTOCK_BENCH_CONFIG names.
"""

import os
import time
from collections.abc import Callable
from contextlib import closing

from bench.console.desk import TEAM, PageClient, console_desk, load_average
from bench.errors import RunError
from bench.figures import Figure
from common.config.applying import laggards
from common.config.opening import open_store
from common.config.store import ConfigStore

CHANGES = 1_000
PROCESSES = 3
POLL_S = 0.002
APPLIED_S_MAX = 30.0
P99_S_MAX = 1.0
STORE_VARIABLE = "PENSTOCK_BENCH_CONFIG"


def run(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    url = os.environ.get(STORE_VARIABLE, "")
    with console_desk(*(["--config", url] if url else [])) as desk:
        desk.account("ada")
        client = PageClient(desk.place, Authorization=f"Bearer {desk.token('ada')}")
        with closing(client), closing(open_store(desk.instance.facts["config"])) as store:
            if len(store.applied()) != PROCESSES:
                raise RunError(f"{len(store.applied())} processes report to the store, not {PROCESSES}")
            taken_s, answered_s = [], []
            for number in range(int(CHANGES * scale)):
                answered, applied = _change(client, store, number)
                answered_s.append(answered)
                taken_s.append(applied)
                if number % 100 == 99:
                    say(f"changes: {number + 1}: {max(taken_s):.3f} s at most")
    taken_s.sort()
    answered_s.sort()
    kind = "the given store" if url else "a file store"
    return [
        Figure(f"changes on {kind}", len(taken_s), "changes"),
        Figure("the approval's answer, p50", _at(answered_s, 0.5), "s"),
        Figure("the approval's answer, p99", _at(answered_s, 0.99), "s"),
        Figure("applied by all processes, p50", _at(taken_s, 0.5), "s"),
        Figure("applied by all processes, p99", _at(taken_s, 0.99), "s", most=P99_S_MAX),
        Figure("applied by all processes, longest", taken_s[-1], "s"),
        load_average(),
    ]


def _change(client: PageClient, store: ConfigStore, number: int) -> tuple[float, float]:
    """Ask and approve; seconds until the answer, and until all processes have applied it."""
    wish = {"name": f"bench.change.{number:05d}", "description": "A change of the benchmark", "team": TEAM}
    asked = client.post("/api/v1/requests", wish)
    began = time.perf_counter()
    done = client.post(f"/api/v1/requests/{asked['id']}/approve", {"version": asked["version"]})
    answered_s = time.perf_counter() - began
    if done["state"] != "applied":
        raise RunError(f"request {asked['id']} is {done['state']}: {done['problem']}")
    while late := laggards(store, done["kind_versions"]):
        if time.perf_counter() - began > APPLIED_S_MAX:
            raise RunError(f"{', '.join(late)}: not applied within {APPLIED_S_MAX:.0f} s")
        time.sleep(POLL_S)
    return answered_s, time.perf_counter() - began


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

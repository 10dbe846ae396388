"""Switch-over: the leader is killed or stopped under a steady load, again and again; how long is nothing stored?"""

import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.peers.driver import Driven
from bench.peers.replicated.nodes import ReplicatedSystem
from bench.peers.replicated.steady import SteadyLoad, steady_load
from bench.peers.replicated.workloads import STEADY

STRIKES = {"kill -9": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}
WHOLE_TIMEOUT_S = 180.0
SWITCH_TIMEOUT_S = 150.0
FLOW_S = 2.0
"""The load has to flow for so long before a strike, and again after it, before the gap counts as over."""


@dataclass(frozen=True)
class SwitchOver:
    """One strike.

    Attributes:
        gap_ms: the longest time without a stored message around it.
        failed: calls that were answered with an error.
    """

    system: str
    strike: str
    gap_ms: float
    failed: int


def switch_overs(
    system: ReplicatedSystem, driven: Driven, times: int, warmup_s: float, say: Callable[[str], None]
) -> Iterator[SwitchOver]:
    """Under the load of `driven`, strike the leader `times` times in each way, the ways by turns.

    Raises:
        RunError: no other node led, nothing was stored any more, or the system was not whole again.
    """
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-steady-") as folder,
        steady_load(driven, Path(folder)) as load,
    ):
        load.wait_stored(int(STEADY.rate * warmup_s), SWITCH_TIMEOUT_S + warmup_s)
        for number in range(times):
            for name, signalled in STRIKES.items():
                wait_whole(system, load)
                gap_ms, failed = strike(system, load, signalled)
                say(f"switch_over {driven.name} {name} {number + 1}: {gap_ms:,.0f} ms, {failed} failed")
                yield SwitchOver(driven.name, name, gap_ms, failed)


def wait_whole(system: ReplicatedSystem, load: SteadyLoad) -> None:
    """Until all nodes are in sync, and messages flow."""

    def is_whole() -> bool:
        leader, in_sync = system.leadership(load.beat.leadership)
        return leader != "-" and in_sync == system.size

    load.wait(is_whole, "all nodes are in sync", WHOLE_TIMEOUT_S)
    load.wait_stored(int(STEADY.rate * FLOW_S), SWITCH_TIMEOUT_S)
    load.wait(is_whole, "all nodes are in sync", WHOLE_TIMEOUT_S)


def strike(system: ReplicatedSystem, load: SteadyLoad, signalled: signal.Signals) -> tuple[float, int]:
    """Strike the leader, wait until another one leads and messages flow, and restore the struck one.

    Returns:
        The longest gap in ms, and the number of failed calls.
    """
    leader, _ = system.leadership(load.beat.leadership)
    gaps, failed = len(load.gaps_ms), load.beat.failed

    def another_leads() -> bool:
        return system.leadership(load.beat.leadership)[0] not in (leader, "-")

    system.strike(leader, signalled)
    try:
        load.wait(another_leads, "another node leads", SWITCH_TIMEOUT_S)
        load.wait_stored(int(STEADY.rate * FLOW_S), SWITCH_TIMEOUT_S)
    finally:
        system.restore(leader, signalled)
    return max(load.gaps_ms[gaps:], default=0.0), load.beat.failed - failed

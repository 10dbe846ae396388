"""Time from the restart of a running Penstock's engine, by its supervisor, to the first stored message."""

import contextlib
import os
import signal
import time
from pathlib import Path

from bench import instance
from bench.call import CallError, Line, credential, send_one
from bench.errors import RunError
from bench.generator import LoadTarget

TIMEOUT_S = 120.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def seconds_to_first_send(
    running: instance.BenchInstance, target: LoadTarget, topic: str, number: signal.Signals
) -> float:
    """End the engine by `number`, and return the seconds from the start of its next process to the first message that
    is stored.

    The supervisor's back-off is not included; the proxy's reconnect to the engine is.

    Raises:
        RunError: no message was stored within TIMEOUT_S.
    """
    data = Path(running.facts["data"])
    old = running.pids["engine"]
    os.kill(old, number)
    deadline = time.monotonic() + TIMEOUT_S
    while _is_running(old):
        _wait(deadline)
    stored_at = _first_stored(target, topic, deadline)
    while (now := _engine_pid(data)) in (None, old):
        _wait(deadline)
    return stored_at - _started_at(now)


def _first_stored(target: LoadTarget, topic: str, deadline: float) -> float:
    """Send messages until one is stored; return the time, in seconds since the machine's start."""
    while True:
        with contextlib.suppress(OSError, CallError), contextlib.closing(Line(target.producer, TIMEOUT_S)) as line:
            while not send_one(line, credential(target), topic):
                _wait(deadline)
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        _wait(deadline)


def _wait(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise RunError(f"{TIMEOUT_S:g} s after the engine was ended nothing has been stored")
    time.sleep(0.002)


def _is_running(pid: int) -> bool:
    """Whether the process runs. A zombie has ended; its parent has not reaped it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _engine_pid(data: Path) -> int | None:
    try:
        return instance.running(data).pids["engine"]
    except instance.InstanceError:
        return None


def _started_at(pid: int) -> float:
    """Start time of the process, in seconds since the machine's start, in steps of a tick."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]) / TICKS_PER_S

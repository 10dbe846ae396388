"""Steps of one benchmark against a running instance."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench.auto_creation import auto_create
from bench.errors import RunError
from bench.generator import OVERLOADED, STORED, LoadTarget, run_load
from bench.instance import BenchInstance
from bench.outcome import Outcome, commit
from bench.servers import Sampler
from bench.settings import LoadSettings

SETTLE_TIMEOUT_S = 15.0
FILL_BATCH = 200
FILL_PASSES_MAX = 20
UNTIL_DONE_S = 3600.0  # upper bound; a fill ends by count


def measure(name: str, settings: LoadSettings, instance: BenchInstance, say: Callable[[str], None]) -> Outcome:
    """Prepare topics and application, settle, fill if need be, run, and read what the servers used.

    Raises:
        BenchError: the instance refused a command, or the run broke off.
    """
    say(f"{name}: {'one family, and' if settings.family else 'creating'} {settings.topics:,} topics")
    with instance.prepared(settings) as target:
        there = settle(replace(settings, topics=1) if settings.family else settings, target)
        birth = auto_create(settings, target, instance.pids) if settings.family else None
        there += birth.topics if birth else 0
        if settings.mode == "pull":
            say(f"{name}: filling them with {settings.fill:,} messages")
            there += fill(settings, target)
        say(f"{name}: {settings.warmup_s:g} s of warm-up, then {settings.seconds:g} s")
        sampler = Sampler(instance.pids)
        with on_one_core():
            loaded = run_load(settings, target, sampler.on_window, deliveries_max=0 if settings.sends else there)
    return Outcome(name, settings, commit(), loaded, sampler.uses, sampler.generator, birth)


@contextlib.contextmanager
def on_one_core(apart: Sequence[int] = ()) -> Iterator[None]:
    """Keep this thread, the generator, on the last core that it may use; the servers go where the kernel puts them.

    A generator that migrates shares a core with the proxy in some runs and not in others; such runs differ by half.

    Args:
        apart: processes that are kept off that core. With one core they share it.
    """
    allowed = os.sched_getaffinity(0)
    last = max(allowed)
    os.sched_setaffinity(0, {last})
    try:
        for pid in apart:
            _use_cores(pid, allowed - {last} or allowed)
        yield
    finally:
        os.sched_setaffinity(0, allowed)
        for pid in apart:
            _use_cores(pid, allowed)


def _use_cores(pid: int, cores: set[int]) -> None:
    """Let all threads of a process run on these cores."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # the thread has ended
            os.sched_setaffinity(int(task.name), cores)


def settle(settings: LoadSettings, target: LoadTarget) -> int:
    """Send one message to each topic until every proxy knows them all; returns how many were stored.

    A definition reaches the proxies shortly after its command returns. Refusals until then are not counted.
    """
    once = replace(
        settings,
        mode="send",
        sequential=True,
        connections=1,
        rate=0.0,
        warmup_s=0.0,
        seconds=60.0,
        batch=min(settings.topics, 100),
    )
    stored = 0
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        codes = _all_codes(run_load(once, target, messages_max=settings.topics).counts)
        stored += sum(count for code, count in codes.items() if code in STORED)
        refused = [code for code in codes if code not in STORED]
        if not refused:
            return stored
        if time.monotonic() > deadline:
            raise RunError(f"after {SETTLE_TIMEOUT_S:g} s the producer proxy still answers with code {refused[0]}")
        time.sleep(0.05)


def fill(settings: LoadSettings, target: LoadTarget) -> int:
    """Put `settings.fill` messages into the topics, as fast as it goes; returns how many were stored.

    Messages refused as OVERLOADED are sent again: the fill does not measure the proxy's capacity.

    Raises:
        RunError: a message was refused for another reason, or ever fewer messages are accepted.
    """
    much = replace(
        settings, mode="send", batch=min(FILL_BATCH, settings.fill), rate=0.0, warmup_s=0.0, seconds=UNTIL_DONE_S
    )
    stored = 0
    for _ in range(FILL_PASSES_MAX):
        codes = _all_codes(run_load(much, target, messages_max=settings.fill - stored).counts)
        stored += sum(count for code, count in codes.items() if code in STORED)
        if refused := {code: count for code, count in codes.items() if code not in (*STORED, OVERLOADED)}:
            raise RunError(f"filling the topics: {refused} (code: messages)")
        if stored >= settings.fill:
            return stored
    raise RunError(
        f"filling the topics: only {stored:,} of {settings.fill:,} messages were taken, the rest is OVERLOADED"
    )


def _all_codes(counts: dict) -> dict[int, int]:
    total = dict(counts["codes"])
    for code, count in counts["codes_outside"].items():
        total[code] = total.get(code, 0) + count
    return total

"""Auto-creation of a family's topics by one message each, timed."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.errors import RunError
from bench.generator import OVERLOADED, STORED, LoadTarget, run_load
from bench.servers import rss_bytes
from bench.settings import LoadSettings

BATCH = 100
CONNECTIONS_MAX = 4  # enough to keep the proxy busy; on a busy machine more connections reach its bound and are refused
REFUSED_MAX = 0.1  # share of refused first messages; a run with more is invalid
UNTIL_DONE_S = 3600.0  # upper bound; the run ends by count
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class AutoCreation:
    """Time and memory of the auto-creation."""

    topics: int
    seconds: float
    rss_before: dict[str, int]  # bytes by process
    rss_after: dict[str, int]
    refused: int = 0  # messages answered OVERLOADED

    @property
    def engine_growth_bytes(self) -> int:
        return self.rss_after.get("engine", 0) - self.rss_before.get("engine", 0)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def auto_create(settings: LoadSettings, target: LoadTarget, pids: Mapping[str, int]) -> AutoCreation:
    """Send one message to each topic, in calls of 100 over a few connections; existing topics get one more.

    Messages refused as OVERLOADED, as on a busy machine, are counted and not sent again.

    Raises:
        RunError: a message was refused for another reason, or a tenth of them or more as OVERLOADED.
    """
    once = replace(
        settings, mode="send", sequential=True, rate=0.0, warmup_s=0.0, seconds=UNTIL_DONE_S, timeout_s=TIMEOUT_S,
        batch=min(settings.topics, BATCH), connections=min(settings.connections, CONNECTIONS_MAX),
    )  # fmt: skip
    before = _memory(pids)
    started = time.monotonic()
    codes = run_load(once, target, messages_max=settings.topics).counts["codes"]
    seconds = time.monotonic() - started
    refused = {code: count for code, count in codes.items() if code not in STORED}
    overloaded = refused.get(OVERLOADED, 0)
    if sum(refused.values()) > overloaded or overloaded >= settings.topics * REFUSED_MAX:
        raise RunError(f"first messages: {refused} (code: messages) after {seconds:.1f} s")
    return AutoCreation(settings.topics - overloaded, seconds, before, _memory(pids), overloaded)


def _memory(pids: Mapping[str, int]) -> dict[str, int]:
    return {name: rss_bytes(Path(f"/proc/{pid}")) for name, pid in pids.items()}

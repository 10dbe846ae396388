"""Figures of one run."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.auto_creation import AutoCreation
from bench.generator import STORED, Loaded
from bench.servers import ServerUse
from bench.settings import LoadSettings

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999, "p99_99": 0.9999}


@dataclass(frozen=True)
class Latency:
    """A histogram's summary, in milliseconds."""

    count: int
    mean_ms: float
    max_ms: float
    percentiles_ms: dict[str, float]
    share_under_1_ms: float
    share_under_100_ms: float

    @classmethod
    def of(cls, histogram: Any) -> "Latency":
        return cls(
            len(histogram),
            histogram.mean_ns / 1e6,
            histogram.max_ns / 1e6,
            {name: histogram.percentile(share) / 1e6 for name, share in PERCENTILES.items()},
            histogram.share_under_1_ms,
            histogram.share_under_100_ms,
        )

    def as_dict(self) -> dict[str, Any]:
        shares = {"share_under_1_ms": self.share_under_1_ms, "share_under_100_ms": self.share_under_100_ms}
        return {"count": self.count, "mean_ms": self.mean_ms, **self.percentiles_ms, "max_ms": self.max_ms, **shares}


@dataclass(frozen=True)
class Outcome:
    """One run: its settings, counts, and the servers' use of CPU and memory."""

    name: str
    settings: LoadSettings
    commit: str
    loaded: Loaded
    servers: list[ServerUse] = field(default_factory=list)
    generator: ServerUse | None = None
    birth: AutoCreation | None = None

    @property
    def counts(self) -> dict[str, Any]:
        return self.loaded.counts

    @property
    def calls_per_s(self) -> float:
        return self._per_s("calls")

    @property
    def messages_per_s(self) -> float:
        return self._per_s("messages")

    @property
    def deliveries_per_s(self) -> float:
        return self._per_s("deliveries")

    @property
    def moved(self) -> int:
        """Messages over which CPU is divided: sent ones, or in pull mode delivered ones."""
        return self.counts["messages" if self.settings.sends else "deliveries"]

    def cpu_us_per_message(self, *names: str) -> float:
        """Return CPU per message of these processes, of all when none is named, in µs.

        The same number is seconds per million messages.
        """
        used = sum(use.cpu_s for use in self.servers if not names or use.name in names)
        return used / self.moved * 1e6 if self.moved else 0.0

    @property
    def codes(self) -> dict[int, int]:
        """Every code of sends and acknowledgements in the window, and those of sends outside it."""
        total: dict[int, int] = {}
        for kind in ("codes", "codes_outside", "ack_codes"):
            for code, count in self.counts[kind].items():
                total[code] = total.get(code, 0) + count
        return total

    @property
    def complaints(self) -> list[str]:
        """Reasons why the figures are invalid; empty when they are valid."""
        counts = self.counts
        refused = {code: count for code, count in self.codes.items() if code not in STORED}
        said = [f"{count:,} answers with code {code}" for code, count in sorted(refused.items())]
        if counts["unsent"]:
            said.append(f"{counts['unsent']:,} planned messages could not be sent in time")
        if counts["wrong_size"]:
            said.append(f"{counts['wrong_size']:,} deliveries with a body of another size than sent")
        if self.settings.sends and not counts["messages"]:
            said.append("no message was sent in the window")
        if self.settings.pulls and not counts["deliveries"]:
            said.append("nothing was delivered in the window")
        return said

    def as_dict(self) -> dict[str, Any]:
        loaded = self.loaded
        kinds = {
            "latency": loaded.latency,
            "start_lag": loaded.lag,
            "pull_latency": loaded.pull_latency,
            "end_to_end": loaded.end_to_end,
        }
        rates = {
            "calls_per_s": self.calls_per_s,
            "messages_per_s": self.messages_per_s,
            "deliveries_per_s": self.deliveries_per_s,
        }
        return {
            "name": self.name,
            "commit": self.commit,
            "settings": self.settings.as_dict(),
            **rates,
            **{name: Latency.of(histogram).as_dict() for name, histogram in kinds.items() if len(histogram)},
            "cpu_s_per_million_messages": {use.name: self.cpu_us_per_message(use.name) for use in self.servers},
            "rss_bytes": {use.name: use.rss_bytes for use in self.servers},
            "generator_cpu_s": self.generator.cpu_s if self.generator else None,
            "birth": self.birth.as_dict() if self.birth else None,
            "counts": self.counts,
            "complaints": self.complaints,
        }

    def _per_s(self, what: str) -> float:
        return self.counts[what] / self.counts["window_s"] if self.counts["window_s"] > 0 else 0.0


def commit() -> str:
    """The source's short commit, with a + when files differ from it; "unknown" for an installed copy."""
    root = Path(__file__).parent.parent
    line = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--dirty=+", "--abbrev=10"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"

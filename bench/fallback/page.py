"""The page of runs with a stopped engine: `python -m bench.fallback.page [--dir DIR] RUN.json …`.

Writes `fallback.md` and one plot per run, from the files of `python -m bench.fallback --out`. Needs the extra `plots`.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BUFFERED, LIVE, MARK = "#1b7f5c", "#c2571a", "#9aa5b1"
COLUMNS = (
    ("failed sends", "failed"), ("lost", "lost"), ("out of order", "swapped"), ("copies", "copies"),
    ("backlog", "backlog_max"), ("drained in s", "drained_s"), ("messages/s", "drained_per_s"), ("failed beside it", "live_failed"),
)  # fmt: skip
BACKLOG = [key for _, key in COLUMNS].index("backlog_max")
WINDOWS = ("before", "outage", "drain", "after")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.fallback.page", description="Draw runs with a stopped engine."
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN.json")
    parser.add_argument("--note", default="", help="A paragraph about the machine, placed before the tables.")
    parser.add_argument(
        "--dir", type=Path, default=Path("docs/runs"), help="Directory to write to (default docs/runs)."
    )
    options = parser.parse_args(arguments)
    runs = [json.loads(path.read_text()) for path in options.runs]
    for run in runs:
        draw(run, options.dir / f"{name_of(run)}.svg")
    (options.dir / "fallback.md").write_text(page(runs, options.note))
    return 0


def name_of(run: dict[str, Any]) -> str:
    """Return the name of the run's plot, without its suffix."""
    found = run["figures"]
    full = f"-{found['redis_mib_max']}mib" if found["redis_mib_max"] else ""
    return f"fallback-{found['buffer'].replace('+', '-')}{full}-{found['outage_s']:g}s"


def title_of(run: dict[str, Any]) -> str:
    found = run["figures"]
    full = f" (Redis at maxmemory, {found['redis_mib_max']} MiB)" if found["redis_mib_max"] else ""
    return f"{found['buffer']}{full}, {found['outage_s']:g} s"


def page(runs: Sequence[dict[str, Any]], note: str = "") -> str:
    """Tables of figures in Markdown, with the plots named by `draw`'s files."""
    lines = [
        "# The fallback buffer while the engine is stopped", "",
        f"Runs of `python -m bench.fallback`: {runs[0]['machine']}, commits {', '.join(dict.fromkeys(run['commit'] for run in runs))}.",
        f"{runs[0]['figures']['rate']:,} messages/s. The engine gets SIGSTOP, and SIGCONT after the time given. Method:",
        "[bench/fallback/\\_\\_main\\_\\_.py](../../bench/fallback/__main__.py). Made by",
        "`python -m bench.fallback.page`. Terms: [glossary](../glossary.md).", "",
        "| buffer, outage | sends | " + " | ".join(title for title, _ in COLUMNS) + " |",
        "|---|" + "---:|" * (len(COLUMNS) + 1),
    ]  # fmt: skip
    if note:
        lines[6:6] = ["", note]
    for run in runs:
        found = run["figures"]
        values = [f"{found[key]:,}" for _, key in COLUMNS]
        if len(found["in_store_max"]) > 1:
            values[BACKLOG] += "; " + ", ".join(
                f"{name} up to {count:,}" for name, count in found["in_store_max"].items()
            )
        lines.append(f"| {title_of(run)} | {found['sends']:,} | " + " | ".join(values) + " |")
    lines += ["", f"p99 of a call in ms. Live: {runs[0]['figures']['live_rate']:,} messages/s to a topic without a buffer, paused during",
              "the outage. Its failed sends come right after the outage, until the link to the engine is up:", "",
              "| buffer, outage | before | outage | drain | after | live: before | live: drain | live: after | drain : before | of calls |",
              "|---|" + "---:|" * 9]  # fmt: skip
    for run in runs:
        found = run["figures"]
        values = [shown(found[f"p99_{window}_ms"]) for window in WINDOWS]
        values += [shown(found[f"live_p99_{window}_ms"]) for window in WINDOWS if window != "outage"]
        values += [
            shown(found["live_p99_ratio"]),
            f"{found['live_samples']['drain']:,} : {found['live_samples']['before']:,}",
        ]
        lines.append(f"| {title_of(run)} | " + " | ".join(values) + " |")
    for run in runs:
        lines += ["", f"## {title_of(run)}", "", f"![backlog and latency over time]({name_of(run)}.svg)"]
    return "\n".join(lines) + "\n"


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def draw(run: dict[str, Any], path: Path) -> None:
    """Backlog above, each second's p99 below."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "penstock"  # the same run, the same file
    from matplotlib import pyplot

    figure, (upper, lower) = pyplot.subplots(2, 1, sharex=True, figsize=(9, 5.5), layout="constrained")
    upper.plot(*columns(run["backlog"]), color=BUFFERED)
    upper.set_ylabel("messages in the buffer")
    upper.set_title(title_of(run), fontsize=10)
    lower.semilogy(*columns(run["buffered_p99_ms"]), color=BUFFERED, label="topic with the buffer")
    lower.semilogy(*columns(with_gaps(run["live_p99_ms"])), color=LIVE, label="topic without, paused in the outage")
    lower.set_ylabel("p99 of a call, ms")
    lower.set_xlabel("s")
    lower.legend(fontsize=8, frameon=False)
    for axis in (upper, lower):
        for mark in ("stopped", "resumed", "drained"):
            axis.axvline(run["marks"][mark], color=MARK, linestyle=":")
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def columns(points: Sequence[Sequence[float | None]]) -> tuple[list[float | None], list[float | None]]:
    """Return the x values and the y values."""
    return [point[0] for point in points], [point[1] for point in points]


def with_gaps(points: Sequence[Sequence[float]]) -> list[Sequence[float | None]]:
    """Insert an empty point where seconds are missing, so that no line is drawn over them."""
    found: list[Sequence[float | None]] = []
    for point in points:
        if found and point[0] > (found[-1][0] or 0) + 1:
            found.append((point[0] - 1, None))
        found.append(point)
    return found


if __name__ == "__main__":
    sys.exit(main())

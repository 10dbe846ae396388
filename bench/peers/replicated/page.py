"""The page of a run with replicas: `python -m bench.peers.replicated.page RUN.json [DIR]` writes its part of `peers.md` and
its plots.

RUN.json is what `python -m bench.peers.replicated --out RUN.json` wrote. DIR is `docs/runs` by default. Needs the extra
`plots`.
"""

import json
import statistics
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.peers.page import OURS, PEERS, PERCENTILES, REPLICATED, draw, figures_row, write
from bench.peers.replicated.switch_over import STRIKES
from bench.peers.replicated.workloads import STEADY, WORKLOADS

NAME = "peers-replicated"
HEAD = (
    "One run of `make peers-replicated`: {machine}, commit {commit}. {warmup_s:g} s of warm-up at full load and a window of "
    "{seconds:g} s each. Load of the machine (average of a minute) before the first system and after each: {loads}. Method "
    "and settings of each system: [bench/peers/README.md](../../bench/peers/README.md#with-replicas). Made by "
    "`python -m bench.peers.replicated.page`."
)
WIDTH = 120


def main(arguments: list[str]) -> int:
    if not 1 <= len(arguments) <= 2:
        print((__doc__ or "").splitlines()[0], file=sys.stderr)
        return 2
    run = json.loads(Path(arguments[0]).read_text())
    folder = Path(arguments[1] if len(arguments) == 2 else "docs/runs")
    for name in measured(run):
        draw(run["runs"], name, folder / f"{NAME}-{name}.svg")
    draw_gaps(run["switches"], folder / f"{NAME}-{STEADY.name}.svg")
    write(folder, replicated=page(run))
    return 0


def measured(run: dict[str, Any]) -> list[str]:
    """Names of the workloads that any system ran."""
    return [each.name for each in WORKLOADS if any(row["workload"] == each.name for row in run["runs"])]


def page(run: dict[str, Any]) -> str:
    loads = ", ".join(f"{load:.1f}" for load in run["load"])
    head = HEAD.format(**{**run, "loads": loads})
    lines = [REPLICATED, *textwrap.wrap(head, WIDTH, break_long_words=False, break_on_hyphens=False), ""]
    lines += ["| what | ours | peer | measured | asked | |", "|---|---|---|---:|---:|---|"]
    lines += [ratio_row(row) for row in run["ratios"] if row["most"] is not None]
    lines += ["", f"### {STEADY.name}: {STEADY.question}", "", f"![{STEADY.name}]({NAME}-{STEADY.name}.svg)", ""]
    lines += ["The longest time without a stored message, in ms.", ""]
    lines += ["| system | strike | times | least | median | greatest | calls that failed |", "|---|---|" + "---:|" * 5]
    lines += gap_rows(run["switches"])
    questions = {each.name: each.question for each in WORKLOADS}
    for name in measured(run):
        lines += ["", f"### {name}: {questions[name]}", "", f"![{name}]({NAME}-{name}.svg)", ""]
        shown = " ms | ".join(PERCENTILES.values())
        lines += [f"| system | messages/s | {shown} ms | < 1 ms | server CPU µs | RSS MiB |"]
        lines += ["|---|" + "---:|" * (len(PERCENTILES) + 4)]
        lines += [figures_row(row) for row in run["runs"] if row["workload"] == name]
    lines += [f"\nInvalid: {fault}." for fault in run["faults"]]
    return "\n".join(lines) + "\n"


def gap_rows(switches: list[dict[str, Any]]) -> Iterator[str]:
    for (system, strike), rows in by_strike(switches).items():
        gaps = [row["gap_ms"] for row in rows]
        shown = " | ".join(f"{value:,.0f}" for value in (min(gaps), statistics.median(gaps), max(gaps)))
        yield f"| {system} | {strike} | {len(gaps)} | {shown} | {sum(row['failed'] for row in rows):,} |"


def by_strike(switches: list[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """By system and strike, in the order of the first of each system."""
    systems = list(dict.fromkeys(row["system"] for row in switches))
    found: dict[tuple[str, str], list[dict[str, Any]]] = {
        (system, strike): [] for system in systems for strike in STRIKES
    }
    for row in switches:
        found[row["system"], row["strike"]].append(row)
    return {key: rows for key, rows in found.items() if rows}


def ratio_row(row: dict[str, Any]) -> str:
    """One ratio that a goal is set for."""
    asked, met = f"≤ 1/{1 / row['most']:.0f}", "met" if row["met"] else "**missed**"
    ratio = row["ratio"]
    shown = f"1/{1 / ratio:.1f}" if 0 < ratio < 0.5 else f"{ratio:.2f} ×"
    return f"| {row['what']} | {row['ours']} | {row['peer']} | {shown} | {asked} | {met} |"


def draw_gaps(switches: list[dict[str, Any]], path: Path) -> None:
    """Draw every gap as a point, by system and strike, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "penstock"  # the same run, the same file
    from matplotlib import pyplot

    rows = list(by_strike(switches).items())[::-1]
    figure, axis = pyplot.subplots(figsize=(9, 0.4 * len(rows) + 1.2), layout="constrained")
    for height, ((system, _), points) in enumerate(rows):
        colour = OURS if system.startswith("penstock") else PEERS
        axis.scatter([max(1.0, row["gap_ms"]) for row in points], [height] * len(points), color=colour, s=36, alpha=0.7)
    axis.set_yticks(range(len(rows)), [f"{system}, {strike}" for (system, strike), _ in rows])
    axis.set_xscale("log")
    axis.set_xlabel("longest time without a stored message, ms")
    axis.grid(axis="x", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

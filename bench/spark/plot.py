"""Draws a run of `python -m bench.spark --save RUN.json`: `python -m bench.spark.plot RUN.json docs/runs/spark-rates.svg`.

Needs the extra `plots`.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from bench.spark.targets import TARGETS

COLOURS = {"penstock": "#1b7f5c", "kafka": "#9aa5b1"}
ROLES = {
    "engine": "#1b7f5c", "producer_proxy": "#5fb08f", "consumer_proxy": "#a8d5c2", "broker": "#9aa5b1",
    "spark": "#c2571a",
}  # fmt: skip


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print((__doc__ or "").splitlines()[0], file=sys.stderr)
        return 2
    draw(json.loads(Path(arguments[0]).read_text())["runs"], Path(arguments[1]))
    return 0


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Messages per second with the target of each step, and the CPU per message by process."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "penstock"  # the same run, the same file
    from matplotlib import pyplot

    grouped = defaultdict(list)
    for run in runs:
        grouped[run["step"], run["side"]].append(run)
    bars = list(grouped)[::-1]
    names = [f"{step}\n{side}" for step, side in bars]
    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(12, 0.55 * len(bars) + 1.2), sharey=True, layout="constrained"
    )
    rates = [median(run["messages_per_s"] for run in grouped[bar]) for bar in bars]
    drawn = left.barh(names, rates, color=[COLOURS[side] for _, side in bars])
    left.bar_label(drawn, [f"{rate:,.0f}" for rate in rates], padding=3, fontsize=8)
    for at, (step, side) in enumerate(bars):
        target = TARGETS.get(step.partition(",")[0])
        if side == "penstock" and target:
            left.plot([target, target], [at - 0.4, at + 0.4], color="black", linewidth=1.2)
    left.set_title("messages per second, median; the line is the target", fontsize=10)
    start = [0.0] * len(bars)
    for role, colour in ROLES.items():
        values = [median(run["cpu_us"].get(role, 0) for run in grouped[bar]) for bar in bars]
        right.barh(names, values, left=start, color=colour, label=role.replace("_", " "))
        start = [before + value for before, value in zip(start, values, strict=True)]
    right.set_title("CPU per message in µs, by process", fontsize=10)
    right.legend(fontsize=8, frameon=False, loc="lower right")
    for axis in (left, right):
        axis.margins(x=0.2)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

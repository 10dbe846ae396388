"""The page of a run with peers: `python -m bench.peers.page RUN.json [DIR]` writes `peers.md` and its plots.

RUN.json is the output of `python -m bench.peers -o json`. DIR is `docs/runs` by default. The page's part on replicas stays
as it is. Needs the extra `plots`.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.peers.workloads import WORKLOADS

OURS, PEERS = "#1b7f5c", "#9aa5b1"
REPLICATED = "\n## With replicas\n"
"""Begins the part of the page that `bench.peers.replicated.page` writes."""

PERCENTILES = {"p50": "p50", "p99": "p99", "p99_9": "p99.9", "p99_99": "p99.99", "max_ms": "max"}


def main(arguments: list[str]) -> int:
    if not 1 <= len(arguments) <= 2:
        print((__doc__ or "").splitlines()[0], file=sys.stderr)
        return 2
    run = json.loads(Path(arguments[0]).read_text())
    folder = Path(arguments[1] if len(arguments) == 2 else "docs/runs")
    names = [each.name for each in WORKLOADS if any(row["workload"] == each.name for row in run["runs"])]
    for name in names:
        draw(run["runs"], name, folder / f"peers-{name}.svg")
    write(folder, own=page(run, names))
    return 0


def write(folder: Path, *, own: str = "", replicated: str = "") -> None:
    """Write `peers.md`: the part that is given anew, the other one as it was."""
    path = folder / "peers.md"
    before, head, after = (path.read_text() if path.exists() else "").partition(REPLICATED)
    path.write_text((own or before) + (replicated or head + after))


def page(run: dict[str, Any], names: Iterable[str]) -> str:
    """Tables of figures and ratios in Markdown, with the plots named by `draw`'s files."""
    lines = [
        "# Penstock beside Kafka, RocketMQ and NATS JetStream",
        "",
        f"One run of `make peers`: {run['machine']}, commit {run['commit']}.",
        f"{run['warmup_s']:g} s of warm-up at full load and a window of {run['seconds']:g} s each.",
        "Method and settings of each system: [bench/peers/README.md](../../bench/peers/README.md).",
        "Made by `python -m bench.peers.page`. Terms: [glossary](../glossary.md).",
        "",
        "## Asked and measured",
        "",
        "| workload | ours | peer | figure | measured | asked | |",
        "|---|---|---|---|---:|---:|---|",
    ]
    lines += [ratio_row(row) for row in run["ratios"]]
    questions = {each.name: each.question for each in WORKLOADS}
    for name in names:
        rows = [row for row in run["runs"] if row["workload"] == name]
        lines += ["", f"## {name}: {questions[name]}", "", f"![{name}](peers-{name}.svg)", ""]
        lines += [
            "| system | messages/s | "
            + " ms | ".join(PERCENTILES.values())
            + " ms | < 1 ms | server CPU µs | RSS MiB |"
        ]
        lines += ["|---|" + "---:|" * (len(PERCENTILES) + 4)]
        lines += [figures_row(row) for row in rows]
    lines += [f"\nInvalid: {fault}." for fault in run["faults"]]
    return "\n".join(lines) + "\n"


def figures_row(row: dict[str, Any]) -> str:
    latency = " | ".join(f"{row['latency'][key]:.2f}" for key in PERCENTILES)
    cpu = sum(row["cpu_s_per_million_messages"].values())
    rss = sum(row["rss_bytes"].values()) / (1 << 20)
    share = row["latency"]["share_under_1_ms"]
    return f"| {row['system']} | {row['messages_per_s']:,.0f} | {latency} | {share:.2%} | {cpu:.2f} | {rss:,.0f} |"


def ratio_row(row: dict[str, Any]) -> str:
    asked = f"≥ {row['least']:g} ×" if row["least"] is not None else f"≤ {row['most']:.2f} ×"
    met = "met" if row["met"] else "**missed**"
    return f"| {row['workload']} | {row['ours']} | {row['peer']} | {row['figure']} | {row['ratio']:.2f} × | {asked} | {met} |"


def draw(runs: list[dict[str, Any]], workload: str, path: Path) -> None:
    """Draw messages per second, server CPU per message and p99.9 side by side; the last two on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "penstock"  # the same run, the same file
    from matplotlib import pyplot

    rows = [row for row in runs if row["workload"] == workload][::-1]
    panels = (
        ("messages per second", [row["messages_per_s"] for row in rows], "{:,.0f}", False),
        (
            "server CPU, µs per message",
            [sum(row["cpu_s_per_million_messages"].values()) for row in rows],
            "{:.2f}",
            True,
        ),
        ("p99.9 of a call, ms", [row["latency"]["p99_9"] for row in rows], "{:.2f}", True),
    )
    colours = [OURS if row["system"].startswith("penstock") else PEERS for row in rows]
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(12, 0.5 * len(rows) + 1.2), sharey=True, layout="constrained"
    )
    for axis, (title, values, form, logarithmic) in zip(axes, panels, strict=True):
        bars = axis.barh([row["system"] for row in rows], values, color=colours)
        axis.bar_label(bars, [form.format(value) for value in values], padding=3, fontsize=8)
        axis.set_title(title, fontsize=10)
        axis.set_xscale("log" if logarithmic else "linear")
        axis.margins(x=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Tables of a run with peers."""

from rich.table import Table

from bench.outcome import commit
from bench.peers.bars import ratios
from bench.peers.figures import Figures
from bench.peers.workloads import WORKLOADS, Terms
from bench.report import machine

LATENCIES = {"p50": "p50", "p99": "p99", "p99.9": "p99_9", "p99.99": "p99_99", "max": "max_ms"}


def figures_table(runs: list[Figures], terms: Terms) -> Table:
    """Make the table of figures, sorted by workload, so that compared figures are adjacent."""
    made = Table(
        title=machine(),
        caption=f"commit {commit()}, {terms.warmup_s:g} s of warm-up, {terms.seconds:g} s; latencies in ms",
    )
    for name in ("workload", "system"):
        made.add_column(name)
    for name in ("messages/s", "delivered/s", *LATENCIES, "<1 ms", "CPU µs", "RSS MiB", "driver cores"):
        made.add_column(name, justify="right")
    for workload in WORKLOADS:
        for number, run in enumerate(run for run in runs if run.workload == workload.name):
            made.add_row(workload.name if number == 0 else "", *_row(run))
        made.add_section()
    return made


def ratios_table(runs: list[Figures]) -> Table:
    made = Table(
        title="ours divided by the peer's", caption="server CPU and RSS are of all processes on the path of a message"
    )
    for name in ("workload", "ours", "peer", "figure"):
        made.add_column(name)
    for name in ("ratio", "wanted", ""):
        made.add_column(name, justify="right")
    for bar, ratio in ratios(runs):
        verdict = "[green]met[/green]" if bar.met(ratio) else "[red]missed[/red]"
        shown = f"{ratio:.2f} ×" if ratio >= 1 or bar.least is not None else f"1/{1 / ratio:.2f}" if ratio else "0"
        made.add_row(bar.workload, bar.ours, bar.peer, bar.text, shown, bar.wanted, verdict)
    return made


def line(run: Figures) -> str:
    """One line about a run, printed when it ends."""
    shown = " ".join(f"{name}={run.latency[key]:.3f}ms" for name, key in LATENCIES.items())
    delivered = f"delivered/s={run.deliveries_per_s:,.0f} " if run.deliveries else ""
    return (
        f"{run.workload} {run.system} messages/s={run.messages_per_s:,.0f} {delivered}{shown} "
        f"cpu_us={run.cpu_us_per_message:.2f} rss={run.rss_bytes / 2**20:,.0f}MiB"
    )


def _row(run: Figures) -> list[str]:
    return [
        run.system if not run.complaints else f"[red]{run.system} (!)[/red]",
        f"{run.messages_per_s:,.0f}",
        f"{run.deliveries_per_s:,.0f}" if run.deliveries else "",
        *(f"{run.latency[key]:.3f}" for key in LATENCIES.values()),
        f"{int(run.latency['share_under_1_ms'] * 1e4) / 1e2:.2f}%",
        f"{run.cpu_us_per_message:.2f}",
        f"{run.rss_bytes / 2**20:,.0f}",
        f"{run.driver_cpu_s / run.window_s:.2f}" if run.window_s else "",
    ]

"""All named workloads in one run, each against a fresh instance, and one table of figures against bars."""

from collections.abc import Callable, Iterable

from rich.table import Table

from bench import instance
from bench.generator import require_native
from bench.measure import measure
from bench.outcome import Outcome
from bench.report import machine
from bench.workloads import Workload, load


def run_suite(names: Iterable[str], say: Callable[[str], None]) -> list[tuple[Workload, Outcome]]:
    """Run the workloads in turn, each on a fresh instance: one workload's log would fill the page cache of the next.

    Raises:
        BenchError: of the first run that failed.
    """
    require_native()
    done = []
    for workload in map(load, names):
        with instance.own() as own:
            done.append((workload, measure(workload.name, workload.settings, own, say)))
    return done


def bars_table(results: list[tuple[Workload, Outcome]]) -> Table:
    made = Table(title=machine(), caption=f"commit {results[0][1].commit}" if results else None)
    for name in ("workload", "figure"):
        made.add_column(name)
    for name in ("measured", "bar", "", "p50 ms", "p99 ms", "p99.9 ms", "CPU s/M"):
        made.add_column(name, justify="right")
    for workload, outcome in results:
        for number, bar in enumerate(workload.bars):
            verdict = "[green]met[/green]" if bar.met(outcome) else "[red]missed[/red]"
            once = _once(outcome) if number == 0 else [""] * 4
            made.add_row(
                workload.name if number == 0 else "", bar.text, _figure(bar.figure(outcome)), bar.wanted, verdict, *once
            )
    return made


def bars_as_dict(workload: Workload, outcome: Outcome) -> list[dict]:
    return [
        {
            "figure": bar.text,
            "measured": bar.figure(outcome),
            "least": bar.least,
            "most": bar.most,
            "met": bar.met(outcome),
        }
        for bar in workload.bars
    ]


def _once(outcome: Outcome) -> list[str]:
    latency = outcome.loaded.latency if outcome.settings.sends else outcome.loaded.pull_latency
    shares = (0.5, 0.99, 0.999)
    return [*(f"{latency.percentile(share) / 1e6:.3f}" for share in shares), f"{outcome.cpu_us_per_message():.2f}"]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3f}" if value < 10 else f"{value:.1f}"

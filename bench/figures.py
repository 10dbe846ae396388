"""Figures of a case, with the bars that the project promises."""

from dataclasses import dataclass

from rich.table import Table

from bench.outcome import commit
from bench.report import machine


@dataclass(frozen=True)
class Figure:
    """One line of a case's table. A figure without a bound is for comparison only."""

    text: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None

    @property
    def met(self) -> bool:
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    @property
    def bounded(self) -> bool:
        return self.least is not None or self.most is not None

    @property
    def asked(self) -> str:
        if self.least is not None:
            return f"≥ {self.least:,g}"
        return f"≤ {self.most:,g}" if self.most is not None else ""

    @property
    def shown(self) -> str:
        return f"{self.value:,.0f}" if abs(self.value) >= 1000 else f"{self.value:.3g}"


def table(case: str, figures: list[Figure]) -> Table:
    made = Table(title=f"{case} · {machine()}", caption=f"commit {commit()}")
    made.add_column("figure")
    for name in ("measured", "asked"):
        made.add_column(name, justify="right")
    made.add_column("unit")
    made.add_column("")
    for each in figures:
        verdict = ("[green]met[/green]" if each.met else "[red]missed[/red]") if each.bounded else ""
        made.add_row(each.text, each.shown, each.asked, each.unit, verdict)
    return made

"""`penstock migrate report`."""

import time
from pathlib import Path

import click

from migration.deployment import Deployment
from migration.entries import PlanStore
from migration.reconcile.plan_check import KIND
from migration.report import Report, Sample, sample_of
from penstock.commands.migrate.status import topic_rows
from penstock.commands.migrate.work import deployment_of, say
from penstock.terminal.directories import writing_to
from penstock.terminal.exits import Command
from penstock.terminal.instance import Instance, administration, instance_options
from penstock.terminal.output import output_option, show_one

SAMPLE_S = 1.0


@click.command(cls=Command, name="report")
@click.argument("plan")
@click.option(
    "--out", "folder", required=True, metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="Write the files into DIR, which is made where it is missing. Files of an earlier report are replaced.",
)  # fmt: skip
@click.option(
    "--seconds", type=click.IntRange(0, 86_400), default=0, metavar="N",
    help="First sample rates and lag of both sides for N seconds, and plot them (default 0: do not).",
)  # fmt: skip
@output_option
@instance_options("engine")
def command(instance: Instance, plan: str, folder: Path, seconds: int, output: str) -> None:
    """Write the report of PLAN, to file away: Markdown and JSON, with plots in SVG.

    It has the plan, its topics and cuts, the last comparison by `verify`, and the history with a time line.
    """
    with writing_to(folder):
        """Before the work."""
    with administration(instance) as admin:
        entry = PlanStore(admin.store, admin.clock, admin.who).read(plan)
        with deployment_of(instance, admin, entry.plan, lambda sentence: None) as deployment:
            samples = _samples(deployment, seconds)
            facts = deployment.facts(with_positions=True)
        cuts = {}
        for name in entry.plan.topic_names:
            found = admin.store.get("topic", name)
            if found is not None and found.value.get("cut"):
                cuts[name] = found.value["cut"]
        check = admin.store.get(KIND, plan)
        report = Report(
            entry, admin.clock.now_ms(), topic_rows(facts), cuts, check.value if check is not None else None, samples
        )
    files = report.files()
    with writing_to(folder):
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    show_one({"plan": plan, "report": str(folder), "files": ", ".join(files)}, output)


def _samples(deployment: Deployment, seconds: int) -> list[Sample]:
    """One sample per second, and one at the beginning; two at least, however long a sample takes."""
    if not seconds:
        return []
    began_s, found = time.monotonic(), []
    say(f"sampling for {seconds:,} s")
    while True:
        found.append(sample_of(deployment.facts(with_positions=True), time.monotonic() - began_s))
        left = seconds - (time.monotonic() - began_s)
        if left <= 0 and len(found) > 1:
            return found
        time.sleep(max(0.0, min(SAMPLE_S, left)))

"""`penstock migrate rehearse`."""

import json
import secrets
from pathlib import Path

import click

from migration.entries import PlanStore
from migration.rehearsal.names import RUN_RULE, is_run
from migration.rehearsal.report import RehearsalReport
from migration.rehearsal.walk import KILLS_MAX
from penstock.commands.migrate.rehearsing import Rehearsal, RehearsalOptions, interruptible, remove_left
from penstock.commands.migrate.work import say
from penstock.terminal.directories import writing_to
from penstock.terminal.exits import FAILED, USAGE, Command, CommandError
from penstock.terminal.instance import Instance, administration, instance_options
from penstock.terminal.output import is_for_scripts, output_option, show_one, show_value

SEEDS = 1_000_000


@click.command(cls=Command, name="rehearse")
@click.argument("plan")
@click.option(
    "--out", "folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="Also write the report into DIR, as rehearsal.md and rehearsal.json.",
)  # fmt: skip
@click.option(
    "--sample", type=click.IntRange(0, 1_000_000), default=1_000, metavar="N",
    help="Copy the newest N records per partition (default 1000).",
)  # fmt: skip
@click.option(
    "--rate", type=click.FloatRange(1, 100_000), default=200.0, metavar="N",
    help="Send N messages per second over all topics (default 200).",
)  # fmt: skip
@click.option(
    "--kills", type=click.IntRange(0, KILLS_MAX), default=3, metavar="N",
    help=f"Kill a process in N of the last {KILLS_MAX} commands (default 3).",
)  # fmt: skip
@click.option("--seed", type=int, metavar="N", help="Draw the kills from this seed (default: a random one, printed).")
@click.option(
    "--soak", "soak_s", type=click.FloatRange(0, 86_400), default=3.0, metavar="SECONDS",
    help="Send for so long between two commands (default 3).",
)  # fmt: skip
@click.option(
    "--step-seconds", "step_s", type=click.FloatRange(10, 86_400), default=180.0, metavar="SECONDS",
    help="Give a command up that has not ended by then (default 180).",
)  # fmt: skip
@click.option("--keep", is_flag=True, help="Leave the copies in Kafka and the data directory, to look at them.")
@click.option("--remove", "left", metavar="RUN", help="Only remove what rehearsal RUN of PLAN has left.")
@output_option
@instance_options("engine")
def command(
    instance: Instance, plan: str, folder: Path | None, sample: int, rate: float, kills: int, seed: int | None,
    soak_s: float, step_s: float, keep: bool, left: str | None, output: str,
) -> None:  # fmt: skip
    """Run the stored PLAN on copies of its topics, with load and kills, and report what would have happened.

    It starts a Penstock of its own on this machine, copies the topics' settings and newest records under other names in
    the same Kafka cluster, walks all steps including the cut, a roll back and a second cut, and removes what it made.
    Real topics, groups and configuration are only read. The exit code is 1 when a step did not end, or a message was
    lost, doubled or out of order. See docs/migration.md.
    """
    if left is not None and not is_run(left):
        raise CommandError(f"--remove {left!r}: not a run: {RUN_RULE}", USAGE)
    if folder is not None:
        with writing_to(folder):
            """Before the work."""
    with administration(instance) as admin:
        entry = PlanStore(admin.store, admin.clock, admin.who).read(plan)
        if left is not None:
            show_one(remove_left(admin, entry.plan.cluster, left), output)
            return
        chosen = secrets.randbelow(SEEDS) if seed is None else seed
        options = RehearsalOptions(secrets.token_hex(3), chosen, kills, sample, rate, soak_s, step_s, keep)
        say(f"rehearsal {options.run} of plan {plan}, seed {chosen}")
        with interruptible():
            report = Rehearsal(instance, admin, entry, options, say).perform()
    if folder is not None:
        _write(report, folder)
    if is_for_scripts(output):
        show_value(json.loads(report.as_json()), output)
    else:
        click.echo(report.as_markdown(), nl=False)
    if not report.is_clean:
        raise CommandError(f"plan {plan}: {report.failure or 'messages were lost, doubled or out of order'}", FAILED)


def _write(report: RehearsalReport, folder: Path) -> None:
    with writing_to(folder):
        for name, text in report.files().items():
            (folder / name).write_text(text, encoding="utf-8")

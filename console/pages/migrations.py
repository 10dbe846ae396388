"""Moves between Kafka and the engine: all plans, one plan with its gates and history, and the commands that it allows."""

from collections.abc import Sequence
from typing import Any

from flask import redirect, render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound

from common.admin.administrator import Administrator
from common.admin.errors import StateConflict
from common.names import is_name
from console.errors import InvalidForm
from console.installation import migration_plans
from console.installation.migration_plans import RESUME
from console.pages.part_page import part_or_page
from console.parts import account, actor, form, parts
from console.roles import Role
from console.routes import action, page, resource, with_said
from migration.describe import NEXT, rows
from migration.entries import PlanEntry
from migration.facts import Facts
from migration.recipes.course import COMMANDS
from migration.sub_steps.registry import GATES

GATED = ("verify", "fence", "cut", "rollback", "retire", "abort", RESUME)
HISTORY_SHOWN = 100


@page("/migrations", role=Role.VIEWER, title="Migrations", menu=7)
def index() -> ResponseReturnValue:
    """All plans."""
    found, faults = migration_plans.plans(_admin())
    return render_template("migrations/migrations.html", plans=found, faults=faults)


@page("/migrations/<name>", role=Role.VIEWER, sample="/migrations/shop")
def show(name: str) -> ResponseReturnValue:
    """One plan."""
    entry = plan_of_name(name)
    facts = migration_plans.facts_of(_admin(), entry)
    check = migration_plans.comparison(_admin(), name)
    return render_template(
        "migrations/migration.html", facts=facts, check=check, **_progress(entry),
        differing=migration_plans.differing(check) if check is not None else 0,
        gates=migration_plans.gates(entry, facts, check) if facts is not None else [],
        allowed=allowed_commands(entry, facts), following=RESUME if entry.state.course else NEXT.get(entry.state.step, ""),
        can_run=parts().migrations.is_possible,
    )  # fmt: skip


@resource("/migrations/<name>/live", role=Role.VIEWER)
def live(name: str) -> ResponseReturnValue:
    """The part that the page asks for again and again; the page is loaded anew when other commands are possible."""
    entry = plan_of_name(name)
    shown = _progress(entry)
    is_new = request.args.get("seen") != shown["seen"]
    return render_template("migrations/migration_live.html", **shown), {"HX-Refresh": "true"} if is_new else {}


def _progress(entry: PlanEntry) -> dict[str, Any]:
    told = parts().migrations.lines(entry.plan.name)
    return {
        "entry": entry, "told": told, "waits_for": migration_plans.waiting_for(_admin(), entry),
        "history": list(reversed(entry.history))[:HISTORY_SHOWN],
        "seen": f"{entry.state.step}.{entry.state.course}.{'running' if told.is_running else ''}",
    }  # fmt: skip


@resource("/migrations/<name>/positions", role=Role.OPERATOR)
def positions(name: str) -> ResponseReturnValue:
    """Positions and gates as `penstock migrate status` asks Kafka and the engines for them."""
    plan_of_name(name)
    found = parts().migrations.status(name)
    shown = {"found": found, "fault": found if isinstance(found, str) else ""}
    return part_or_page("migrations/migration_positions.html", "Positions", f"/migrations/{name}", **shown)


@page("/migrations/<name>/<command>", role=Role.OPERATOR, sample="/migrations/shop/cut")
def form_page(name: str, command: str) -> ResponseReturnValue:
    """What a command will do, step by step, before it is begun."""
    entry = _allowing(name, command)
    course = entry.state.course if command == RESUME else command
    shown = {"entry": entry, "command": command, "rows": rows(entry.plan, course)}
    return render_template("migrations/migration_command.html", **shown, gates=GATES if command in GATED else ())


@action("/migrations/<name>/<command>", role=Role.OPERATOR, said="The command was begun. Its lines appear below.")
def begin(name: str, command: str) -> ResponseReturnValue:
    """Begin a command, if the plan is still as the person has seen it; its own process checks everything again."""
    begin_command(name, command, [gate for gate in GATES if f"accept.{gate}" in form()], form().get("version", ""))
    return redirect(with_said(f"/migrations/{name}"), 303)


def begin_command(name: str, command: str, accepted: Sequence[str], seen: str) -> None:
    """Begin a command of a plan that has the version `seen`. Raises NotFound, StateConflict, InvalidForm."""
    entry = _allowing(name, command)
    if seen != str(entry.version):
        raise StateConflict(f"plan {name}: it has moved on meanwhile: look at it again. Nothing was begun.")
    if wrong := [gate for gate in accepted if gate not in GATES or command not in GATED]:
        raise InvalidForm({"accept": f"{command} has no gate {wrong[0][:40]}."})
    parts().migrations.begin(name, command, accepted, account().name)
    new = {"step": str(entry.state.step), "accepted": list(accepted)}
    parts().log.note(actor(), f"migrate {command}", f"plan {name}", None, new)


def _allowing(name: str, command: str) -> PlanEntry:
    """The plan, where its runbook allows the command now. Raises NotFound, StateConflict."""
    if command not in (*COMMANDS, RESUME):
        raise NotFound()
    entry = plan_of_name(name)
    if command not in allowed_commands(entry, migration_plans.facts_of(_admin(), entry)):
        at_work = f", and {entry.state.course} is at work" if entry.state.course else ""
        raise StateConflict(f"plan {name}: it is {entry.state.step}{at_work}: {command} is not possible now.")
    return entry


def allowed_commands(entry: PlanEntry, facts: Facts | None) -> list[str]:
    """The commands that the plan allows now; none while a command that was begun here is at work."""
    is_running = parts().migrations.lines(entry.plan.name).is_running
    return [] if is_running else migration_plans.allowed(entry, facts)


def plan_of_name(name: str) -> PlanEntry:
    """Raises NotFound, EntryNotFound, PlanRefused."""
    if not is_name(name):
        raise NotFound(f"There is no plan {name[:249]}.")
    return migration_plans.plan_of(_admin(), name)


def _admin() -> Administrator:
    return parts().configuration.admin("console")

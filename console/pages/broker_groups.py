"""One broker group: its brokers as they are now, the planned switch of its master, its latest changes."""

from flask import redirect, render_template
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound

from common.admin import audit
from common.config.errors import ConfigError
from console.errors import InvalidForm
from console.installation.replica_groups import ReplicaState
from console.pages.map import replicas_now
from console.parts import account, actor, form, parts
from console.roles import Role
from console.routes import action, page, resource, with_said
from controller.operator_switch import MasterSwitch

CHANGES_SHOWN = 20


@page("/broker-groups/<name>", role=Role.VIEWER, sample="/broker-groups/main")
def show(name: str) -> ResponseReturnValue:
    """One group with replicas."""
    return _page(_found(name))


def _page(found: ReplicaState, warnings: list[str] | None = None) -> ResponseReturnValue:
    changes = parts().switches.history(found.group, CHANGES_SHOWN)
    return render_template(
        "installation/broker_group.html", each=found, changes=changes, warnings=warnings or [],
        can_switch=parts().switches.is_possible, master=_with_role(found, "master"), slaves=_with_role(found, "in sync"),
    )  # fmt: skip


@resource("/broker-groups/<name>/live", role=Role.VIEWER)
def live(name: str) -> ResponseReturnValue:
    """The part of the page that is asked for again and again."""
    return render_template("installation/broker_group_live.html", each=_found(name))


@action(
    "/broker-groups/<name>/switch",
    role=Role.OPERATOR,
    said="The master was switched, and has adopted its role. Sends that waited are sent again.",
)
def switch(name: str) -> ResponseReturnValue:
    """Make another in-sync broker master, unless another person was faster. Nothing is lost, or nothing is changed."""
    _, warnings = switch_master(name, form().get("to", ""), form().get("master", ""))
    return _page(_found(name), warnings) if warnings else redirect(with_said(f"/broker-groups/{name}"), 303)


def switch_master(name: str, to: str, seen_master: str) -> tuple[MasterSwitch, list[str]]:
    """The switch, and sentences of warning. Raises InvalidForm, NotFound, StateConflict."""
    if not to or not seen_master:
        raise InvalidForm({"": "Choose the broker that leads next. Nothing was changed."})
    _found(name)
    try:
        done, warnings = parts().switches.switch(name, to, seen_master)
    finally:
        parts().replica_states.forget()
    old = {"master": done.before.master, "epoch": done.before.epoch} if done.before is not None else None
    new = {"master": done.record.master, "epoch": done.record.epoch}
    parts().log.note(actor(), "switch broker", f"broker group {name}", old, new)
    admin = parts().configuration.admin(account().name)
    try:
        audit.record(admin.store, admin.clock, admin.who, "switch", "broker", [name], old, new)
    except ConfigError:
        pass  # the console's own log has it
    return done, warnings


def _found(name: str) -> ReplicaState:
    found = next((each for each in replicas_now() if each.group == name), None)
    if found is None:
        raise NotFound(f"Broker group {name[:249]} has no replicas.")
    return found


def _with_role(found: ReplicaState, role: str) -> list[str]:
    return [name for name, each in found.roles.items() if each == role]

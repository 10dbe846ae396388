"""Clients that are connected: the list, and closing one after a page that names it."""

from collections.abc import Mapping

from flask import redirect, render_template, request
from flask.typing import ResponseReturnValue

from common.admin.connections import ConnectionRow, ConnectionsTold, shown
from common.admin.errors import StateConflict
from console.installation.client_connections import KEY_MISSING
from console.parts import account, actor, parts
from console.roles import Role
from console.routes import IN_STORY, action, page, with_said

PAGE, SECTION = 200, 10
FILTERS = ("application", "group", "topic")


@page("/connections", role=Role.VIEWER, title="Clients connected")
def index() -> ResponseReturnValue:
    """Open connections, the longest open ones first."""
    wanted = {name: request.args.get(name, "").strip()[:249] for name in FILTERS}
    return render_template("installation/connections.html", told=parts().connections.told(wanted, PAGE), wanted=wanted)


def clients_of(wanted: Mapping[str, str]) -> ConnectionsTold:
    """The first few, for a section of another page."""
    return parts().connections.told(wanted, SECTION)


@page("/connections/<name>/close", role=Role.OPERATOR, sample=IN_STORY)
def form(name: str) -> ResponseReturnValue:
    """What closing means, for this connection."""
    found = parts().connections.find(name)
    return render_template("installation/connection_close.html", each=found, may_close=parts().connections.may_close)


@action("/connections/<name>/close", role=Role.OPERATOR, said="The connection is closed.")
def close(name: str) -> ResponseReturnValue:
    """Close it."""
    close_client(name)
    return redirect(with_said("/connections"), 303)


def close_client(id: str) -> ConnectionRow:
    """Close a connection and note it. Raises EntryNotFound, StateConflict, ProxyPageError, ConfigError."""
    if not parts().connections.may_close:
        raise StateConflict(KEY_MISSING)
    closed = parts().connections.close(account().name, id)
    parts().log.note(actor(), "close connection", f"connection {id}", shown(closed), None)
    return closed

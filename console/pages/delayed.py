"""Delayed messages of a topic: list and cancel."""

from flask import redirect, render_template
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import NotFound

from console.installation.stored_messages import ID_CHARS_MAX
from console.pages.messages import check_topic
from console.parts import actor, form, parts
from console.roles import Role
from console.routes import action, page, with_said

PAGE = 200


@page("/topics/<name>/delayed", role=Role.OWNER, sample="/topics/web.clicks/delayed")
def index(name: str) -> ResponseReturnValue:
    """Pending messages, soonest first."""
    check_topic(name)
    rows, is_all = parts().delayed.pending(name, PAGE)
    return render_template("topics/delayed.html", name=name, rows=rows, is_all=is_all)


@action("/topics/<name>/delayed/cancel", role=Role.OWNER, said="The delayed message is cancelled.")
def cancel(name: str) -> ResponseReturnValue:
    """Cancel one message, or all coming rounds of a loop."""
    check_topic(name)
    shown_id = form().get("id", "")
    if not 1 <= len(shown_id) <= ID_CHARS_MAX or not parts().delayed.cancel(name, shown_id):
        raise NotFound("There is no such delayed message any more: it was delivered or cancelled.")
    parts().log.note(actor(), "cancel delayed message", f"topic {name}", None, {"id": shown_id})
    return redirect(with_said(f"/topics/{name}/delayed"), 303)

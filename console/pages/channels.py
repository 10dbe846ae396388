"""Channels of notices: webhooks and e-mail addresses, for administrators; and the latest notices."""

from collections.abc import Mapping

from flask import redirect, render_template
from flask.typing import ResponseReturnValue

from console.database.notice_queue import NoticeChannel
from console.errors import InvalidForm
from console.parts import actor, form, parts
from console.roles import Role
from console.routes import action, page, with_said
from console.watching.courier import KINDS


@page("/channels", role=Role.ADMIN, title="Notices", menu=2)
def index() -> ResponseReturnValue:
    """All channels, the form to add one, and the latest notices."""
    return _page({})


def _page(faults: Mapping[str, str], status: int = 200, made: NoticeChannel | None = None) -> ResponseReturnValue:
    queue = parts().notices
    page = render_template(
        "watching/channels.html", channels=queue.channels(), notices=queue.latest(), faults=faults, made=made,
        values=form() if faults else {}, kinds=[("webhook", "Webhook"), ("mail", "E-mail")],
        sends_mail=parts().courier.mail.is_configured,
    )  # fmt: skip
    return page, status


@action("/channels", role=Role.ADMIN)
def add() -> ResponseReturnValue:
    """Add a channel, and show its secret, this once."""
    fields = form()
    kind, name = fields.get("kind", ""), " ".join(fields.get("name", "").split())
    try:
        if kind not in KINDS:
            raise InvalidForm({"kind": "Choose webhook or e-mail."})
        target = parts().courier.check(kind, fields.get("target", "").strip())
        wants = (fields.get("of_alerts") == "on", fields.get("of_requests") == "on")
        made = parts().notices.add_channel(actor(), name, kind, target, *wants)
    except InvalidForm as error:
        return _page(error.faults, 422)
    return _page({}, made=made)


@action("/channels/<int:channel_id>/test", role=Role.ADMIN, said="A test notice is on its way: see below.")
def test(channel_id: int) -> ResponseReturnValue:
    """Queue a test notice."""
    try:
        parts().notices.put_test(actor(), channel_id)
    except InvalidForm as error:
        return _page(error.faults, 422)
    return redirect(with_said("/channels", "#notices"), 303)


@action("/channels/<int:channel_id>/switch", role=Role.ADMIN)
def switch(channel_id: int) -> ResponseReturnValue:
    """Switch a channel on or off."""
    parts().notices.switch_channel(actor(), channel_id, form().get("on") == "on")
    return redirect("/channels", 303)


@action("/channels/<int:channel_id>/remove", role=Role.ADMIN)
def remove(channel_id: int) -> ResponseReturnValue:
    """Remove a channel."""
    parts().notices.remove_channel(actor(), channel_id)
    return redirect("/channels", 303)

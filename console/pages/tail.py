"""Live tail of a topic: server-sent events, one per message. Bodies are cut, and hostile text stays text."""

import logging
from collections.abc import Generator

from flask import request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import TooManyRequests

from common.filter.native import Filter
from console.errors import InvalidForm
from console.installation.stored_messages import FoundMessage
from console.pages.event_stream import OPENED, EventStream, event
from console.pages.messages import NO_SEARCH, check_topic, read_filter_text
from console.parts import ConsoleParts, account, actor, mask, parts, signed_in
from console.roles import Role
from console.routes import resource
from console.shown import visible
from engine.client.admin import AdminError
from engine.link.errors import LinkError

log = logging.getLogger("penstock.console")
BODY_CHARS = 200
CHECK_STEPS = 3
"""A tail looks after so many steps whether its session still lasts."""


@resource("/topics/<name>/messages/live", role=Role.OWNER)
def live(name: str) -> ResponseReturnValue:
    """The stream. It ends with its session, after 10 minutes, or when the page is closed."""
    check_topic(name)
    text = request.args.get("filter", "").strip()
    wanted = read_filter_text(text) if text else None
    if isinstance(wanted, str):
        raise InvalidForm({"filter": wanted})
    own, composed, session = account(), parts(), signed_in()
    assert session is not None
    composed.log.note(actor(), "live tail", f"topic {name}", None, {"filter": text})
    if wanted is not None and mask(name).hides_search:
        raise InvalidForm({"filter": NO_SEARCH})
    if refusal := composed.tail.places.take(own.name):
        raise TooManyRequests(refusal)
    found = composed.configuration.view.topic(name)
    queues = found.queues if found is not None else 1
    stream = EventStream(
        _events(composed, (name, queues), wanted, session.token, own.role),
        lambda: composed.tail.places.give_back(own.name),
    )
    return stream.answer()


def _events(
    composed: ConsoleParts, topic: tuple[str, int], wanted: Filter | None, token: str, role: Role
) -> Generator[str, None, None]:
    yield OPENED
    try:
        hidden = composed.masking.mask(topic[0], role)
        for step, found in enumerate(composed.tail.follow(*topic, wanted)):
            if step % CHECK_STEPS == CHECK_STEPS - 1:
                session = composed.sessions.find(token)
                if session is None:
                    yield event("end", {"text": "Your session has ended: sign in again."})
                    return
                hidden = composed.masking.mask(topic[0], session.account.role)
            if not found:
                yield ": nothing new\n\n"  # tells whether the browser is still there
            for message in found:
                yield event("message", _shown(hidden.of(message)))
        yield event("end", {"text": "The tail ends after 10 minutes: start it again to go on."})
    except (LinkError, AdminError, OSError) as error:
        yield event("end", {"text": visible(f"The tail has ended: {error}")})


def _shown(message: FoundMessage) -> dict[str, object]:
    return {
        "queue": message.queue,
        "offset": message.offset,
        "stored_ms": message.stored_ms,
        "key": visible(message.key[:40]),
        "tag": visible(message.tag[:40]),
        "bytes": len(message.body),
        "body": visible(message.body[: 4 * BODY_CHARS].decode("utf-8", "replace")[:BODY_CHARS]),
    }

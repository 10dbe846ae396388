"""Live tail of a topic: server-sent events, one per message. Bodies are cut, and hostile text stays text."""

import json
import logging
from collections.abc import Callable, Generator

from flask import Blueprint, Response, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import TooManyRequests

from common.filter.native import Filter
from console.errors import InvalidForm
from console.installation.stored_messages import FoundMessage
from console.pages.messages import NO_SEARCH, check_topic, read_filter_text
from console.parts import ConsoleParts, account, actor, mask, parts, signed_in
from console.roles import Role
from console.shown import visible
from engine.client.admin import AdminError
from engine.link.errors import LinkError

log = logging.getLogger("penstock.console")
blueprint = Blueprint("tail", __name__)
BODY_CHARS = 200
CHECK_STEPS = 3
"""A tail looks after so many steps whether its session still lasts."""


@blueprint.get("/topics/<name>/messages/live")
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
    stream = _Stream(
        _events(composed, (name, queues), wanted, session.token, own.role),
        lambda: composed.tail.places.give_back(own.name),
    )
    return Response(stream, mimetype="text/event-stream", headers={"X-Accel-Buffering": "no"})


class _Stream:
    """The answer's iterator. The server closes it when the browser has gone, also before the first event."""

    def __init__(self, events: Generator[str, None, None], done: Callable[[], None]) -> None:
        self._events, self._done, self._is_open = events, done, True

    def __iter__(self) -> "_Stream":
        return self

    def __next__(self) -> bytes:
        return next(self._events).encode()

    def close(self) -> None:
        """Give the place back, once."""
        if self._is_open:
            self._is_open = False
            self._done()
            self._events.close()


def _events(
    composed: ConsoleParts, topic: tuple[str, int], wanted: Filter | None, token: str, role: Role
) -> Generator[str, None, None]:
    yield "retry: 3000\nevent: open\ndata: {}\n\n"
    try:
        hidden = composed.masking.mask(topic[0], role)
        for step, found in enumerate(composed.tail.follow(*topic, wanted)):
            if step % CHECK_STEPS == CHECK_STEPS - 1:
                session = composed.sessions.find(token)
                if session is None:
                    yield _event("end", {"text": "Your session has ended: sign in again."})
                    return
                hidden = composed.masking.mask(topic[0], session.account.role)
            if not found:
                yield ": nothing new\n\n"  # tells whether the browser is still there
            for message in found:
                yield _event("message", _shown(hidden.of(message)))
        yield _event("end", {"text": "The tail ends after 10 minutes: start it again to go on."})
    except (LinkError, AdminError, OSError) as error:
        yield _event("end", {"text": visible(f"The tail has ended: {error}")})


def _event(kind: str, value: dict[str, object]) -> str:
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n"


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

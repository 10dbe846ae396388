"""An answer of server-sent events, which holds a thread of the server and a place until its page has gone."""

import json
from collections.abc import Callable, Generator

from flask import Response

OPENED = "retry: 3000\nevent: open\ndata: {}\n\n"


def event(kind: str, value: dict[str, object]) -> str:
    """One event with a JSON value."""
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n"


class EventStream:
    """The answer's iterator. The server closes it when the browser has gone, also before the first event."""

    def __init__(self, events: Generator[str, None, None], done: Callable[[], None]) -> None:
        self._events, self._done, self._is_open = events, done, True

    def __iter__(self) -> "EventStream":
        return self

    def __next__(self) -> bytes:
        return next(self._events).encode()

    def close(self) -> None:
        """Give the place back, once."""
        if self._is_open:
            self._is_open = False
            self._done()
            self._events.close()

    def answer(self) -> Response:
        return Response(self, mimetype="text/event-stream", headers={"X-Accel-Buffering": "no"})

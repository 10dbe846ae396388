"""A client's connection and a store of messages, both without sockets."""

import struct

from consumer_proxy.sources.base import Source, SourceDown


class FakeConnection:
    """What common.net gives to on_call."""

    def __init__(self):
        self.peer, self.context, self.on_close = "test", None, None
        self.replies, self.trusted, self.closed = [], False, False

    def reply(self, frame):
        assert not self.closed, "an answer to nobody"
        self.replies.append(frame)

    def trust(self):
        self.trusted = True

    def leave(self):
        """The client closes its end."""
        self.closed = True
        if self.on_close is not None:
            self.on_close(self)


class FakeSource(Source):
    """Keeps what it was asked; the test answers."""

    def __init__(self):
        self.is_up = True
        self.asked, self.cancelled, self.told = [], [], []

    @property
    def up(self):
        return self.is_up

    def pull(self, request, answer):
        return self._take("pull", request, answer)

    def read(self, request, answer):
        return self._take("read", request, answer)

    def cancel(self, handle):
        self.cancelled.append(handle)

    def tell(self, request):
        self.told.append(PullRequest(request))

    def lend(self, request, answer):
        answer(203, b"")

    def close(self):
        self.is_up = False

    def answer(self, payload, code=0):
        """Answer the oldest open request."""
        _, _, answer = self.asked.pop(0)
        answer(code, payload)

    def _take(self, kind, request, answer):
        if not self.is_up:
            raise SourceDown("the engine is away")
        self.asked.append((kind, request, answer))
        return len(self.asked)


class PullRequest:
    """A decoded PULL request."""

    def __init__(self, data):
        at, self.group = _name(data, 0)
        (count,) = struct.unpack_from("<H", data, at)
        at += 2
        self.topics = {}
        for _ in range(count):
            at, name = _name(data, at)
            (self.topics[name],) = struct.unpack_from("<I", data, at)
            at += 4
        limits = struct.unpack_from("<iiiiB3x", data, at)
        self.max_messages, self.max_bytes, self.wait_ms, self.invisible_ms, self.start = limits
        self.ranges = data[at + 20 :]


def _name(data, at):
    (size,) = struct.unpack_from("<H", data, at)
    return at + 2 + size, data[at + 2 : at + 2 + size].decode()

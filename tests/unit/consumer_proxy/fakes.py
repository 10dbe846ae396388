"""A client's connection and the link to an engine, both without sockets."""

from consumer_proxy.sources.engine import EngineSource
from engine.client.rpc import LinkDown
from engine.link.operations import LEASE, PULL
from engine.link.pull import decode_request


class FakeConnection:
    """What common.net gives to on_call."""

    def __init__(self):
        self.peer, self.context, self.on_close = "test", None, None
        self.retry_slot = None
        self.replies, self.trusted, self.closed, self.unsent = [], False, False, False
        self.queued = self.left = 0
        self.reads = True  # False: replies stay in the output

    def reply(self, frame):
        assert not self.closed, "an answer to nobody"
        self.replies.append(frame)
        self.queued += len(frame)
        if self.reads:
            self.left = self.queued

    def trust(self):
        self.trusted = True

    def distrust(self):
        self.trusted = False

    def leave(self, unsent=False):
        """The client closes its end; with `unsent` before its last answer has left."""
        if unsent and self.left == self.queued:
            self.left -= 1
        self.closed, self.unsent = True, unsent
        if self.on_close is not None:
            self.on_close(self)


class FakeRpc:
    """A link that keeps what it was asked; the test answers. `told` are decoded requests whose answer goes nowhere."""

    def __init__(self):
        self.is_up = True
        self.asked, self.cancelled, self.told = [], [], []

    @property
    def connected(self):
        return self.is_up

    def send(self, op, payload, callback):
        if op == LEASE or not self.is_up:
            raise LinkDown("the engine is away")
        if op == PULL and not hasattr(callback, "args"):  # the answer of an `acknowledge` is only logged
            self.told.append(decode_request(payload))
            return 0
        self.asked.append((op, payload, callback))
        return len(self.asked)

    def cancel(self, request_id):
        self.cancelled.append(request_id)

    def close(self):
        self.is_up = False


class FakeSource(EngineSource):
    """The engine source with its real codec; the test is the engine."""

    def __init__(self):
        self.rpc = FakeRpc()
        super().__init__(self.rpc)

    asked = property(lambda self: self.rpc.asked)
    cancelled = property(lambda self: self.rpc.cancelled)
    told = property(lambda self: self.rpc.told)

    def answer(self, payload, code=0):
        """Answer the oldest open request."""
        _, _, callback = self.asked.pop(0)
        callback(code, payload)

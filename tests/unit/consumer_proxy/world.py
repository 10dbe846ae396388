"""The inside of a consumer proxy with one client and an engine that the test plays, without sockets."""

import json

from common.clock import FakeClock
from common.config import ConfigView
from common.config.memory_store import MemoryConfigStore
from common.contract import Credential, PullRequest, decode_reply, encode_call
from common.credential import mint
from common.limits.quota_slices import QuotaSlices
from consumer_proxy.admission.admission import PullAdmission
from consumer_proxy.pull.pull import Pulls
from consumer_proxy.settings import Settings
from consumer_proxy.stats import Stats
from engine.link.operations import PULL
from engine.link.pull import decode_request
from tests.unit.consumer_proxy import fakes

SECRET = "s" * 43
ID = bytes(range(16))


class World:
    """A proxy's inside with one client."""

    def __init__(self):
        self.clock = FakeClock()
        self.store = MemoryConfigStore()
        self.store.put("topic", "orders", {"queues": 4}, 0)
        self.store.put("topic", "refunds", {"queues": 2}, 0)
        self.store.put("topic", "secret", {"queues": 2}, 0)
        self.store.put("group", "billing", {"topics": ["orders"], "invisible_ms": 5000, "start": "latest"}, 0)
        self.store.put("group", "hollow", {}, 0)
        topics, groups = ("orders", "refunds", "gone"), ("billing", "hollow")
        self.put_app([], pull_grants=[*(["topic", name] for name in topics), *(["group", name] for name in groups)])
        self.view = ConfigView(self.store, clock=self.clock)
        self.source, self.stats = fakes.FakeSource(), Stats()
        settings = Settings()
        self.leases = QuotaSlices("consumer_proxy", "me", self.source.lend, self.clock.monotonic_s)
        admission = PullAdmission(self.view, self.clock, settings.verdicts_max, self.leases, self.reply_key)
        self.held = []
        self.pulls = Pulls(admission, self.source, settings, self.clock, self.stats, self.later)
        self.connection = fakes.FakeConnection()
        self.seqid = 0

    def later(self, seconds, function, *arguments):
        self.held.append((seconds, function, arguments))

    def reply_key(self, app):
        return app.encode().ljust(32, b".")

    def put_app(self, grants, version=0, **fields):
        keys = [{"key_id": "k1", "secret": SECRET, "created_at_ms": 1}]
        return self.store.put("application", "shop", {"keys": keys, "grants": grants, **fields}, version)

    def credential(self, app="shop", secret=SECRET, at_ms=None):
        fields = mint(app, "k1", secret, self.clock.now_ms() if at_ms is None else at_ms)
        return Credential(**fields._asdict())

    def call(self, connection=None, **fields):
        """Send a pull; its credential, group and topics are good unless given."""
        self.seqid += 1
        request = PullRequest(**{"credential": self.credential(), "group": "billing", "topics": ["orders"], **fields})
        self.pulls.on_call(connection or self.connection, encode_call("pull", self.seqid, request))

    def response(self):
        assert len(self.connection.replies) == 1
        return decode_reply(self.connection.replies.pop(), self.seqid)

    def refused(self, **fields):
        """(code, sentence) of a pull that the source is not asked for."""
        self.call(**fields)
        response = self.response()
        assert self.source.asked == []
        assert response.deliveries == []
        return response.code, response.error

    def asked(self):
        op, request, _ = self.source.asked[-1]
        return decode_request(request) if op == PULL else json.loads(request)

"""A producer proxy, a broker in memory and their configuration, for tests of `send`."""

import itertools

import gevent
from gevent import socket as gevent_socket

import producer_proxy.proxy as proxy_module
from common import contract
from common.clock import SystemClock
from common.config import ConfigView
from common.config.definitions import ApplicationDefinition, Grant, Key, TopicDefinition
from common.config.memory_store import MemoryConfigStore
from common.contract import Credential, SendRequest
from common.credential import mint
from common.net import listen
from engine.client.brokers import Brokers
from engine.link import layout
from engine.link.errors import LinkDown
from producer_proxy.proxy import ProducerProxy
from tests.services.fake_broker import KEY, FakeBroker, wait_until

SECRET = "s" * 43


class Rpc:
    """The rare operations, straight to the fake."""

    hello, connected = None, True

    def __init__(self, broker):
        self.broker, self.asked = broker, 0

    def attend(self, on_up, on_unasked):
        pass

    def call(self, op, payload, timeout):
        self.asked += 1
        with gevent.Timeout(timeout, False):
            return self.broker._answer(op, payload)
        return layout.TIMEOUT, b"the engine did not answer in time"

    def send(self, op, payload, callback):
        raise LinkDown("nobody lends here")

    def close(self):
        """Nothing to close."""


class Client:
    """One framed connection."""

    def __init__(self, port: int):
        self.sock = gevent_socket.create_connection(("127.0.0.1", port))
        self.sock.settimeout(5)
        self.seqids = itertools.count(1)

    def call_bytes(self, request) -> bytes:
        frame = contract.encode_call("send", next(self.seqids), request)
        self.sock.sendall(len(frame).to_bytes(4, "big") + frame)
        return self._read(int.from_bytes(self._read(4), "big"))

    def call(self, request):
        return contract.decode_reply(self.call_bytes(request)).results

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.sock.recv(size - len(data))
            assert chunk, "closed"
            data += chunk
        return data


class Desk:
    """A proxy, its broker and its configuration."""

    def __init__(self, hot: bool, monkeypatch, rpc=Rpc):
        if not hot:
            monkeypatch.setattr(proxy_module, "Front", None)
        self.broker = FakeBroker()
        self.store = MemoryConfigStore()
        app = ApplicationDefinition("shop", (Key("k1", SECRET, 0),), (Grant("send", "orders*"), Grant("send", "pay")))
        self.store.put("application", "shop", app.to_value(), 0)
        for name, fields in {
            "orders": {},
            "orders.fast": {"durability": "memory"},
            "pay": {"body_bytes_max": 2048},
            "other": {},
        }.items():
            self.store.put("topic", name, TopicDefinition(name, **({"queues": 4} | fields)).to_value(), 0)
        self.view = ConfigView(self.store)
        self.rpc = rpc(self.broker)
        brokers = Brokers(KEY, role="producer_proxy")
        brokers.use_one(self.broker.address, self.rpc)
        self.proxy = ProducerProxy([(listen("127.0.0.1", 0), None)], self.view, brokers)
        wait_until(lambda: brokers.connected)

    def client(self) -> Client:
        return Client(self.proxy.server.ports[0])

    def close(self):
        self.proxy.stop()
        self.broker.stop()
        self.view.close()


def credential(app="shop", key_id="k1", secret=SECRET, shift_ms=0) -> Credential:
    return Credential(*mint(app, key_id, secret, SystemClock().now_ms() + shift_ms))


def request(*messages, **fields) -> SendRequest:
    return SendRequest(**({"credential": credential(), "messages": list(messages)} | fields))


def codes(results):
    return [result.code for result in results]

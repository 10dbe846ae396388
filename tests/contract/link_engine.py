"""A link server on a real log within a test's process, in one of its forms, and a client of it."""

import errno
import json
import os
import socket

import gevent
from gevent import socket as gevent_socket

from engine.client.dial import Hello
from engine.client.rpc import RpcClient
from engine.config import LogConfig
from engine.env.real import RealEnv, RealFile
from engine.link import layout
from engine.link.acknowledgement import AckRange
from engine.link.pieces import AnswerPiece
from engine.link.proof import ADMIN_ROLE
from engine.link.pull import decode_answer, encode_pull
from engine.link.topic import encode_topics
from engine.log import open_log
from engine.node import Node, NodeConfig, NodeHost
from engine.ops.roles import LinkKeys
from engine.server.loop import NodeLoop
from engine.server.native import form, reference
from engine.server.server import LinkServer
from tests import link_bytes as raw

KEY, ADMIN_SECRET = b"k" * 32, b"a" * 32
FORMS = ["native", "twin"]


class CrampedFile(RealFile):
    """A file that the disk has no room for while `full`."""

    full = False

    def fileno(self) -> int:
        return -1

    def write_at(self, data, at: int) -> int:
        if CrampedFile.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write_at(data, at)


class CrampedEnv(RealEnv):
    """A machine with such a disk."""

    def open(self, path: str, *, create: bool = False):
        file = super().open(path, create=create)
        file.__class__ = CrampedFile
        return file

    def has_threads(self) -> bool:
        return False


class Engine:
    """A link server in this process, and a client of it."""

    def __init__(self, directory, kind: str, env: RealEnv | None = None, **config) -> None:
        config = {"segment_bytes": 4 << 20, **config}
        env = env or RealEnv()
        self.loop = NodeLoop(env.clock)
        self.log = open_log(env, str(directory), LogConfig(**config).checked(), notify=self.loop.on_fetched)
        self._host = NodeHost(
            env.clock, env.random_bytes, env.random_fraction, self.loop.in_loop, self.loop.wake_at, env.die,
            stop=lambda: None, facts=lambda: self.server.facts(),
        )  # fmt: skip
        self._make_node()
        self.form = reference if kind == "twin" else form
        self.server = LinkServer(self.node, "127.0.0.1", 0, form=self.form)
        self.loop.start(self.node)
        self.rpc = RpcClient(("127.0.0.1", self.server.port), ADMIN_SECRET, role=ADMIN_ROLE)
        assert self.rpc.wait_connected(5)

    def _make_node(self) -> None:
        self.node = Node(self.log, NodeConfig(LinkKeys(KEY, ADMIN_SECRET), progress_ms=50), self._host)
        self.delivery, self.timers = self.node.delivery, self.node.timers

    def begin_anew(self) -> None:
        """Serve with another node over the same open log, as a broker that leads, follows and leads again."""
        self.loop.stop()
        self.node.close()
        self.log.growth.forget_listeners()
        self._make_node()
        self.server.use(self.node, self.form)
        self.loop.start(self.node)
        self.rpc.reconnect("another node serves")
        turn_until(lambda: not self.rpc.connected)
        assert self.rpc.wait_connected(5)

    def ask(self, op: int, payload: bytes = b"") -> tuple[int, bytes]:
        return self.rpc.call(op, payload, 5)

    def topic(self, name: str = "orders", queues: int = 2) -> int:
        code, payload = self.ask(layout.TOPIC, encode_topics([(name, queues)]))
        assert code == 0
        return json.loads(payload)["topics"][0]["id"]

    def store(self, topic_id: int, count: int, queue: int = 0, durability: int = raw.MEMORY) -> None:
        code, payload = self.ask(layout.APPEND, raw.append(durability, raw.batch(topic_id, queue, [b"m\0"] * count)))
        assert (code, raw.results(payload)[0][0]) == (0, 0)

    def pull(self, group: str = "g", topics=(("orders", 2),), **options):
        code, payload = self.ask(layout.PULL, encode_pull(group, topics, **options))
        assert code == 0, payload
        return decode_answer(payload)

    def admin(self, verb: str, **options):
        code, payload = self.ask(layout.ADMIN, json.dumps({"verb": verb, **options}).encode())
        return json.loads(payload) if code == 0 else (code, payload.decode())

    def raw(self, key: bytes | None = KEY, role: str = "test") -> raw.RawLink:
        """A raw link whose blocking calls let this process's server turn."""
        link = raw.RawLink.__new__(raw.RawLink)
        socket.create_connection, plain = gevent_socket.create_connection, socket.create_connection
        try:
            link.__init__(self.server.port, key, role)
        finally:
            socket.create_connection = plain
        return link

    def close(self) -> None:
        self.rpc.close()
        self.server.close()
        self.loop.stop()
        self.node.close()
        self.log.close()
        self.loop.close()


def turn_until(condition) -> None:
    """Let the loop turn until the condition holds; fail after ten seconds."""
    with gevent.Timeout(10):
        while not condition():
            gevent.sleep(0.001)


def ack(piece: AnswerPiece, **changes) -> AckRange:
    return AckRange(piece.token, piece.first_delta, piece.count)._replace(**changes)


def greeting_of_a_start(directory) -> Hello:
    """The greeting of an engine that has stored something since its start."""
    engine = Engine(directory, "twin")
    engine.store(engine.topic(), 3, durability=raw.FSYNC)
    engine.rpc.reconnect("the test wants a new greeting")
    turn_until(lambda: not engine.rpc.connected)
    assert engine.rpc.wait_connected(5)
    hello = engine.rpc.hello
    assert hello is not None
    assert (hello.log_id, hello.broker_group) == (engine.log.log_id.hex(), "main")
    assert (hello.end_position, hello.durable_position) == (engine.log.end_position, engine.log.durable_position)
    engine.close()
    return hello

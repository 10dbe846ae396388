"""Real processes for the pull tests: an engine, consumer proxies, their configuration, and an appender on a raw link."""

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TClient
from thriftpy2.transport import TBufferedTransport, TFramedTransport, TSocket, TSSLSocket

from common.config import open_store
from common.contract import Consumer, Credential, PullRequest
from common.credential import mint
from engine.client.dial import dial
from engine.link import layout
from engine.link.append import encode_append, read_results
from engine.link.batch import encode_batch
from engine.link.proof import ADMIN_ROLE
from engine.link.record import encode_record

READY_S = 15.0
KEY, ADMIN_SECRET = b"k" * 32, b"a" * 32
SECRET = "s" * 43


class Process:
    """A Penstock process and its readiness line."""

    def __init__(self, module, *arguments, env=None):
        read, write = os.pipe()
        command = [sys.executable, "-m", module, *map(str, arguments), "--ready-fd", str(write)]
        self.child = subprocess.Popen(command, pass_fds=(write,), env={**os.environ, **(env or {})})
        os.close(write)
        try:
            self.facts = json.loads(_line(read, module))
        except BaseException:
            self.kill()
            raise
        finally:
            os.close(read)
        self.port, self.ops_port = self.facts["port"], self.facts["ops_port"]

    def kill(self):
        """Kill it with SIGKILL."""
        self.child.kill()
        self.child.wait()

    def stop(self):
        """Stop it with SIGTERM and return the exit code."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        return self.child.wait(READY_S)

    def page(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ops_port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


def _line(descriptor, module):
    data, end = b"", time.monotonic() + READY_S
    while not data.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0, end - time.monotonic()))
        assert ready, f"{module} was not ready within {READY_S} s"
        chunk = os.read(descriptor, 4096)
        assert chunk, f"{module} ended before it was ready"
        data += chunk
    return data


class Site:
    """One engine with its configuration; `proxy()` starts as many consumer proxies as a test wants.

    Args:
        config: URL of the configuration; proxy_config: as proxies have it.
    """

    def __init__(self, folder: Path, config: str = "", proxy_config: str = ""):
        self.folder = folder
        self.config = config or f"file://{folder / 'config'}"
        self.proxy_config = proxy_config or self.config
        self.key, self.admin_key = folder / "cluster.key", folder / "admin.key"
        for path, key in ((self.key, KEY), (self.admin_key, ADMIN_SECRET)):
            path.touch(0o600)
            path.write_bytes(key)
        self.engine = None
        self.proxies, self.clients = [], []
        self._configure()
        self.start_engine()

    def _configure(self):
        store = open_store(self.config)
        store.put("topic", "orders", {"queues": 4, "durability": "memory"}, 0)
        store.put("topic", "single", {"queues": 1, "durability": "memory"}, 0)
        store.put("group", "billing", {"topics": ["orders"]}, 0)
        keys = [{"key_id": "k1", "secret": SECRET, "created_at_ms": 1}]
        store.put(
            "application", "shop", {"keys": keys, "grants": [["pull", "*"]], "pull_grants": [["dead_letters", "*"]]}, 0
        )
        store.close()

    def start_engine(self):
        port = self.engine.port if self.engine else 0
        options = ["--data", self.folder / "engine", "--listen", f"127.0.0.1:{port}", "--ops", "127.0.0.1:0"]
        options += ["--cluster-key", self.key, "--admin-key", self.admin_key]
        self.engine = Process("engine", *options, "--config", self.config)

    def proxy(self, *more, config=None, env=None):
        options = ["--listen", "127.0.0.1:0", "--ops", "127.0.0.1:0", "--engine", f"127.0.0.1:{self.engine.port}"]
        options += ["--config", config or self.proxy_config, "--cluster-key", self.key]
        started = Process("consumer_proxy", *options, *more, env=env)
        self.proxies.append(started)
        return started

    def client(self, proxy, transport="framed"):
        made = Client(proxy.port, transport)
        self.clients.append(made)
        return made

    def link(self):
        return Link(self.engine.port)

    def close(self):
        for client in self.clients:
            client.close()
        for process in [*self.proxies, self.engine]:
            if process is not None and process.child.poll() is None:
                process.kill()


class Client:
    """A stock thriftpy2 client: one socket, blocking."""

    def __init__(self, port, transport="framed", ssl_context=None):
        if ssl_context is None:
            self.socket = TSocket("127.0.0.1", port, socket_timeout=20_000)
        else:
            self.socket = TSSLSocket("127.0.0.1", port, socket_timeout=20_000, ssl_context=ssl_context)
        wrap = {"framed": TFramedTransport, "buffered": TBufferedTransport}[transport]
        self._transport = wrap(self.socket)
        self._transport.open()
        self._stub = TClient(Consumer, TBinaryProtocol(self._transport))

    def pull(self, **fields):
        now_ms = time.time_ns() // 1_000_000
        credential = fields.pop("credential", None) or Credential(**mint("shop", "k1", SECRET, now_ms)._asdict())
        return self._stub.pull(PullRequest(**{"credential": credential, "group": "billing", **fields}))

    def close(self):
        self._transport.close()


class Link:
    """A raw link that sends what a producer proxy would, slowly."""

    def __init__(self, port):
        self._sock, _ = dial(("127.0.0.1", port), ADMIN_SECRET, role=ADMIN_ROLE)
        self._topics = {}
        self._last = 0

    def append(self, topic, bodies, queue=0, queues=4, own_id=None):
        """Store messages; returns the offset of the first."""
        if topic not in self._topics:
            asked = json.dumps({"topics": [{"name": topic, "queues": queues}]}).encode()
            self._topics[topic] = json.loads(self._ask(layout.TOPIC, asked))["topics"][0]["id"]
        records = [encode_record(stored(topic, body, own_id), b"" if own_id else os.urandom(16)) for body in bodies]
        batch = encode_batch(self._topics[topic], queue, records)
        ((code, _, offset),) = read_results(self._ask(layout.APPEND, encode_append(layout.MEMORY, batch)))
        assert code == 0, code
        return offset

    def status(self):
        return json.loads(self._ask(layout.ADMIN, b'{"verb": "status"}'))

    def close(self):
        self._sock.close()

    def _ask(self, op, payload):
        self._last += 1
        self._sock.sendall(layout.frame(op, self._last, payload))
        while True:
            size, _, _, code, request_id, _ = layout.HEADER.unpack(self._read(layout.HEADER_SIZE))
            answer = self._read(size + 4 - layout.HEADER_SIZE)
            if request_id == self._last:
                assert code == 0, (code, answer)
                return answer

    def _read(self, size):
        data = b""
        while len(data) < size:
            chunk = self._sock.recv(size - len(data))
            assert chunk, "the engine closed the link"
            data += chunk
        return data


def stored(topic, body, own_id=None):
    """Encode a message as a producer does."""
    parts = [struct.pack(">BHI", 11, 1, len(topic)), topic.encode(), struct.pack(">BHI", 11, 2, len(body)), body]
    if own_id is not None:
        parts += [struct.pack(">BHI", 11, 6, len(own_id)), own_id.encode()]
    return b"".join([*parts, b"\0"])


def cut(client):
    """The client gives up in the middle of its call. Not close(): a thread that reads would keep the connection open."""
    client.socket.sock.shutdown(socket.SHUT_RDWR)

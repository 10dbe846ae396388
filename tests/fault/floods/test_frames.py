"""Mutated frames on every port of running processes: none ends, none grows, none writes without a limit, and honest calls go on.

Short by default; `make floods` shows 300,000 frames to each port.
"""

import itertools
import os
import shutil
from contextlib import ExitStack
from functools import cache

import pytest

from engine.link.proof import KAFKA_BRIDGE_ROLE, REPLICA_ROLE
from tests.fault import hostile_frames as hostile
from tests.fault.floods import http_seeds, link_seeds
from tests.fault.floods.frames import PAGE_WAIT_S, FloodedPort, mutated_frames
from tests.fault.floods.honest import MIB, Beside, HonestTarget, Memory, log_bytes, processes
from tests.fault.floods.sessions import session
from tests.fault.floods.strangers import client_hello
from tests.fault.hostile_frames import framed
from tests.fault.own_proxy import OwnProxy
from tests.fault.processes import cpu_s
from tests.fault.raw_socket import encoded_credential
from tests.fault.stock_clients import Sender, credential, knows
from tests.fuzz.seeds import CREDENTIAL, SEEDS
from tests.services import require
from tests.services.self_signed import self_signed
from tests.waiting import until

FRAMES = int(os.environ.get("PENSTOCK_FLOOD_FRAMES", "2000"))
SEED = int(os.environ.get("PENSTOCK_SEED", "1"))
WINDOW_S = float(os.environ.get("PENSTOCK_FLOOD_WINDOW_S", "2"))
GROWN_BYTES_MAX = 48 * MIB
PROVED_BYTES = 128  # per frame: who knows the key may add groups, topics and messages, whose names are kept
LOG_BYTES_MAX = 200_000
TRACEBACKS_MAX = 3


class Site:
    """A Penstock with all its processes, and an honest application."""

    def __init__(self, penstock):
        self.penstock = penstock
        penstock.run("kafka", "add", "main", "--bootstrap", "127.0.0.1:9")
        self.shop = penstock.application("shop", send=["*"], pull=["*"])
        penstock.run("topic", "create", "orders", "--queues", "1", "--durability", "memory")
        penstock.run("topic", "create", "honest", "--queues", "1", "--durability", "memory")
        with Sender(penstock.producer, self.shop) as sender:
            knows(sender, "honest")
        until(lambda: "kafka_bridge" in penstock.refresh()["pids"], "the bridge is started", 20)
        self.key, self.replica_key = ((penstock.data / f"{name}.key").read_bytes() for name in ("cluster", "replica"))
        self.target = HonestTarget(penstock.producer, self.shop, "honest")

    def address(self, name):
        return self.penstock.facts[name]["host"], self.penstock.facts[name]["port"]

    def ops(self, name):
        return "127.0.0.1", self.penstock.facts["ops"][name]

    def thrift(self, address, method, **more):
        own = encoded_credential(credential(self.shop))
        anothers = encoded_credential(CREDENTIAL)
        make = hostile.send if method == "send" else hostile.pull
        head = make(own).find(own) + len(own)
        seeds = [framed(seed.replace(anothers, own)) for name, seed in SEEDS.items() if name.startswith(method)]
        return FloodedPort(address, "thrift", [*seeds, framed(make(own))], head, **more)


@pytest.fixture(scope="module")
def site(penstock_factory):
    return Site(penstock_factory("--replicas", "2", environment={"PENSTOCK_CONSOLE": "1"}))


@pytest.fixture(scope="module")
def tls_proxy(site, tmp_path_factory):
    """The proxy of a kind, with a listener of TLS."""
    require(shutil.which("openssl"), "the openssl command")
    chain, key = self_signed(tmp_path_factory.mktemp("tls"), "localhost")
    options = ["--tls-listen", "127.0.0.1:0", "--tls-cert", str(chain), "--tls-key", str(key)]
    with ExitStack() as stack:
        yield cache(lambda kind: stack.enter_context(OwnProxy(site.penstock, *options, kind=kind)))


def tls_ports(site, name, proxy):
    """The same as `ports`, of a proxy with TLS."""
    tls, method = (proxy.facts["host"], proxy.facts["tls_port"]), "pull" if "consumer" in name else "send"
    target = HonestTarget(proxy.address, site.shop, "honest", tls, is_pull=method == "pull")
    if name.endswith("handshake"):
        return FloodedPort(tls, "bytes", [client_hello()]), proxy.facts["pid"], target
    return site.thrift(tls, method, prologue="tls"), proxy.facts["pid"], target


def ports(site, name, tls_proxy):
    """The port of that name, its process, and where honest clients call beside it."""
    engine, bridge = site.address("engine"), ("unix", str(site.penstock.data / "kafka_bridge.sock"))
    if ", TLS" in name:
        return tls_ports(site, name, tls_proxy("consumer_proxy" if "consumer" in name else "producer_proxy"))
    pid = site.penstock.pids
    made = {
        "producer proxy": lambda: (site.thrift(site.penstock.producer, "send"), "producer_proxy"),
        "consumer proxy": lambda: (site.thrift(site.penstock.consumer, "pull"), "consumer_proxy"),
        "engine link, stranger": lambda: (FloodedPort(engine, "link", link_seeds.of_strangers()), "engine"),
        "engine link, proxy": lambda: (
            FloodedPort(engine, "link", link_seeds.of_proxies("orders"), 0, "proof", "test", site.key), "engine"),
        "replication link": lambda: (
            FloodedPort(engine, "link", link_seeds.of_slaves(), 0, "proof", REPLICA_ROLE, site.replica_key), "engine"),
        "bridge link, stranger": lambda: (FloodedPort(bridge, "link", link_seeds.of_strangers()), "kafka_bridge"),
        "bridge link, proxy": lambda: (
            FloodedPort(bridge, "link", link_seeds.of_bridge_links(), 0, "proof", KAFKA_BRIDGE_ROLE, site.key), "kafka_bridge"),
        "operators' port, producer proxy": lambda: (
            FloodedPort(site.ops("producer_proxy"), "http", http_seeds.of_operators()), "producer_proxy"),
        "operators' port, consumer proxy": lambda: (
            FloodedPort(site.ops("consumer_proxy"), "http", http_seeds.of_operators()), "consumer_proxy"),
        "operators' port, engine": lambda: (FloodedPort(site.ops("engine"), "http", http_seeds.of_operators()), "engine"),
        "console, visitor": lambda: (FloodedPort(site.address("console"), "http", http_seeds.of_visitors(), wait_s=PAGE_WAIT_S), "console"),
        "console, signed in": lambda: (
            FloodedPort(site.address("console"), "http", http_seeds.of_people("orders"), wait_s=PAGE_WAIT_S,
                        **session(site.penstock)), "console"),
    }  # fmt: skip
    port, process = made[name]()
    is_pull = process == "consumer_proxy"
    honest = HonestTarget(site.penstock.consumer, site.shop, "honest", is_pull=True) if is_pull else site.target
    return port, pid[process], honest._replace(page=port.address if port.form == "http" else None)


NAMES = [
    "producer proxy", "producer proxy, TLS", "producer proxy, TLS handshake", "consumer proxy", "consumer proxy, TLS",
    "engine link, stranger", "engine link, proxy", "replication link", "bridge link, stranger", "bridge link, proxy",
    "operators' port, producer proxy", "operators' port, consumer proxy", "operators' port, engine",
    "console, visitor", "console, signed in",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_mutated_frames_end_no_process_and_no_honest_call(site, tls_proxy, name):
    port, pid, honest = ports(site, name, tls_proxy)
    logs, before = site.penstock.data / "logs", site.penstock.refresh()
    with processes() as pool:
        found = Beside(honest, pool)
        found.warm_up()
        pool.submit(mutated_frames, port, max(1_000, FRAMES // 20), SEED + 1_000, 20.0).result()  # what is kept is kept
        memory, logged, told, used_s = Memory(pid), log_bytes(logs), tracebacks(logs), cpu_s(pid)
        for seed in itertools.count(SEED):
            if (left := FRAMES - found.flood["frames"]) <= 0:
                break
            assert found.windows(mutated_frames, port, left, seed, seconds=WINDOW_S)["frames"] > 0
    print(f"\n{name}: {found.flood}; {memory.line()}; CPU {cpu_s(pid) - used_s:.1f} s; log +{log_bytes(logs) - logged:,} bytes, "
          f"{tracebacks(logs) - told} tracebacks; load {os.getloadavg()[0]:.1f}\n{found.lines()}")  # fmt: skip
    assert not found.failed
    assert site.penstock.refresh()["restarts"] == before["restarts"]
    assert site.penstock.facts["pids"] == before["pids"]
    assert memory.kept <= GROWN_BYTES_MAX + (FRAMES * PROVED_BYTES if port.prologue == "proof" else 0)
    assert log_bytes(logs) - logged <= LOG_BYTES_MAX
    assert tracebacks(logs) - told <= TRACEBACKS_MAX


def tracebacks(folder):
    return sum(path.read_text(errors="replace").count("Traceback (most recent") for path in folder.glob("*.log"))

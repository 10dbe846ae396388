"""RocketMQ: name server and one master with ASYNC_FLUSH, driven by the remoting client without a proxy, or by gRPC
through RocketMQ's proxy.

The stock form has the documented configuration. Stock brokers refuse sends that waited for 200 ms in their queue, and
store the state of a pop as messages. So there is a tuned form, too.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.errors import InstanceError
from bench.peers.build import broker_classpath
from bench.peers.driver import Driven, java_driver
from bench.peers.java import java_server
from bench.peers.processes import Started, free_ports, is_free, started
from bench.peers.workloads import BATCHED, CONSUMED, OPEN, PULLED, SINGLE, SINGLE_256, TOPICS, Shape

BROKER_HEAP = "2g"  # the scripts' 8 GiB assume a dedicated machine
NAME_SERVER_HEAP = "256m"
UP = "boot success"
TUNED = "waitTimeMillsInSendQueue=1000\nsendMessageThreadPoolNums=4\nenablePopBufferMerge=true\n"
POPPED = 32  # messages per pop; the client allows no more
SHAPES = {
    SINGLE.name: Shape(),
    OPEN.name: Shape(),
    CONSUMED.name: Shape(consumers=TOPICS, most=POPPED),
    SINGLE_256.name: Shape(),
    PULLED.name: Shape(batch=100, consumers=TOPICS, most=POPPED, fill=4_000_000),
    BATCHED.name: Shape(batch=100),
}
PROXY_HEAP = "1g"
PROXY_UP = "rocketmq-proxy startup successfully"
PROXY_TRIES = 3
PROXY_SHAPES = {SINGLE.name: Shape()}


@contextmanager
def running(tuned: bool = False) -> Iterator[Driven]:
    name = "rocketmq-tuned" if tuned else "rocketmq"
    with tempfile.TemporaryDirectory(prefix=f"penstock-bench-{name}-") as place:
        folder = Path(place)
        name_port, broker_port = _ports()
        names = f"127.0.0.1:{name_port}"
        (folder / "namesrv.conf").write_text(f"listenPort={name_port}\nbindAddress=127.0.0.1\n")
        (folder / "broker.conf").write_text(broker_settings(folder / "store", names, broker_port, tuned))
        env = {**os.environ, "ROCKETMQ_HOME": str(folder)}
        name_server = _java("org.apache.rocketmq.namesrv.NamesrvStartup", folder / "home-n", NAME_SERVER_HEAP)
        broker = _java(
            "org.apache.rocketmq.broker.BrokerStartup", folder / "home-b", BROKER_HEAP, "-XX:MaxDirectMemorySize=1g"
        )
        with started("namesrv", [*name_server, "-c", "namesrv.conf"], folder, env) as first:
            first.wait_for(UP)
            with started("broker", [*broker, "-c", "broker.conf", "-n", names], folder, env) as second:
                second.wait_for(UP)
                pids = {"broker": second.process.pid, "namesrv": first.process.pid}
                yield Driven(name, pids, java_driver(folder), "rocketmq", names, SHAPES)


@contextmanager
def proxied() -> Iterator[Driven]:
    """The same with RocketMQ's gRPC proxy as a separate process."""
    with (
        running() as bare,
        tempfile.TemporaryDirectory(prefix="penstock-bench-rocketmq-proxy-") as place,
        ExitStack() as stack,
    ):
        folder = Path(place)
        grpc_port, remoting_port = free_ports(2)
        (folder / "proxy.json").write_text(proxy_settings(bare.servers, grpc_port, remoting_port))
        env = {**os.environ, "RMQ_PROXY_HOME": str(folder), "ROCKETMQ_HOME": str(folder)}
        proxy = _java(
            "org.apache.rocketmq.proxy.ProxyStartup", folder / "home-p", PROXY_HEAP, "-XX:MaxDirectMemorySize=1g"
        )
        third = _proxy_up(stack, [*proxy, "-pc", str(folder / "proxy.json")], folder, env)
        pids = {**bare.pids, "proxy": third.process.pid}
        servers = f"{bare.servers},127.0.0.1:{grpc_port}"
        yield Driven("rocketmq-proxy", pids, bare.command, "rocketmq-proxy", servers, PROXY_SHAPES)


def _proxy_up(stack: ExitStack, line: list[str], folder: Path, env: dict[str, str]) -> Started:
    """Start the proxy, with several tries.

    The proxy exits when the broker does not create its topic within 3 s, as happens on a busy machine.
    """
    for left in reversed(range(PROXY_TRIES)):
        proxy = stack.enter_context(started("proxy", line, folder, env))
        try:
            proxy.wait_for(PROXY_UP)
        except InstanceError:
            if not left:
                raise
        else:
            break
    return proxy


def proxy_settings(names: str, grpc_port: int, remoting_port: int) -> str:
    """The documented configuration with our ports. TLS runs in test mode, so clients need no certificate."""
    return json.dumps({
        "rocketMQClusterName": "DefaultCluster", "proxyMode": "CLUSTER", "namesrvAddr": names, "grpcServerPort": grpc_port,
        "remotingListenPort": remoting_port, "tlsTestModeEnable": True,
    })  # fmt: skip


def broker_settings(store: Path, names: str, port: int, tuned: bool) -> str:
    """The documented configuration of a single master, with our paths."""
    return f"""\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
brokerIP1=127.0.0.1
bindAddress=127.0.0.1
listenPort={port}
haListenPort={port + 1}
namesrvAddr={names}
storePathRootDir={store}
storePathCommitLog={store}/commitlog
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
autoCreateTopicEnable=true
{TUNED if tuned else ""}"""


def _ports() -> tuple[int, int]:
    """Free ports of the name server and the broker.

    A broker also listens near its own port: below it for its fast channel, above it for replicas.
    """
    while True:
        name_port, broker_port = free_ports(2)
        if abs(name_port - broker_port) > 2 and all(map(is_free, (broker_port - 2, broker_port + 1))):
            return name_port, broker_port


def _java(main_class: str, home: Path, heap: str, *options: str) -> list[str]:
    home.mkdir()
    return java_server(main_class, broker_classpath("rocketmq"), home, heap, *options)

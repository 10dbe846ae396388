"""RocketMQ in controller mode: name server, one controller, two brokers of one group that are both in sync.

allAckInSyncStateSet: a write is answered when all brokers of the in-sync set have it in their page caches. One broker
may go on alone (minInSyncReplicas=1), otherwise a group of two could not switch over. Everything else has the values of
the documented configuration and of the client library.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.build import broker_classpath
from bench.peers.driver import Driven, java_driver
from bench.peers.java import java_server
from bench.peers.processes import free_ports, is_free
from bench.peers.replicated.nodes import Cluster, PeerNode, serving
from bench.peers.replicated.workloads import SHAPES
from bench.peers.rocketmq import UP

BROKERS = 2
BROKER_HEAP, SMALL_HEAP = "1g", "256m"


@contextmanager
def running() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-rocketmq-") as name:
        folder = Path(name)
        name_port, controller_port, *broker_ports = _ports()
        names, controller = f"127.0.0.1:{name_port}", f"127.0.0.1:{controller_port}"
        (folder / "namesrv.conf").write_text(f"listenPort={name_port}\nbindAddress=127.0.0.1\n")
        (folder / "controller.conf").write_text(controller_settings(folder / "controller", controller_port))
        env = {**os.environ, "ROCKETMQ_HOME": str(folder)}

        def node(kind: str, main_class: str, heap: str, *options: str) -> PeerNode:
            home = folder / f"home-{kind}"
            home.mkdir()
            java = java_server(main_class, broker_classpath("rocketmq"), home, heap, "-XX:MaxDirectMemorySize=1g")
            return PeerNode(kind, [*java, *options], folder, UP, env)

        name_server = node("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", SMALL_HEAP, "-c", "namesrv.conf")
        control = node(
            "controller", "org.apache.rocketmq.controller.ControllerStartup", SMALL_HEAP, "-c", "controller.conf"
        )
        brokers = {}
        for port in broker_ports:
            kind = f"broker-{port}"
            (folder / f"{kind}.conf").write_text(broker_settings(folder / kind, names, controller, port))
            start = ("-c", f"{kind}.conf", "-n", names)
            brokers[f"127.0.0.1:{port}"] = node(kind, "org.apache.rocketmq.broker.BrokerStartup", BROKER_HEAP, *start)
        with serving([name_server, control]), serving([*brokers.values()]):
            all_nodes = [name_server, control, *brokers.values()]
            pids = {each.name: each.pid for each in all_nodes}
            servers = f"{names},{controller}"
            driven = Driven("rocketmq", pids, java_driver(folder), "rocketmq", servers, SHAPES, copies=BROKERS)
            yield Cluster(driven, brokers, BROKERS)


def controller_settings(store: Path, port: int) -> str:
    return f"""\
controllerDLegerGroup=group1
controllerDLegerPeers=n0-127.0.0.1:{port}
controllerDLegerSelfId=n0
controllerStorePath={store}
mappedFileSize=67108864
"""


def broker_settings(store: Path, names: str, controller: str, port: int) -> str:
    """The documented configuration of a broker in controller mode, with our paths."""
    return f"""\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=-1
brokerRole=SLAVE
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
bindAddress=127.0.0.1
listenPort={port}
haListenPort={port + 1}
namesrvAddr={names}
enableControllerMode=true
controllerAddr={controller}
allAckInSyncStateSet=true
inSyncReplicas=2
minInSyncReplicas=1
storePathRootDir={store}
storePathCommitLog={store}/commitlog
flushDiskType=ASYNC_FLUSH
autoCreateTopicEnable=true
"""


def _ports() -> list[int]:
    """Free ports of name server, controller and brokers, far enough from each other for those near a broker's own."""
    while True:
        ports = free_ports(2 + BROKERS)
        near = [port + step for port in ports[2:] for step in (-2, 1)]
        if all(map(is_free, near)) and len({*ports, *near}) == len(ports) + len(near):
            return ports

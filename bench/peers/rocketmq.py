"""RocketMQ: name server and one master with ASYNC_FLUSH, driven by the remoting client without a proxy between.

Stock is the documented file. Stock brokers refuse sends that waited for 200 ms in their queue, so there is a tuned one beside it.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.build import broker_classpath
from bench.peers.driver import Driven, java_driver
from bench.peers.java import java_server
from bench.peers.processes import free_ports, is_free, started
from bench.peers.workloads import BATCHED, OPEN, SINGLE, Shape

BROKER_HEAP = "2g"  # the scripts' 8 GiB are for a machine of its own
NAME_SERVER_HEAP = "256m"
UP = "boot success"
TUNED = "waitTimeMillsInSendQueue=1000\nsendMessageThreadPoolNums=4\n"
SHAPES = {SINGLE.name: Shape(), OPEN.name: Shape(), BATCHED.name: Shape(batch=100)}


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


def broker_settings(store: Path, names: str, port: int, tuned: bool) -> str:
    """The documented file of a single master, with our places."""
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
    """Of the name server and the broker. A broker also takes the ports next to its own: below for quick sends, above for replicas."""
    while True:
        name_port, broker_port = free_ports(2)
        if abs(name_port - broker_port) > 2 and all(map(is_free, (broker_port - 2, broker_port + 1))):
            return name_port, broker_port


def _java(main_class: str, home: Path, heap: str, *options: str) -> list[str]:
    home.mkdir()
    return java_server(main_class, broker_classpath("rocketmq"), home, heap, *options)

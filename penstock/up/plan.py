"""The plan of `up`: the processes to run, as values. Nothing is started here."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from common.address import PATH_BYTES_MAX, UNIX, Address
from penstock.up.ports import CONTROLLER, KAFKA_BRIDGE, Ports, broker_name


@dataclass(frozen=True)
class ChildPlan:
    """One process. With `announces`, `--ready-fd N` is appended to `command` at each start."""

    name: str
    command: list[str]
    log: Path | None  # None: the process writes to the terminal
    announces: bool = True
    stop_rank: int = 0  # lower ranks are stopped first, and must have ended before the next rank is stopped


@dataclass(frozen=True)
class UpPlan:
    """All processes of one machine, and their addresses and paths."""

    data: Path
    host: str
    config: str
    cluster_key: Path
    ports: Ports
    children: list[ChildPlan] = field(default_factory=list)
    ready_file: Path | None = None
    groups: int = 1  # broker groups; with one, the proxies get its engine's address and nothing is placed
    replicas: int = 1  # brokers per group


def module_command(module: str) -> list[str]:
    """The command line of a module. `-P`: a folder `engine` in the working directory must not be imported instead."""
    return [sys.executable, "-P", "-m", module]


def group_name(number: int) -> str:
    """The name of broker group `number`, from 1 on.

    The placement depends on it: it must not change while there are messages.
    """
    return f"group-{number}"


def make_plan(
    data: Path, host: str, config: str | None, key: Path, ports: Ports, ready_file: Path | None, groups: int = 1,
    engine_options: Sequence[str] = (), replicas: int = 1,
) -> UpPlan:  # fmt: skip
    """The engines of each broker group, proxies, a controller of replicas, a Kafka bridge.

    The proxies stop first and answer their calls; the controller stops last.
    """
    url = config or (data / "config").as_uri()

    def address(name: str) -> str:
        return f"{Address(host, ports[name])}"

    def common(name: str) -> list[str]:
        return ["--listen", address(name), "--ops", address(f"{name}_ops"), "--config", url, "--cluster-key", str(key)]

    numbers, copies = range(1, groups + 1), range(1, replicas + 1)
    socket_file = str((data / "engine.sock").absolute()) if groups == replicas == 1 else ""
    has_socket_file = 0 < len(socket_file.encode()) <= PATH_BYTES_MAX

    brokers = UNIX + socket_file if has_socket_file else ",".join(address(broker_name(1, each)) for each in copies)
    only = ["--engine", brokers] if groups == 1 else []  # several are found by their addresses in the configuration

    def proxy(name: str, *more: str) -> ChildPlan:
        more = (*only, "--snapshot", str(data / f"{name}.snapshot"), *more)
        return ChildPlan(name, [*module_command(name), *common(name), *more], data / "logs" / f"{name}.log")

    def engine(number: int, replica: int) -> ChildPlan:
        name = broker_name(number, replica)
        more = ["--broker-group", group_name(number)] if groups > 1 else []
        more += ["--broker", name] if replicas > 1 else []
        more += ["--first"] if replicas > 1 and replica == 1 else []
        more += ["--socket-file", socket_file] if has_socket_file else []
        command = [*module_command("engine"), "--data", str(data / name), *common(name), *engine_options, *more]
        return ChildPlan(name, command, data / "logs" / f"{name}.log", stop_rank=1)

    bridges, to_bridge = _kafka_bridges(data, url, key, address, only) if KAFKA_BRIDGE in ports else ([], [])
    children = [
        *[engine(number, replica) for replica in copies for number in numbers],
        *([_controller(data, url, key, address(f"{CONTROLLER}_ops"))] if replicas > 1 else []),
        *bridges,
        proxy("producer_proxy", "--buffer", str(data / "buffer" / "producer_proxy"), *to_bridge),
        proxy("consumer_proxy"),
    ]
    return UpPlan(data, host, url, key, ports, children, ready_file, groups, replicas)


def _kafka_bridges(
    data: Path, url: str, key: Path, address: Callable[[str], str], only: list[str]
) -> tuple[list[ChildPlan], list[str]]:
    """The bridge, and the options by which a producer proxy finds it: by a socket file where its path is short enough.

    It stops after the proxies, whose calls it answers.
    """
    file = str((data / f"{KAFKA_BRIDGE}.sock").absolute())
    listen = UNIX + file if len(file.encode()) <= PATH_BYTES_MAX else address(KAFKA_BRIDGE)
    command = [*module_command(KAFKA_BRIDGE), "--listen", listen, "--ops", address(f"{KAFKA_BRIDGE}_ops")]
    snapshot = str(data / f"{KAFKA_BRIDGE}.snapshot")
    command += ["--config", url, "--cluster-key", str(key), "--snapshot", snapshot, *only]
    plan = ChildPlan(KAFKA_BRIDGE, command, data / "logs" / f"{KAFKA_BRIDGE}.log", stop_rank=1)
    return [plan], ["--kafka-bridge", listen]


def _controller(data: Path, url: str, key: Path, ops: str) -> ChildPlan:
    command = [*module_command(CONTROLLER), "--name", CONTROLLER, "--ops", ops, "--config", url]
    return ChildPlan(
        CONTROLLER, [*command, "--cluster-key", str(key)], data / "logs" / f"{CONTROLLER}.log", stop_rank=2
    )

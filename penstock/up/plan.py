"""The plan of `up`: the processes to run, as values. Nothing is started here."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from common.address import PATH_BYTES_MAX, UNIX, Address
from penstock.up.directory import ADMIN_KEY, CONTROLLER_KEY, OPS_KEY
from penstock.up.ports import CONSOLE, CONTROLLER, KAFKA_BRIDGE, Hosts, Ports, broker_name, group_name


@dataclass(frozen=True)
class ChildPlan:
    """One process. With `announces`, `--ready-fd N` is appended to `command` at each start."""

    name: str
    command: list[str]
    log: Path | None  # None: the process writes to the terminal
    announces: bool = True
    stop_rank: int = 0  # lower ranks are stopped first, and must have ended before the next rank is stopped
    is_essential: bool = True  # False: all else serves without it when it does not start


@dataclass(frozen=True)
class UpPlan:
    """All processes of one machine, and their addresses and paths."""

    data: Path
    hosts: Hosts
    config: str
    cluster_key: Path
    ports: Ports
    children: list[ChildPlan] = field(default_factory=list)
    ready_file: Path | None = None
    groups: int = 1  # broker groups; with one, the proxies get its engine's address and nothing is placed
    replicas: int = 1  # brokers per group
    later: ChildPlan | None = None  # the Kafka bridge, started once the configuration names a cluster
    secrets_key: Path | None = None  # file of root keys; None: secrets of new keys are stored in clear


def module_command(module: str) -> list[str]:
    """The command line of a module. `-P`: a folder `engine` in the working directory must not be imported instead."""
    return [sys.executable, "-P", "-m", module]


def make_plan(
    data: Path, hosts: Hosts, config: str | None, key: Path, ports: Ports, ready_file: Path | None, groups: int = 1,
    engine_options: Sequence[str] = (), replicas: int = 1,
) -> UpPlan:  # fmt: skip
    """The engines of each broker group, proxies, a controller of replicas, a Kafka bridge.

    The proxies stop first and answer their calls; the controller stops last.
    """
    url = config or (data / "config").as_uri()

    def address(name: str) -> str:
        return f"{Address(hosts.of(name), ports[name])}"

    def common(name: str) -> list[str]:
        return ["--listen", address(name), "--ops", address(f"{name}_ops"), "--config", url, "--cluster-key", str(key)]

    numbers, copies = range(1, groups + 1), range(1, replicas + 1)
    names = [broker_name(number, each) for number in numbers for each in copies]
    files = socket_files(data, names) if groups == 1 or replicas > 1 else {}
    listed = ",".join(address(broker_name(1, each)) for each in copies)
    brokers = ",".join(UNIX + files[broker_name(1, each)] for each in copies) if files else listed
    only = ["--engine", brokers] if groups == 1 else []  # several are found by their addresses in the configuration

    def proxy(name: str, *more: str) -> ChildPlan:
        more = ("--ops-key", str(data / OPS_KEY), *only, "--snapshot", str(data / f"{name}.snapshot"), *more)
        return ChildPlan(name, [*module_command(name), *common(name), *more], data / "logs" / f"{name}.log")

    def engine(number: int, replica: int) -> ChildPlan:
        name = broker_name(number, replica)
        more = place_options(name, group_name(number) if groups > 1 else "", replica if replicas > 1 else 0)
        more += reach_options(address(name) if replicas > 1 else "", files.get(name))
        command = [*module_command("engine"), "--data", str(data / name), *common(name), *engine_options, *more]
        return ChildPlan(name, command, data / "logs" / f"{name}.log", stop_rank=1)

    bridge, to_bridge = bridge_plan(data, url, key, hosts, ports, only)
    children = [
        *[engine(number, replica) for replica in copies for number in numbers],
        *([_controller(data, url, address(f"{CONTROLLER}_ops"))] if replicas > 1 else []),
        *([bridge] if bridge and KAFKA_BRIDGE in ports else []),
        proxy("producer_proxy", *_stores(data, "producer_proxy"), *to_bridge),
        proxy("consumer_proxy"),
        *_console(data, url, hosts, ports, listed if groups == 1 else ""),
    ]
    later = None if KAFKA_BRIDGE in ports else bridge
    return UpPlan(data, hosts, url, key, ports, children, ready_file, groups, replicas, later)


def _stores(data: Path, name: str) -> list[str]:
    """The options of a producer proxy's directories."""
    return ["--buffer", str(data / "buffer" / name), "--journal", str(data / "journal" / name)]


def place_options(name: str, group: str, replica: int) -> list[str]:
    """Options that tell an engine its place.

    Args:
        group: empty: there is one broker group.
        replica: from 1 on; 0: the group has one broker.
    """
    found = ["--broker-group", group] if group else []
    found += ["--broker", name] if replica else []
    return found + (["--first"] if replica == 1 else [])


def reach_options(address: str, socket_file: str | None) -> list[str]:
    """Options that tell an engine where it is reached.

    Args:
        address: without a socket file; empty: it has no controllers and no other brokers.
    """
    found = ["--address", UNIX + socket_file if socket_file else address] if address else []
    return found + (["--socket-file", socket_file] if socket_file else [])


def socket_files(data: Path, brokers: Sequence[str]) -> dict[str, str]:
    """The socket file of each broker, which costs less than an address; empty: a path is too long."""
    files = {name: str((data / f"{name}.sock").absolute()) for name in brokers}
    return files if all(len(file.encode()) <= PATH_BYTES_MAX for file in files.values()) else {}


def bridge_plan(
    data: Path, url: str, key: Path, hosts: Hosts, ports: Ports, only: Sequence[str]
) -> tuple[ChildPlan | None, list[str]]:
    """The Kafka bridge, and the option by which a producer proxy finds it: by a socket file where its path is short enough.

    It stops after the proxies, whose calls it answers. None: it has neither a socket file nor a port.

    Args:
        only: the option that names the only broker group; empty: the configuration names several.
    """
    file = str((data / f"{KAFKA_BRIDGE}.sock").absolute())
    listen = UNIX + file
    if len(file.encode()) > PATH_BYTES_MAX:
        if KAFKA_BRIDGE not in ports:
            return None, []
        listen = f"{Address(hosts.of(KAFKA_BRIDGE), ports[KAFKA_BRIDGE])}"
    ops = f"{Address(hosts.ops, ports.get(f'{KAFKA_BRIDGE}_ops', 0))}"
    command = [*module_command(KAFKA_BRIDGE), "--listen", listen, "--ops", ops, "--config", url]
    command += ["--cluster-key", str(key), "--snapshot", str(data / f"{KAFKA_BRIDGE}.snapshot"), *only]
    plan = ChildPlan(KAFKA_BRIDGE, command, data / "logs" / f"{KAFKA_BRIDGE}.log", stop_rank=1)
    return plan, ["--kafka-bridge", listen]


def _controller(data: Path, url: str, ops: str) -> ChildPlan:
    command = [*module_command(CONTROLLER), "--name", CONTROLLER, "--ops", ops, "--config", url]
    return ChildPlan(
        CONTROLLER,
        [*command, "--controller-key", str(data / CONTROLLER_KEY)],
        data / "logs" / f"{CONTROLLER}.log",
        stop_rank=2,
    )


def _console(data: Path, url: str, hosts: Hosts, ports: Ports, brokers: str) -> list[ChildPlan]:
    """The web console, with its database in a folder of its own; none without a port.

    Args:
        brokers: of the only broker group; empty: the configuration names several.
    """
    if CONSOLE not in ports:
        return []
    listen = f"{Address(hosts.console, ports[CONSOLE])}"
    pages = ",".join(f"{Address(hosts.ops, port)}" for name, port in ports.items() if name.endswith("_ops"))
    command = [*module_command(CONSOLE), "--config", url, "--data", str(data / CONSOLE), "--listen", listen]
    command += ["--admin-key", str(data / ADMIN_KEY), "--metrics", pages]
    command += ["--engine", brokers] if brokers else []
    command += ["--controller-key", str(data / CONTROLLER_KEY)]
    return [ChildPlan(CONSOLE, command, data / "logs" / f"{CONSOLE}.log", is_essential=False)]

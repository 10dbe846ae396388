"""What `up` is going to run: values only, nothing is started here."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from common.address import PATH_BYTES_MAX, UNIX
from penstock.up.ports import Ports


@dataclass(frozen=True)
class ChildPlan:
    """One process. With `announces`, `--ready-fd N` is appended to `command` at each start."""

    name: str
    command: list[str]
    log: Path | None  # None: it shares our terminal
    announces: bool = True
    stop_rank: int = 0  # lower ranks are stopped first, and have ended before the next rank is told


@dataclass(frozen=True)
class Plan:
    """Everything on one machine."""

    data: Path
    host: str
    config: str
    cluster_key: Path
    ports: Ports
    children: list[ChildPlan] = field(default_factory=list)
    ready_file: Path | None = None


def module_command(module: str) -> list[str]:
    """`-P`: a folder named `engine` in the user's working directory must not be imported in place of ours."""
    return [sys.executable, "-P", "-m", module]


def make_plan(data: Path, host: str, config: str | None, key: Path, ports: Ports, ready_file: Path | None) -> Plan:
    """The three processes of one machine. Proxies stop before the engine, so that what they took is answered."""
    url = config or (data / "config").as_uri()

    def address(name: str) -> str:
        return f"[{host}]:{ports[name]}" if ":" in host else f"{host}:{ports[name]}"

    def common(name: str) -> list[str]:
        return ["--listen", address(name), "--ops", address(f"{name}_ops"), "--config", url, "--cluster-key", str(key)]

    def proxy(name: str, *more: str) -> ChildPlan:
        snapshot = ["--engine", link, "--snapshot", str(data / f"{name}.snapshot")]
        return ChildPlan(name, [*module_command(name), *common(name), *snapshot, *more], data / "logs" / f"{name}.log")

    engine = [*module_command("engine"), "--data", str(data / "engine"), *common("engine")]
    link, socket_file = address("engine"), str((data / "engine.sock").absolute())
    if len(socket_file.encode()) <= PATH_BYTES_MAX:
        engine += ["--socket-file", socket_file]
        link = UNIX + socket_file
    children = [
        ChildPlan("engine", engine, data / "logs" / "engine.log", stop_rank=1),
        proxy("producer_proxy", "--buffer", str(data / "buffer" / "producer_proxy")),
        proxy("consumer_proxy"),
    ]
    return Plan(data, host, url, key, ports, children, ready_file)

"""The steps of `penstock up`, from an empty directory to a clean stop."""

import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from common.config import open_store
from common.config.errors import StoreUnavailable
from common.operator_proof import machine_key
from common.ops.service_manager import notify
from common.secret_file import ensure_key
from penstock.up import broker_groups, files, ports
from penstock.up.banner import banner, serving_again
from penstock.up.child import Child
from penstock.up.directory import ADMIN_KEY, CLUSTER_KEY, CONTROLLER_KEY, OPS_KEY, REPLICA_KEY, SECRETS_KEY, prepare
from penstock.up.lock import DirectoryLock
from penstock.up.ops_page import is_ready
from penstock.up.plan import ChildPlan, UpPlan, make_plan
from penstock.up.ports import CONSOLE
from penstock.up.settings import with_kafka_files, with_secrets_key, with_settings
from penstock.up.supervisor import Supervisor

_shown: list[str] = []
"""The line of progress on the terminal, if there is one."""
CONSOLE_MODULES = ("flask", "sqlalchemy", "alembic", "argon2", "jsonschema_rs", "waitress")


@dataclass(frozen=True)
class UpOptions:
    """The command line of `penstock up`, checked by click."""

    data: Path
    hosts: ports.Hosts
    ports: str | None = None
    config: str | None = None
    ready_file: Path | None = None
    groups: int | None = None  # None: as many as the directory has, one where it is new
    replicas: int | None = None  # brokers per group; None: as many as the directory has, one where it is new
    look_up: str = "id,key"  # as engines take it
    demo: tuple[str, ...] | None = None  # arguments of `python -m penstock.demo`; None: no demo
    demo_exit: bool = False
    console: bool = True  # start the web console where its extra is installed
    settings: Path | None = None  # penstock.toml, with a table per process
    kafka_files: tuple[Path, ...] = ()  # the bridge's --kafka-files; empty: the default


def run_up(options: UpOptions) -> int:
    """Serve until a stop signal; return the exit code.

    Raises:
        UpError: the reason as one sentence; no process is left running.
    """
    began = time.monotonic()
    data = options.data.absolute()
    prepare(data)
    with DirectoryLock(data) as lock:
        files.remove_stale(data, options.ready_file)
        groups = broker_groups.settle(data, options.groups)
        replicas = broker_groups.settle_replicas(data, groups, options.replicas)
        has_kafka = names_kafka(options.config or (data / "config").as_uri())
        names = ports.names_of(groups, replicas, has_kafka, options.console and has_console())
        chosen = ports.choose(options.ports, options.hosts, lock.noted().get("ports", {}), names)
        key, more = ensure_key(data / CLUSTER_KEY), make_keys(data)
        plan = make_plan(
            data, options.hosts, options.config, key, chosen, options.ready_file, groups,
            ["--look-up", options.look_up, *more], replicas,
        )  # fmt: skip
        plan = with_secrets_key(with_kafka_files(plan, options.kafka_files), root_keys(data, options.config))
        plan = with_settings(plan, options.settings)
        broker_groups.publish(plan)
        lock.note({"pid": os.getpid(), "ports": chosen})
        try:
            return make_supervisor(plan, options, began).run()
        finally:
            files.remove_stale(data, options.ready_file)
            say("Penstock has stopped.")


def make_keys(data: Path) -> list[str]:
    """Make the keys of roles, and that of this machine's proxies; the options of engines with the keys of roles."""
    names = {"--admin-key": ADMIN_KEY, "--replica-key": REPLICA_KEY, "--controller-key": CONTROLLER_KEY}
    files = {option: ensure_key(data / name) for option, name in names.items()}
    ops_key = data / OPS_KEY
    ops_key.touch(mode=0o600)
    ops_key.write_bytes(machine_key(files["--admin-key"].read_bytes(), socket.gethostname()))
    return [part for option, file in files.items() for part in (option, str(file))]


def root_keys(data: Path, config: str | None) -> Path | None:
    """The file of root keys, made once.

    Where the configuration is not this directory's own, other machines' proxies would not have it: an operator's is used.
    """
    path = data / SECRETS_KEY
    if config is None:
        return ensure_key(path)
    return path if path.exists() else None


def has_console() -> bool:
    """Whether the extra of the web console is installed; says so where it is not."""
    missing = [name for name in CONSOLE_MODULES if find_spec(name) is None]
    if missing:
        say(f"console: not started, {missing[0]} is not installed: pip install 'penstock[console]'")
    return not missing


def names_kafka(url: str) -> bool:
    """Whether the configuration names a Kafka cluster now. While its store is away: as if it named none."""
    store = open_store(url)
    try:
        return bool(store.names("kafka", limit=1))
    except StoreUnavailable as error:
        say(f"kafka: no bridge is started, the configuration cannot be read: {error}")
        return False
    finally:
        store.close()


def make_supervisor(plan: UpPlan, options: UpOptions, began: float) -> Supervisor:
    companion = None
    if options.demo is not None:
        command = [sys.executable, "-P", "-m", "penstock.demo", "--data", str(plan.data), *options.demo]
        companion = ChildPlan("demo", command, log=None, announces=False)

    def later() -> ChildPlan | None:
        return plan.later if plan.later is not None and names_kafka(plan.config) else None

    def are_ready(children: list[Child]) -> bool:
        """Whether every process that serves says so on its /readyz."""
        facts = files.describe(plan, children)
        return all(
            is_ready(files.ops_host(facts, each.name), each.facts["ops_port"]) for each in children if each.facts
        )

    return Supervisor(plan, say, announcer(plan, began), companion, options.demo_exit, are_ready, later, show_progress)


def announcer(plan: UpPlan, began: float) -> Callable[[list[Child]], None]:
    """A callback that writes the files each time all processes serve, and prints the banner the first time."""
    announced: list[bool] = []

    def on_serving(children: list[Child]) -> None:
        files.write_all(plan, children)
        seconds = time.monotonic() - began
        console = next((child.facts for child in children if child.name == CONSOLE), {})
        address = console.get("sign_in_link") or console.get("url", "")
        notify("READY=1")
        say(serving_again(children) if announced else banner(files.describe(plan, children), seconds, address))
        announced.append(True)

    return on_serving


def say(line: str) -> None:
    """Print for the operator, in place of a line of progress. A closed terminal does not stop the service."""
    show_progress("")
    with suppress(OSError):
        print(line, flush=True)


def show_progress(text: str) -> None:
    """Show a line on a terminal that the next one replaces; an empty one is shown where another has been."""
    with suppress(OSError):
        if sys.stdout.isatty() and (text or _shown):
            _shown[:] = [text] if text else []
            print(f"\r\033[K{text}", end="", flush=True)

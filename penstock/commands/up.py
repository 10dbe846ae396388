"""`penstock up`: everything on one machine, in the foreground."""

from pathlib import Path

import click

from common.placement import GROUPS_MAX
from common.process_options import SETTINGS_VARIABLE
from penstock.up.broker_groups import REPLICAS_MAX
from penstock.up.errors import UpError
from penstock.up.ports import LOOPBACK, Hosts
from penstock.up.run import UpOptions, run_up
from penstock.up.settings import read_settings

LOOK_UPS = ("id,key", "id", "key", "none")
LANGUAGES = ("auto", "php", "go", "cpp", "java", "node", "python", "rust", "csharp")
AUTO_FILE = ""


@click.command(context_settings={"auto_envvar_prefix": "PENSTOCK_UP"})
@click.option(
    "--settings",
    type=click.Path(path_type=Path),
    envvar=SETTINGS_VARIABLE,
    is_eager=True,
    expose_value=True,
    callback=read_settings,
    metavar="FILE",
    help="Read options that are given neither here nor in the environment from table [up] of FILE, and those of the "
    "processes from their tables (default $PENSTOCK_SETTINGS).",
)
@click.option(
    "--data",
    default="./.penstock",
    envvar="PENSTOCK_DATA",
    show_envvar=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep all data in directory DIR (default ./.penstock).",
)
@click.option(
    "--ports", metavar="auto|BASE", help="Use ports from BASE on, or free ones (default: from 9700 on, else free ones)."
)
@click.option(
    "--groups",
    type=click.IntRange(1, GROUPS_MAX),
    metavar="N",
    help="Run N broker groups with one engine each (default: as many as DIR has; 1 for a new DIR).",
)
@click.option(
    "--replicas",
    type=click.IntRange(1, REPLICAS_MAX),
    metavar="N",
    help="Run N engines per broker group, one master and its slaves (default: as many as DIR has; 1 for a new DIR).",
)
@click.option(
    "--look-up",
    type=click.Choice(LOOK_UPS),
    default=LOOK_UPS[0],
    help="Keep these lookup indexes for messages, 12 bytes per message each, and remove the others (default id,key).",
)
@click.option(
    "--listen-host",
    default=LOOPBACK,
    metavar="HOST",
    help="Let the two proxies listen on this address, for applications (default 127.0.0.1).",
)
@click.option(
    "--engine-host",
    default=LOOPBACK,
    metavar="HOST",
    help="Let engines and a Kafka bridge listen on this address, for proxies and operators' commands of other machines "
    "(default 127.0.0.1).",
)
@click.option(
    "--ops-host",
    default=LOOPBACK,
    metavar="HOST",
    help="Serve the operators' pages, which ask for no password, on this address (default 127.0.0.1).",
)
@click.option(
    "--console-host",
    default=LOOPBACK,
    metavar="HOST",
    help="Serve the web console on this address (default 127.0.0.1).",
)
@click.option(
    "--config",
    metavar="URL",
    help="Use this configuration store: file:///DIR or zookeeper://HOSTS/PATH (default: DIR/config).",
)
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write addresses and pids as JSON to FILE when all processes serve.",
)
@click.option(
    "--demo",
    is_flag=False,
    flag_value=AUTO_FILE,
    metavar="[FILE]",
    help="Send FILE line by line, and check what arrives (default: a text file of this machine).",
)
@click.option(
    "--demo-producer",
    type=click.Choice(LANGUAGES),
    default="auto",
    help="Send with the client of this language (default auto).",
)
@click.option(
    "--demo-consumer",
    type=click.Choice(LANGUAGES),
    default="auto",
    help="Pull with the client of this language (default auto).",
)
@click.option(
    "--demo-lines", type=click.IntRange(min=1), metavar="N", help="Send only the first N lines (default: all)."
)
@click.option(
    "--console/--no-console",
    default=True,
    envvar="PENSTOCK_CONSOLE",
    show_envvar=True,
    help="Start the web console where its extra is installed (default: start it).",
)
@click.option(
    "--kafka-files",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="DIR",
    help="Directory below which the password and certificate files of Kafka clusters must be; repeatable (default: the "
    "directory that contains --data, and /etc/penstock).",
)
@click.option("--demo-exit", is_flag=True, help="Stop after the demo, with exit code 0 if it was successful, else 1.")
def command(
    settings: Path | None,
    data: Path,
    ports: str | None,
    groups: int | None,
    replicas: int | None,
    look_up: str,
    config: str | None,
    ready_file: Path | None,
    demo: str | None,
    demo_producer: str,
    demo_consumer: str,
    demo_lines: int | None,
    console: bool,
    kafka_files: tuple[Path, ...],
    demo_exit: bool,
    **hosts: str,
) -> None:
    """Start one engine, one producer proxy and one consumer proxy, and keep them running.

    With --replicas each engine has slaves, of which one takes over when it dies.

    With --groups several engines share the topics' queues. Their number is fixed when the data directory is created.

    A process that ends is restarted on the same port. Ctrl-C stops all of them, the proxies first. A second `up` on the
    same data directory fails with exit code 4.
    """
    wanted = None if demo is None else demo_arguments(demo, demo_producer, demo_consumer, demo_lines)
    ready, leaves = ready_file.absolute() if ready_file else None, demo_exit and wanted is not None
    on = Hosts(*(hosts[f"{name}_host"] for name in ("listen", "engine", "ops", "console")))
    options = UpOptions(
        data, on, ports, config, ready, groups, replicas, look_up, wanted, leaves, console, settings, kafka_files,
    )  # fmt: skip
    try:
        code = run_up(options)
    except UpError as fault:
        click.echo(f"penstock up: {fault}", err=True)
        code = fault.exit_code
    raise SystemExit(code)


def demo_arguments(file: str, producer: str, consumer: str, lines: int | None) -> tuple[str, ...]:
    chosen = [f"--producer={producer}", f"--consumer={consumer}"]
    if file != AUTO_FILE:
        chosen.append(f"--file={Path(file).absolute()}")
    if lines:
        chosen.append(f"--lines={lines}")
    return tuple(chosen)

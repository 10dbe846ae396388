"""`penstock up`: everything on one machine, in the foreground."""

from pathlib import Path

import click

from common.placement import GROUPS_MAX
from penstock.up.errors import UpError
from penstock.up.run import UpOptions, run_up

LOOK_UPS = ("id,key", "id", "key", "none")
LANGUAGES = ("auto", "php", "go", "cpp", "python")
AUTO_FILE = ""


@click.command()
@click.option(
    "--data",
    default="./.penstock",
    envvar="PENSTOCK_DATA",
    show_envvar=True,
    type=click.Path(path_type=Path),
    show_default=True,
    help="Where all is kept.",
)
@click.option("--ports", metavar="auto|BASE", help="BASE and those behind it, or free ones. Default: 9700 when free.")
@click.option(
    "--groups",
    type=click.IntRange(1, GROUPS_MAX),
    metavar="N",
    help="Broker groups, an engine each. Default: as many as DIR has, 1 where it is new.",
)
@click.option(
    "--look-up",
    type=click.Choice(LOOK_UPS),
    default=LOOK_UPS[0],
    show_default=True,
    help="Files by which engines find messages: 12 bytes a message each. Those of what is left out are removed.",
)
@click.option("--listen-host", default="127.0.0.1", show_default=True, help="Address of all listeners.")
@click.option(
    "--config", metavar="URL", help="Configuration store: file:///DIR or zookeeper://HOSTS/PATH. Default: DIR/config."
)
@click.option(
    "--ready-file", type=click.Path(path_type=Path), help="JSON with addresses and pids, written when all serve."
)
@click.option(
    "--demo", is_flag=False, flag_value=AUTO_FILE, metavar="[FILE]", help="Send a file, line by line, and check it."
)
@click.option("--demo-producer", type=click.Choice(LANGUAGES), default="auto", show_default=True)
@click.option("--demo-consumer", type=click.Choice(LANGUAGES), default="auto", show_default=True)
@click.option("--demo-lines", type=click.IntRange(min=1), help="Only the first lines of the file.")
@click.option("--demo-exit", is_flag=True, help="End after the demo's verdict: exit code 0 when all was well, else 1.")
def command(
    data: Path,
    ports: str | None,
    groups: int | None,
    look_up: str,
    listen_host: str,
    config: str | None,
    ready_file: Path | None,
    demo: str | None,
    demo_producer: str,
    demo_consumer: str,
    demo_lines: int | None,
    demo_exit: bool,
) -> None:
    """Start one engine, one producer proxy and one consumer proxy, and keep them running.

    With --groups several engines share the topics' queues. Their number is settled when a data directory is new.

    A process that dies is started again on the same port. Ctrl-C stops all of them, the proxies first. A second `up` on
    the same data directory refuses with exit code 4.
    """
    wanted = None if demo is None else demo_arguments(demo, demo_producer, demo_consumer, demo_lines)
    ready = ready_file.absolute() if ready_file else None
    options = UpOptions(
        data, listen_host, ports, config, ready, groups, look_up, wanted, demo_exit and wanted is not None
    )
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

"""`penstock top`: rates, processes and lag of a deployment, live."""

import sys
import time

import click

from common.errors import PenstockError
from penstock.commands.cluster_status import key_or_reason, places_of
from penstock.overview.frame import FrameFigures, frame
from penstock.overview.observing import Observation, ProcessPlace, observe
from penstock.overview.screen import FullScreen
from penstock.terminal import figures
from penstock.terminal.exits import USAGE, Command, CommandError
from penstock.terminal.instance import Instance, instance_options, open_config
from penstock.terminal.times import DurationType

FIGURES = FrameFigures(figures.size, figures.rate, figures.duration)
ONCE_SIZE = (80, 24)
ONCE_MS = 1_000


@click.command("top", cls=Command)
@click.option(
    "--every",
    "every_ms",
    type=DurationType(500, 60_000),
    default=2_000,
    metavar="TIME",
    help="Look this often (default 2s).",
)
@click.option("--once", is_flag=True, help="Print one screen of 80 columns and 24 lines, and end.")
@instance_options("engine")
def command(instance: Instance, every_ms: int, once: bool) -> None:
    """Show messages per second, processes and the lag of groups, live; q ends it.

    Works for an `up` and, with --config or a context, for a deployment on several machines.

    \b
    penstock top
    penstock top --once
    """
    if once:
        _once(instance)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError("not a terminal: use --once", USAGE)
    watch = DeploymentWatch(instance)
    watch.look()  # an error is one line, and not a screen
    try:
        with FullScreen() as screen:
            _run(watch, screen, every_ms / 1000)
    except KeyboardInterrupt:
        pass


def _once(instance: Instance) -> None:
    watch = DeploymentWatch(instance)
    watch.look()
    time.sleep(ONCE_MS / 1000)
    watch.look()
    for line in watch.lines(*ONCE_SIZE):
        click.echo(line)


def _run(watch: "DeploymentWatch", screen: FullScreen, every_s: float) -> None:
    """Look every `every_s`, and draw after each look, each key and each resize."""
    due = time.monotonic()
    while True:
        if time.monotonic() >= due:
            watch.look_again()
            due = time.monotonic() + every_s
        screen.draw(watch.lines(*screen.size))
        if not screen.wait(due - time.monotonic()):
            return


class DeploymentWatch:
    """The last two observations, from which a screen is made."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._key, self._reason = key_or_reason(instance)
        self._places: list[ProcessPlace] = []
        self._before: Observation | None = None
        self._seen: Observation | None = None
        self._fault = ""
        context = instance.context
        self._title = f"context {context.name}" if context is not None else instance.config()

    def look(self) -> None:
        """Ask all processes. Raises CommandError or a ConfigError while the configuration is away."""
        with open_config(self._instance) as store:
            self._places = places_of(store)
        self._before, self._seen = self._seen, observe(self._places, self._key)

    def look_again(self) -> None:
        """As `look`, but an error is shown on the screen, over the figures of before."""
        try:
            self.look()
            self._fault = ""
        except (CommandError, PenstockError, OSError) as error:
            self._fault = " ".join(str(error).split())

    def lines(self, width: int, height: int) -> list[str]:
        if self._seen is None:
            return []
        fault = self._fault or (self._reason and f"engines are not asked: {self._reason}")
        title = f"{self._title}  {fault}" if fault else self._title
        return frame(title, self._places, self._before, self._seen, FIGURES, width, height, time.time())

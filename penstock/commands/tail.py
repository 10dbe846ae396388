"""`penstock message tail`: the newest messages of a topic, and those that come. No group is needed, and none moves."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import click

from common.admin import families
from common.contract import Code
from common.errors import PenstockError
from common.filter.expression import read_filter
from common.filter.native import Filter
from engine.client import lookup
from engine.client.admin import AdminError
from engine.client.lookup import Stored
from engine.link.read import ReadPosition
from penstock.terminal import completing
from penstock.terminal.engines import joined
from penstock.terminal.exits import USAGE, Command, CommandError
from penstock.terminal.instance import Instance, administration, instance_options
from penstock.terminal.interrupts import noted_interrupts
from penstock.terminal.message_lines import Line, line_of, of_stored, output_options
from penstock.terminal.pipes import silence_stdout, write_out
from penstock.terminal.times import TimeType

LAST = 10
LOOK_S = 0.3
ASK_TIMEOUT_S = 30.0

Passes = Callable[[bytes], bool]


@click.command(cls=Command)
@click.argument("topic", shell_complete=completing.topics)
@click.option("--last", type=click.IntRange(0, 100_000), metavar="N", help=f"Begin with the last N (default {LAST}).")
@click.option(
    "--from", "from_ms", type=TimeType(), help="Begin with those stored since TIME: an age, as 1h, or a date."
)
@click.option("--to", "to_ms", type=TimeType(), help="With --from: show only those stored before TIME.")
@click.option("--follow", "-f", is_flag=True, help="Go on with those that come, until Ctrl-C.")
@click.option("--queue", "-q", type=click.IntRange(min=0), metavar="N", help="Show only messages of queue N.")
@click.option("--filter", "filter_text", metavar="EXPR", help="Show only messages that pass: docs/filters.md.")
@click.option("--max", "count_max", type=click.IntRange(min=1), metavar="N", help="Stop after N messages.")
@output_options
@instance_options("engine")
def tail(
    instance: Instance, topic: str, last: int | None, from_ms: int | None, to_ms: int | None, follow: bool,
    queue: int | None, filter_text: str | None, count_max: int | None, output: str, format_: Line | None,
) -> None:  # fmt: skip
    """Print the newest messages of TOPIC in the order of their times, and with -f those that come.

    Nothing is leased, no group's position moves, and delayed messages are not shown before they are due. With --filter,
    the last N are those that pass among the last N of each queue.

    \b
    penstock message tail orders --last 100
    penstock message tail orders -f --from 1h --filter "country = 'IT'"
    penstock message tail orders --from 2h --to 90m
    penstock message tail orders -f --format '%d %k %s'
    """
    if last is not None and from_ms is not None:
        raise click.UsageError("--last and --from: use one of the two")
    if to_ms is not None and (from_ms is None or follow):
        raise click.UsageError("--to: use it with --from, and without --follow")
    if to_ms is not None and from_ms is not None and to_ms <= from_ms:
        raise click.UsageError("--to: use a time after that of --from")
    passes = Filter(read_filter(filter_text).formula).passes if filter_text is not None else None
    line = line_of(output, format_)
    with joined(instance, ASK_TIMEOUT_S) as link:
        watch = TopicWatch(link, topic, queue, passes, lambda: is_defined(instance, topic))
        messages = watch.since(from_ms, to_ms) if from_ms is not None else watch.last(LAST if last is None else last)
        try:
            with noted_interrupts() as is_interrupted:
                left = _print(messages, line, count_max)
                while follow and left != 0 and not is_interrupted():
                    left = _print(watch.fresh(), line, left)
                    if left != 0:
                        time.sleep(LOOK_S)
        except KeyboardInterrupt:
            if not follow:
                raise


def _print(messages: Iterable[Stored], line: Line, left: int | None) -> int | None:
    """How many may still be printed; None: any number."""
    for each in messages:
        if left == 0 or not _write(line(of_stored(each))):
            return 0
        left = None if left is None else left - 1
    return left if _write(b"") else 0


def _write(text: bytes) -> bool:
    """Whether standard output still has a reader. An empty text writes out what is buffered."""
    try:
        write_out(text, is_last=not text)
    except BrokenPipeError:
        silence_stdout()
        return False
    return True


def is_defined(instance: Instance, topic: str) -> bool:
    """Whether the topic or a family of it is in the configuration; not where that cannot be read from here."""
    try:
        with administration(instance) as admin:
            return bool(admin.store.taken("topic", [topic])) or families.defining(admin, topic) is not None
    except (PenstockError, CommandError):
        return False


class TopicWatch:
    """The places of a topic's queues up to which messages were shown.

    Args:
        is_defined: asked for a topic that the engine does not know: whether the configuration defines it.
    """

    def __init__(
        self, link: lookup.Link, topic: str, queue: int | None, passes: Passes | None, is_defined: Callable[[], bool]
    ) -> None:
        self._link, self._topic, self._queue = link, topic, queue
        self._passes, self._is_defined = passes, is_defined
        self._next: dict[int, int] = {}

    def _bounds(self) -> dict[int, tuple[int, int]]:
        try:
            found = lookup.bounds(self._link, self._topic)
        except AdminError as error:
            if error.code != Code.UNKNOWN_TOPIC or not (self._next or self._is_defined()):
                raise
            return {}  # the engine knows it from its first message on
        if self._queue is None:
            return found
        if self._queue not in found:
            raise CommandError(f"topic {self._topic}: no queue {self._queue}: it has 0 to {len(found) - 1}", USAGE)
        return {self._queue: found[self._queue]}

    def last(self, count: int) -> list[Stored]:
        """The last messages of the topic, oldest first."""
        bounds = self._bounds()
        self._next = {queue: end for queue, (_, end) in bounds.items()}
        starts = [
            ReadPosition(self._topic, queue, offset=max(first, end - count))
            for queue, (first, end) in bounds.items()
            if first < end and count
        ]
        return list(deque(self._read(starts), maxlen=count))

    def since(self, from_ms: int, to_ms: int | None = None) -> Iterator[Stored]:
        """All messages that were stored at a time or later, and before `to_ms`."""
        bounds = self._bounds()
        self._next = {queue: end for queue, (_, end) in bounds.items()}
        found = self._read([ReadPosition(self._topic, queue, at_time_ms=from_ms) for queue in bounds])
        # Later ones do not end it: times may go back once, when a clock that was ahead has been set right.
        return found if to_ms is None else (each for each in found if each.stored_at_ms < to_ms)

    def fresh(self) -> Iterator[Stored]:
        """Those that have come since the last look."""
        bounds = self._bounds()
        starts = [
            ReadPosition(self._topic, queue, offset=max(first, self._next.get(queue, first)))
            for queue, (first, end) in bounds.items()
            if self._next.get(queue, first) < end
        ]
        return self._read(starts)

    def _read(self, starts: list[ReadPosition]) -> Iterator[Stored]:
        for each in lookup.stream(self._link, starts):
            self._next[each.queue] = max(self._next.get(each.queue, 0), each.offset + 1)
            if self._passes is None or self._passes(each.message):
                yield each

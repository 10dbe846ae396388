"""`penstock pull`: pull messages to the shell."""

from collections.abc import Callable
from pathlib import Path

import click

from common.contract import Ack, Delivery, PullRequest, PullResponse, Verdict
from common.proxy_link import ProxyLink
from penstock.terminal import completing
from penstock.terminal.exits import Command, CommandError, code_for_contract
from penstock.terminal.identity import Identity, choose, identity_options
from penstock.terminal.instance import Instance, instance_options
from penstock.terminal.interrupts import noted_interrupts
from penstock.terminal.message_lines import Line, line_of, of_delivery, output_options
from penstock.terminal.pipes import OutputFault, check_stdout, write_out
from penstock.terminal.times import DurationType

PULL_MAX = 500
PULL_BYTES_MAX = 8 << 20
FOLLOW_WAIT_MS = 10_000


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[TOPIC]...", shell_complete=completing.topics)
@click.option(
    "--group",
    "-g",
    required=True,
    metavar="GROUP",
    shell_complete=completing.groups,
    help="Pull as this group; its first pull creates it.",
)
@click.option(
    "--topic",
    "-t",
    "topics",
    multiple=True,
    metavar="TOPIC",
    shell_complete=completing.topics,
    help="Pull from this topic; repeatable (default: the topics of the group's definition).",
)
@click.option(
    "--max", "count_max", type=click.IntRange(min=1), metavar="N", help="Stop after N messages (default: no limit)."
)
@click.option(
    "--wait",
    "wait_ms",
    type=DurationType(0, 30_000, bare="ms"),
    default=1000,
    metavar="TIME",
    help="Wait this long for the first message, as 5s; a bare number is in ms (default 1s).",
)
@click.option("--follow", "-f", is_flag=True, help="Continue until Ctrl-C.")
@click.option("--ack/--no-ack", default=True, help="Acknowledge printed messages (default), or have them redelivered.")
@output_options
@identity_options
@instance_options("consumer_proxy")
def pull(
    instance: Instance,
    words: tuple[str, ...],
    group: str,
    topics: tuple[str, ...],
    count_max: int | None,
    wait_ms: int,
    follow: bool,
    ack: bool,
    output: str,
    format_: Line | None,
    app: str | None,
    key_id: str | None,
    secret_file: Path | None,
) -> None:
    """Pull messages as a group and print them, one per line, until none is left.

    A topic that gives nothing, because it is not defined, is named on stderr; the others are served.

    \b
    penstock pull orders --group readers
    penstock pull --group readers --topic orders --topic payments --follow -o json
    penstock pull orders --group readers --format '%o %k %s'
    penstock pull orders --group peek --max 10 --no-ack
    """
    check_stdout()
    identity = choose(instance, app, key_id, secret_file)
    with ProxyLink("pull", instance.address("consumer_proxy"), instance.tls_ca) as link:
        puller = Puller(link, identity, group, [*topics, *words] or None, ack)
        try:
            with noted_interrupts() as is_interrupted:
                puller.run(
                    count_max, FOLLOW_WAIT_MS if follow else wait_ms, follow, line_of(output, format_), is_interrupted
                )
        except KeyboardInterrupt:
            if not follow:
                raise


class Puller:
    """Pulls and prints.

    Printed and flushed messages are acknowledged with the next pull; a last, empty pull does the rest. What cannot be
    printed is released, so that it is redelivered at once.
    """

    def __init__(self, link: ProxyLink, identity: Identity, group: str, topics: list[str] | None, ack: bool):
        self._link = link
        self._identity = identity
        self._group = group
        self._topics = topics
        self._ack = ack
        self._acks: list[Ack] = []
        self._unserved: dict[str, str] = {}  # topics of the last pull that give nothing, with the reason

    def run(
        self, count_max: int | None, wait_ms: int, follow: bool, line: Line,
        is_interrupted: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """Pull until there is no more, or `is_interrupted()`. Acknowledges what was printed also when it raises.

        Raises OutputFault, and BrokenPipeError for a reader that has gone.
        """
        left = count_max
        try:
            while (left is None or left > 0) and not is_interrupted():
                response = self._pull(min(PULL_MAX, left or PULL_MAX), wait_ms)
                self._tell_topics({each.topic: each.error or "it gives nothing" for each in response.topics or ()})
                deliveries = response.deliveries
                self._print(deliveries, line)
                left = None if left is None else left - len(deliveries)
                if not deliveries and not follow:
                    break
                wait_ms = wait_ms if follow else 0
        finally:
            if self._acks:
                self._pull(0, 0)

    def _pull(self, count: int, wait_ms: int) -> PullResponse:
        acks, self._acks = self._acks, []  # they are not acknowledged a second time, even if this call fails
        request = PullRequest(
            self._identity.credential(), self._group, self._topics, count, PULL_BYTES_MAX, wait_ms, acks
        )
        hello = PullRequest(self._identity.credential(), self._group, self._topics, 0)
        response = self._link.call(request, wait_ms / 1000 + 5.0, empty=hello)
        if response.code >= 100:
            raise CommandError(response.error or f"code {response.code}", code_for_contract(response.code))
        refused = [result for result in response.ack_results if result.code >= 100]
        if refused:
            click.echo(
                f"warning: {len(refused)} acknowledgements rejected: {refused[0].error or refused[0].code}", err=True
            )
        return response

    def _tell_topics(self, unserved: dict[str, str]) -> None:
        """Show on stderr which topics give nothing, and which are served again; once per change."""
        before, self._unserved = self._unserved, unserved
        for topic, reason in unserved.items():
            if before.get(topic) != reason:
                click.echo(f"warning: topic {topic} gives nothing: {reason}", err=True)
        for topic in before.keys() - unserved.keys():
            click.echo(f"topic {topic} is served again", err=True)

    def _print(self, deliveries: list[Delivery], line: Line) -> None:
        try:
            for delivery in deliveries:
                write_out(line(of_delivery(delivery)), is_last=delivery is deliveries[-1])
        except (OutputFault, BrokenPipeError):
            self._acks = [Ack(delivery.receipt, Verdict.RELEASE) for delivery in deliveries]
            raise
        if self._ack:
            self._acks = [Ack(delivery.receipt) for delivery in deliveries]


command = pull

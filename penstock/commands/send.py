"""`penstock send`: send messages from the shell."""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from common.contract import Code, Durability, Message, SendRequest, SendResult
from common.proxy_link import ProxyLink
from penstock.commands.send_source import NUMBER, MessagePattern, SendPace, batches, of_lines, one_body, repeated
from penstock.terminal import completing, name_hints
from penstock.terminal.exits import USAGE, Command, CommandError, code_for_contract
from penstock.terminal.identity import Identity, choose, identity_options
from penstock.terminal.instance import Instance, instance_options
from penstock.terminal.output import output_option, table
from penstock.terminal.pipes import silence_stdout
from penstock.terminal.times import DurationType

STORED = 100  # codes below mean that the message is stored
FOR_NOW = range(200, 300)  # not stored, but the same message may be accepted later
BACK_OFF_S = 0.2


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[TOPIC] [BODY]", shell_complete=completing.topics)
@click.option(
    "--topic",
    "-t",
    metavar="TOPIC",
    shell_complete=completing.topics,
    help="Send to this topic (default: the first argument).",
)
@click.option("--key", metavar="KEY", help="Send with this key; equal keys go to one queue.")
@click.option("--tag", metavar="TAG", help="Send with this tag, for filters.")
@click.option(
    "--property", "properties", multiple=True, metavar="NAME=VALUE", help="Send with this property; repeatable."
)
@click.option("--lines", is_flag=True, help="Send each line of stdin as a message.")
@click.option(
    "--key-sep", metavar="SEP", help="With --lines: the key is what comes before SEP in a line, as in kcat -K."
)
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N", help="Send N messages; {n} in BODY, KEY and ID counts."
)
@click.option(
    "--rate",
    type=click.FloatRange(0, 1e7, min_open=True),
    metavar="R",
    help="Send at most R messages per second (default: as fast as they are stored).",
)
@click.option("--id", metavar="ID", help="Send with this id: a second send with it is a duplicate.")
@click.option(
    "--delay", "delay_ms", type=DurationType(1), metavar="TIME", help="Deliver not before TIME, as 10m, is over."
)
@click.option("--empty", is_flag=True, help="Send a message without a body; without this, an empty stdin is refused.")
@click.option(
    "--durability",
    type=click.Choice([name.lower() for name in Durability._NAMES_TO_VALUES if name != "TOPIC_DEFAULT"]),
    help="Ask for this durability (default: that of the topic).",
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=DurationType(100, 600_000, bare="s"),
    default=5_000,
    metavar="TIME",
    help="Limit each call, and the retries of messages that may be accepted later; a bare number is in s (default 5s).",
)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing when all messages are stored.")
@identity_options
@output_option(stream=True)
@instance_options("producer_proxy")
def send(
    instance: Instance, words: tuple[str, ...], topic: str | None, key: str | None, tag: str | None,
    properties: tuple[str, ...], lines: bool, key_sep: str | None, count: int | None, rate: float | None,
    id: str | None, delay_ms: int | None, empty: bool, durability: str | None, timeout_ms: int, quiet: bool,
    app: str | None, key_id: str | None, secret_file: Path | None, output: str,
) -> None:  # fmt: skip
    """Send BODY, or the content of stdin, to a topic. The exit code is 0 only if every message is stored.

    \b
    penstock send orders 'first message'
    penstock send --topic orders --key customer-7 --property type=new < order.json
    penstock send orders 'order {n}' --count 1000 --rate 50 --key '{n}'
    penstock send orders 'pay now' --delay 10m --id reminder-17
    tail -f access.log | penstock send --topic log --lines -q
    printf 'k1:one\\nk2:two\\n' | penstock send orders --lines --key-sep :
    PENSTOCK_SECRET=… penstock send --app shop --key-id k-0123456789 --topic orders hello
    """
    rest = list(words)
    name = topic or (rest.pop(0) if rest else "")
    if not name:
        raise click.UsageError("no topic is given: use penstock send TOPIC [BODY]")
    pattern = MessagePattern(name, key, tag, parse_properties(properties) or None, id, delay_ms)
    pieces = _what(pattern, rest, lines, key_sep, count, empty)
    pace = SendPace(rate)
    identity = choose(instance, app, key_id, secret_file)
    shown = 0
    with ProxyLink("send", instance.address("producer_proxy"), instance.tls_ca) as link:
        for messages in batches(pieces, pace.per_call):
            pace.wait(len(messages))
            results = _send_until(link, identity, messages, durability, timeout_ms / 1000)
            if not quiet:
                quiet = not _show([result for result in results if result.code < STORED], output, header=not shown)
                shown += len(results)
            _check(results, lambda: name_hints.of_topic(instance, name))


def _what(
    pattern: MessagePattern, rest: list[str], lines: bool, separator: str | None, count: int | None, empty: bool
) -> Iterable[list[Message]]:
    """The messages, as they become available."""
    if separator == "" or (separator and not lines):
        raise click.UsageError("--key-sep divides the lines of --lines: use both, and at least one character")
    if not lines:
        many = count or 1
        if pattern.id is not None and NUMBER not in pattern.id and many > 1:
            raise click.UsageError(
                f"--id with --count: all but the first would be duplicates: write {NUMBER} in the id"
            )
        body = one_body(rest, empty)
        return repeated(pattern, body, many) if count else [[pattern.made(body, 1)]]
    if rest:
        raise click.UsageError("--lines reads stdin: leave out BODY")
    if count or empty or (pattern.id is not None and NUMBER not in pattern.id):
        raise click.UsageError(f"--lines goes without --count and --empty, and with an --id that has {NUMBER}")
    return of_lines(pattern, separator)


def parse_properties(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise CommandError(f"--property {pair!r}: not a property: use NAME=VALUE", USAGE)
        found[name] = value
    return found


def _send_until(
    link: ProxyLink, identity: Identity, batch: list[Message], durability: str | None, timeout_s: float
) -> list[SendResult]:
    """A result per message.

    Messages that may be accepted later (broker unavailable, over a limit) are retried until the timeout.
    """
    end = time.monotonic() + timeout_s
    results = _send(link, identity, batch, durability, timeout_s)
    while again := [index for index, result in enumerate(results) if result.code in FOR_NOW]:
        wait_s = max(results[index].retry_after_ms or 0 for index in again) / 1000 or BACK_OFF_S
        left_s = end - time.monotonic() - wait_s
        if left_s <= 0:
            break
        time.sleep(wait_s)
        fresh = _send(link, identity, [batch[index] for index in again], durability, left_s)
        for index, result in zip(again, fresh, strict=True):
            results[index] = result
    return results


def _send(
    link: ProxyLink, identity: Identity, batch: list[Message], durability: str | None, timeout_s: float
) -> list[SendResult]:
    asked = Durability._NAMES_TO_VALUES[durability.upper()] if durability else None
    credential = identity.credential()
    request = SendRequest(credential, batch, int(timeout_s * 1000), asked)
    return link.call(request, timeout_s + 1.0, empty=SendRequest(credential, [])).results


def _check(results: list[SendResult], hint: Callable[[], str] = str) -> None:
    bad = [result for result in results if result.code >= STORED]
    if bad:
        count = f"{len(bad)} of {len(results)} messages not stored: " if len(results) > 1 else ""
        more = hint() if bad[0].code == Code.UNKNOWN_TOPIC else ""
        raise CommandError(f"{count}{bad[0].error or f'code {bad[0].code}'}{more}", code_for_contract(bad[0].code))


def _show(results: list[SendResult], output: str, header: bool) -> bool:
    """One line per message; in JSON too, because a stream has no end. Returns whether there is still a reader.

    Messages are sent on without one: the exit code says that all are stored.
    """
    rows = [{"code": each.code, "id": each.id, "queue": each.queue, "offset": each.offset} for each in results]
    if output == "json":
        lines = [json.dumps(row) for row in rows]
    else:
        lines = [] if not rows else table(rows, ("id", "queue", "offset"))[0 if header else 1 :]
    try:
        for line in lines:
            click.echo(line)
    except BrokenPipeError:
        silence_stdout()
        return False
    return True


command = send

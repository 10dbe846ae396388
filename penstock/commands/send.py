"""`penstock send`: send messages from the shell."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from common.contract import Code, Durability, Message, SendRequest, SendResult
from common.proxy_link import ProxyLink
from penstock.commands import completing, name_hints
from penstock.commands.exits import USAGE, Command, CommandError, code_for_contract
from penstock.commands.identity import Identity, choose, identity_options
from penstock.commands.instance import Instance, instance_options
from penstock.commands.output import output_option, table

MESSAGES_MAX = 500
CALL_BYTES_MAX = 8 << 20
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
    "--durability",
    type=click.Choice([name.lower() for name in Durability._NAMES_TO_VALUES if name != "TOPIC_DEFAULT"]),
    help="Ask for this durability (default: that of the topic).",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 600),
    default=5.0,
    metavar="SECONDS",
    help="Limit each call, and the retries of messages that may be accepted later (default 5).",
)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing when all messages are stored.")
@identity_options
@output_option
@instance_options("producer_proxy")
def send(
    instance: Instance,
    words: tuple[str, ...],
    topic: str | None,
    key: str | None,
    tag: str | None,
    properties: tuple[str, ...],
    lines: bool,
    durability: str | None,
    timeout: float,
    quiet: bool,
    app: str | None,
    key_id: str | None,
    secret_file: Path | None,
    output: str,
) -> None:
    """Send BODY, or the content of stdin, to a topic. The exit code is 0 only if every message is stored.

    \b
    penstock send orders 'first message'
    penstock send --topic orders --key customer-7 --property type=new < order.json
    tail -f access.log | penstock send --topic log --lines -q
    PENSTOCK_SECRET=… penstock send --app shop --key-id k-0123456789 --topic orders hello
    """
    topic, pieces = _what(words, topic, lines)
    common = {"topic": topic, "key": key, "tag": tag, "properties": _properties(properties) or None}
    identity = choose(instance, app, key_id, secret_file)
    shown = 0
    with ProxyLink("send", instance.address("producer_proxy"), instance.tls_ca) as link:
        for bodies in _batches(pieces):
            results = _send_until(
                link, identity, [Message(body=body, **common) for body in bodies], durability, timeout
            )
            if not quiet:
                _show([result for result in results if result.code < STORED], output, header=not shown)
                shown += len(results)
            _check(results, lambda: name_hints.of_topic(instance, str(topic)))


def _what(words: tuple[str, ...], topic: str | None, lines: bool) -> tuple[str, Iterable[list[bytes]]]:
    """The topic, and the bodies as they become available."""
    rest = list(words)
    if topic is None:
        if not rest:
            raise click.UsageError("no topic is given: use penstock send TOPIC [BODY]")
        topic = rest.pop(0)
    if lines:
        if rest:
            raise click.UsageError("--lines reads stdin: leave out BODY")
        return topic, _available_lines()
    if len(rest) > 1:
        raise click.UsageError("more than one BODY is given: quote a body with spaces")
    return topic, [[rest[0].encode("utf-8", "surrogateescape") if rest else sys.stdin.buffer.read()]]


def _available_lines() -> Iterator[list[bytes]]:
    """Whole lines of stdin, as many as are available: lines of a slow writer do not wait for a full batch."""
    stdin: Any = sys.stdin.buffer  # a BufferedReader, whose type leaves read1 out
    begun: list[bytes] = []  # parts of a line that has no end yet
    while chunk := stdin.read1(1 << 20):
        *whole, last = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join([*begun, whole[0]])
            begun = []
            yield [line.removesuffix(b"\r") for line in whole]
        begun.append(last)
    if last := b"".join(begun):
        yield [last]


def _properties(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise CommandError(f"--property {pair!r}: not a property: use NAME=VALUE", USAGE)
        found[name] = value
    return found


def _batches(pieces: Iterable[list[bytes]]) -> Iterator[list[bytes]]:
    """Calls of at most MESSAGES_MAX messages and CALL_BYTES_MAX bytes; a larger message is a call of its own."""
    for bodies in pieces:
        batch: list[bytes] = []
        size = 0
        for body in bodies:
            if batch and (len(batch) == MESSAGES_MAX or size + len(body) > CALL_BYTES_MAX):
                yield batch
                batch, size = [], 0
            batch.append(body)
            size += len(body)
        if batch:
            yield batch


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


def _show(results: list[SendResult], output: str, header: bool) -> None:
    """One line per message; in JSON too, because a stream has no end."""
    rows = [{"code": each.code, "id": each.id, "queue": each.queue, "offset": each.offset} for each in results]
    if output == "json":
        lines = [json.dumps(row) for row in rows]
    else:
        lines = [] if not rows else table(rows, ("id", "queue", "offset"))[0 if header else 1 :]
    for line in lines:
        click.echo(line)


command = send

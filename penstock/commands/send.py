"""`penstock send`: messages from the shell."""

import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from common.contract import Durability, Message, SendRequest, SendResult
from penstock.commands.exits import USAGE, Command, CommandError, code_for_contract
from penstock.commands.identity import Identity, choose, identity_options
from penstock.commands.instance import Instance, instance_options
from penstock.commands.output import output_option, show_rows
from penstock.commands.proxy_link import ProxyLink

MESSAGES_MAX = 500
CALL_BYTES_MAX = 8 << 20
STORED = 100  # codes below say that the message is kept


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[TOPIC] [BODY]")
@click.option("--topic", "-t", help="The topic; without it the first argument is the topic.")
@click.option("--key", help="Same key, same queue.")
@click.option("--tag", help="One word for filters.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="Repeatable.")
@click.option("--lines", is_flag=True, help="Each line of stdin is a message.")
@click.option(
    "--durability", type=click.Choice([name.lower() for name in Durability._NAMES_TO_VALUES if name != "TOPIC_DEFAULT"])
)
@click.option(
    "--timeout", type=click.FloatRange(0.1, 600), default=5.0, show_default=True, help="Seconds for each call."
)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing when all went well.")
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
    """Send BODY, or what stdin holds, to a topic. Ends with code 0 only if every message is stored.

    \b
    penstock send orders 'first message'
    penstock send --topic orders --key customer-7 --property type=new < order.json
    tail -f access.log | penstock send --topic log --lines -q
    PENSTOCK_SECRET=… penstock send --app shop --key-id k-0123456789 --topic orders hello
    """
    topic, bodies = _what(words, topic, lines)
    common = {"topic": topic, "key": key, "tag": tag, "properties": _properties(properties) or None}
    messages = (Message(body=body, **common) for body in bodies)
    identity = choose(instance, app, key_id, secret_file)
    with ProxyLink("send", instance.address("producer_proxy")) as link:
        for batch in _batches(messages, eager=lines and sys.stdin.isatty()):
            results = _send(link, identity, batch, durability, timeout)
            _check(results)
            if not quiet:
                show_rows([_row(result) for result in results], ("id", "queue", "offset"), output)


def _what(words: tuple[str, ...], topic: str | None, lines: bool) -> tuple[str, Iterable[bytes]]:
    rest = list(words)
    if topic is None:
        if not rest:
            raise click.UsageError("say the topic: penstock send TOPIC [BODY]")
        topic = rest.pop(0)
    if lines:
        if rest:
            raise click.UsageError("--lines reads stdin: give no BODY")
        return topic, (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
    if len(rest) > 1:
        raise click.UsageError("one BODY only: quote it if it has spaces")
    return topic, [rest[0].encode("utf-8", "surrogateescape") if rest else sys.stdin.buffer.read()]


def _properties(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise CommandError(f"--property {pair!r}: must be NAME=VALUE", USAGE)
        found[name] = value
    return found


def _batches(messages: Iterator[Message], eager: bool) -> Iterator[list[Message]]:
    """Calls of at most MESSAGES_MAX messages and about CALL_BYTES_MAX bytes; `eager`: a person types, one each."""
    batch: list[Message] = []
    size = 0
    for message in messages:
        if batch and (eager or len(batch) == MESSAGES_MAX or size + len(message.body) > CALL_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += len(message.body)
    if batch:
        yield batch


def _send(
    link: ProxyLink, identity: Identity, batch: list[Message], durability: str | None, timeout_s: float
) -> list[SendResult]:
    asked = Durability._NAMES_TO_VALUES[durability.upper()] if durability else None
    credential = identity.credential()
    request = SendRequest(credential, batch, int(timeout_s * 1000), asked)
    return link.call(request, timeout_s + 1.0, empty=SendRequest(credential, [])).results


def _check(results: list[SendResult]) -> None:
    bad = [result for result in results if result.code >= STORED]
    if bad:
        count = f"{len(bad)} of {len(results)} messages not stored: " if len(results) > 1 else ""
        raise CommandError(f"{count}{bad[0].error or f'code {bad[0].code}'}", code_for_contract(bad[0].code))


def _row(result: SendResult) -> dict[str, Any]:
    return {"code": result.code, "id": result.id, "queue": result.queue, "offset": result.offset}


command = send

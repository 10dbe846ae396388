"""`penstock request` and `penstock reply`: a message that waits for its answer, and a program that answers."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import click

from common.contract import Ack, Code, Delivery, Message, PullRequest, SendRequest, SendResult, Verdict
from common.proxy_link import ProxyLink
from penstock.commands.send import STORED, parse_properties
from penstock.commands.send_source import one_body
from penstock.terminal import completing, name_hints
from penstock.terminal.exits import UNAVAILABLE, Command, CommandError, code_for_contract
from penstock.terminal.identity import Identity, choose, identity_options
from penstock.terminal.instance import Instance, instance_options
from penstock.terminal.interrupts import noted_interrupts
from penstock.terminal.message_lines import for_terminal, is_on_terminal, shown_body
from penstock.terminal.output import tell
from penstock.terminal.pipes import check_stdout, write_out
from penstock.terminal.times import DurationType

WAIT_MS = 5_000
POLL_MS = 10_000
LEASE_SPARE_MS = 10_000


@click.command(cls=Command)
@click.argument("topic", shell_complete=completing.topics)
@click.argument("body", required=False)
@click.option("--key", metavar="KEY", help="Send with this key.")
@click.option(
    "--property", "properties", multiple=True, metavar="NAME=VALUE", help="Send with this property; repeatable."
)
@click.option("--empty", is_flag=True, help="Send a request without a body; without this, an empty stdin is refused.")
@click.option(
    "--wait",
    "wait_ms",
    type=DurationType(1, 300_000),
    default=WAIT_MS,
    metavar="TIME",
    help="Wait this long (default 5s).",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["body", "json"]),
    default="body",
    help="Print the reply's body (default) or JSON.",
)
@identity_options
@instance_options("producer_proxy")
def request(
    instance: Instance, topic: str, body: str | None, key: str | None, properties: tuple[str, ...], empty: bool,
    wait_ms: int, output: str, app: str | None, key_id: str | None, secret_file: Path | None,
) -> None:  # fmt: skip
    """Send BODY, or the content of stdin, to TOPIC as a request, and print the reply.

    Exit code 5 when no reply comes in time; a consumer may still process the request.

    \b
    penstock request prices 'boots, brown' --wait 2s
    """
    check_stdout()
    message = Message(
        topic=topic, body=one_body([body] if body is not None else [], empty), key=key,
        properties=parse_properties(properties) or None,
    )  # fmt: skip
    identity = choose(instance, app, key_id, secret_file)
    with ProxyLink("send", instance.address("producer_proxy"), instance.tls_ca) as link:
        result = _send(link, identity, message, wait_ms, wait_ms)
    if result.code >= STORED:
        hint = name_hints.of_topic(instance, topic) if result.code == Code.UNKNOWN_TOPIC else ""
        raise CommandError(f"{result.error or f'code {result.code}'}{hint}", code_for_contract(result.code))
    if result.reply is None:
        raise CommandError("no reply came", UNAVAILABLE)
    answer = result.reply.body or b""
    line = (for_terminal(answer) if is_on_terminal() else answer) if output == "body" else json.dumps(
        {"id": result.id, "key": result.reply.key, "properties": result.reply.properties or {}, **shown_body(answer)}
    ).encode()  # fmt: skip
    write_out(line + b"\n")


def _send(link: ProxyLink, identity: Identity, message: Message, timeout_ms: int, reply_wait_ms: int = 0) -> SendResult:
    asked = SendRequest(identity.credential(), [message], timeout_ms, None, reply_wait_ms or None)
    hello = SendRequest(identity.credential(), [])
    return link.call(asked, (timeout_ms + reply_wait_ms) / 1000 + 1.0, empty=hello).results[0]


@click.command(cls=Command)
@click.argument("topic", shell_complete=completing.topics)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM [ARG]...]")
@click.option(
    "--group", "-g", required=True, metavar="GROUP", shell_complete=completing.groups, help="Pull as this group."
)
@click.option("--body", metavar="TEXT", help="Answer every request with TEXT, in place of a program.")
@click.option("--max", "count_max", type=click.IntRange(min=1), metavar="N", help="Stop after N replies.")
@click.option(
    "--timeout", "timeout_ms", type=DurationType(1_000, 3_600_000), default=30_000, metavar="TIME",
    help="Kill a program that takes longer (default 30s).",
)  # fmt: skip
@identity_options
@instance_options("consumer_proxy", "producer_proxy")
def reply(
    instance: Instance, topic: str, program: tuple[str, ...], group: str, body: str | None, count_max: int | None,
    timeout_ms: int, app: str | None, key_id: str | None, secret_file: Path | None,
) -> None:  # fmt: skip
    """Answer the requests of TOPIC, one at a time, until Ctrl-C: with a text, or with what a program prints.

    The program gets the request's body on stdin, and PENSTOCK_TOPIC, PENSTOCK_KEY, PENSTOCK_ID and PENSTOCK_ATTEMPT in
    its environment; a value that no environment can hold is left out. When it fails or takes too long, nothing is answered
    and the request is redelivered later, by the group's retries. Messages that expect no reply are acknowledged and told
    on stderr.

    \b
    penstock reply prices -g quoting --body '42 EUR'
    penstock reply words -g counting -- wc -w
    """
    if (body is None) is not bool(program):
        raise click.UsageError("give one of --body TEXT and -- PROGRAM")
    answer = (lambda delivery: (body or "").encode()) if body is not None else Runner(program, timeout_ms)
    identity = choose(instance, app, key_id, secret_file)
    with (
        ProxyLink("pull", instance.address("consumer_proxy"), instance.tls_ca) as pulls,
        ProxyLink("send", instance.address("producer_proxy"), instance.tls_ca) as sends,
        noted_interrupts() as is_interrupted,
    ):
        answering = Answering(pulls, sends, identity, group, topic, timeout_ms + LEASE_SPARE_MS)
        try:
            while count_max != 0 and not is_interrupted():
                if answering.turn(answer) and count_max is not None:
                    count_max -= 1
        except KeyboardInterrupt:
            pass
        answering.finish()


Answer = Callable[[Delivery], bytes | None]
"""The reply's body; None: there is none, and the request is to be tried again."""


class Runner:
    """Runs a program per request."""

    def __init__(self, program: tuple[str, ...], timeout_ms: int) -> None:
        self._program, self._timeout_s = program, timeout_ms / 1000

    def __call__(self, delivery: Delivery) -> bytes | None:
        message = delivery.message
        told = {"TOPIC": message.topic, "KEY": message.key or "", "ID": delivery.id, "ATTEMPT": str(delivery.attempt)}
        environment = {**os.environ, **{f"PENSTOCK_{name}": value for name, value in told.items() if "\0" not in value}}
        try:
            done = subprocess.run(
                self._program, input=message.body or b"", stdout=subprocess.PIPE, env=environment,
                timeout=self._timeout_s, check=False,
            )  # fmt: skip
        except OSError as error:
            raise CommandError(f"{self._program[0]}: cannot be run: {error.strerror}") from error
        except subprocess.TimeoutExpired:
            tell(f"request {delivery.id}: {self._program[0]} took more than {self._timeout_s:g} s")
            return None
        if done.returncode:
            tell(f"request {delivery.id}: {self._program[0]} ended with code {done.returncode}")
            return None
        return done.stdout


class Answering:
    """Pulls one request, answers it, and acknowledges it with the next pull."""

    def __init__(
        self, pulls: ProxyLink, sends: ProxyLink, identity: Identity, group: str, topic: str, lease_ms: int
    ) -> None:
        self._pulls, self._sends, self._identity = pulls, sends, identity
        self._group, self._topic, self._lease_ms = group, topic, lease_ms
        self._acks: list[Ack] = []

    def turn(self, answer: Answer) -> bool:
        """Wait for one message and handle it; returns whether a reply was accepted."""
        deliveries = self._pull(1, POLL_MS)
        for delivery in deliveries:
            self._acks = [Ack(delivery.receipt, Verdict.RETRY)]  # unless it is handled
            if delivery.reply_token is None:
                tell(f"message {delivery.id}: expects no reply: acknowledged")
                self._acks = [Ack(delivery.receipt)]
                return False
            body = answer(delivery)
            if body is None:
                return False
            self._acks = [Ack(delivery.receipt)]
            return self._reply(delivery, body)
        return False

    def _reply(self, delivery: Delivery, body: bytes) -> bool:
        made = Message(topic=delivery.message.topic, body=body, reply_to=delivery.reply_token)
        result = _send(self._sends, self._identity, made, WAIT_MS)
        if result.code >= STORED:
            tell(f"request {delivery.id}: its reply is refused: {result.error or result.code}")
        return result.code < STORED

    def finish(self) -> None:
        """Acknowledge the last one."""
        if self._acks:
            self._pull(0, 0)

    def _pull(self, count: int, wait_ms: int) -> list[Delivery]:
        credential = self._identity.credential()
        acks, self._acks = self._acks, []
        asked = PullRequest(
            credential, self._group, [self._topic], count, None, wait_ms, acks, None, self._lease_ms if count else None
        )
        response = self._pulls.call(
            asked, wait_ms / 1000 + 5.0, empty=PullRequest(credential, self._group, [self._topic], 0)
        )
        if response.code >= 100:
            raise CommandError(response.error or f"code {response.code}", code_for_contract(response.code))
        return response.deliveries

"""The messages that `penstock send` sends: of arguments, of stdin, of lines, or one many times."""

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from common.config.definitions.topic import BODY_BYTES_MAX
from common.contract import Message
from penstock.terminal.exits import USAGE, CommandError

NUMBER = "{n}"
SLICE_S = 0.05
MESSAGES_MAX = 500
CALL_BYTES_MAX = 8 << 20
LINE_BYTES_MAX = BODY_BYTES_MAX + (64 << 10)  # a key is before the body


@dataclass(frozen=True)
class MessagePattern:
    """What all messages of a command have in common.

    Attributes:
        id: with `{n}` in it, it differs per message, as key and body may.
    """

    topic: str
    key: str | None
    tag: str | None
    properties: dict[str, str] | None
    id: str | None = None
    delay_ms: int | None = None

    def made(self, body: bytes, number: int, key: str | None = None) -> Message:
        text = str(number)
        return Message(
            topic=self.topic,
            body=body,
            key=key if key is not None else _numbered(self.key, text),
            tag=self.tag,
            properties=self.properties,
            id=_numbered(self.id, text),
            delay_ms=self.delay_ms,
        )


def _numbered(value: str | None, number: str) -> str | None:
    return None if value is None else value.replace(NUMBER, number)


def one_body(words: list[str], allows_empty: bool) -> bytes:
    """BODY, or the content of stdin. Raises CommandError when that is empty and nobody asked for an empty message."""
    if len(words) > 1:
        raise click.UsageError("more than one BODY is given: quote a body with spaces")
    if words:
        return words[0].encode("utf-8", "surrogateescape")
    if allows_empty:
        return b""
    hint_for_terminal("the body of the message; Ctrl-D at the beginning of a line ends it")
    body = sys.stdin.buffer.read(BODY_BYTES_MAX + 1)
    if len(body) > BODY_BYTES_MAX:
        raise CommandError(f"stdin: a body has at most {BODY_BYTES_MAX:,} bytes", USAGE)
    if not body:
        raise CommandError(
            "stdin is empty: give BODY, or use --empty for a message without a body (`send TOPIC ''` is one, too)",
            USAGE,
        )
    return body


def hint_for_terminal(what: str) -> None:
    """Say on stderr what is waited for, where a person types."""
    if sys.stdin.isatty():
        click.echo(f"reading {what}", err=True)


def repeated(pattern: MessagePattern, body: bytes, count: int) -> Iterator[list[Message]]:
    """One message many times; `{n}` in body, key and id is its number."""
    has_number = NUMBER.encode() in body
    for first in range(1, count + 1, MESSAGES_MAX):
        yield [
            pattern.made(body.replace(NUMBER.encode(), b"%d" % number) if has_number else body, number)
            for number in range(first, min(first + MESSAGES_MAX, count + 1))
        ]


def of_lines(pattern: MessagePattern, separator: str | None) -> Iterator[list[Message]]:
    """A message per line of stdin, as many at once as are available.

    Args:
        separator: what divides a line into key and body; None: lines are bodies.
    """
    hint_for_terminal("one message per line; Ctrl-D ends it")
    number = 0
    for lines in available_lines():
        made: list[Message] = []
        try:
            for line in lines:
                number += 1
                made.append(of_line(pattern, line, number, separator))
        except CommandError:
            yield made  # what comes before the wrong line is sent
            raise
        yield made


def of_line(pattern: MessagePattern, line: bytes, number: int, separator: str | None) -> Message:
    """Raises CommandError for a line without the separator."""
    if separator is None:
        return pattern.made(line, number)
    key, found, body = line.partition(separator.encode("utf-8", "surrogateescape"))
    if not found:
        raise CommandError(
            f"line {number}: it has no {separator!r}, which --key-sep needs: those before it were sent", USAGE
        )
    try:
        return pattern.made(body, number, key.decode())
    except UnicodeDecodeError as error:
        raise CommandError(f"line {number}: its key is not UTF-8: those before it were sent", USAGE) from error


def available_lines() -> Iterator[list[bytes]]:
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
        if sum(map(len, begun)) > LINE_BYTES_MAX:
            raise CommandError(f"stdin: a line has at most {LINE_BYTES_MAX:,} bytes", USAGE)
    if last := b"".join(begun):
        yield [last]


def batches(pieces: Iterable[list[Message]], per_call: int) -> Iterator[list[Message]]:
    """Calls of at most so many messages and CALL_BYTES_MAX bytes; a larger message is a call of its own."""
    for messages in pieces:
        batch: list[Message] = []
        size = 0
        for message in messages:
            if batch and (len(batch) >= per_call or size + len(message.body) > CALL_BYTES_MAX):
                yield batch
                batch, size = [], 0
            batch.append(message)
            size += len(message.body)
        if batch:
            yield batch


class SendPace:
    """Spreads messages over time, so that no second has more than `per_s`; None: as fast as possible."""

    def __init__(self, per_s: float | None) -> None:
        self._per_s, self._began, self._sent = per_s, time.monotonic(), 0

    @property
    def per_call(self) -> int:
        """How many messages one call may have at this pace."""
        return MESSAGES_MAX if self._per_s is None else max(1, min(MESSAGES_MAX, int(self._per_s * SLICE_S)))

    def wait(self, count: int) -> None:
        """Wait until the next `count` messages are due."""
        if self._per_s is not None:
            due = self._began + self._sent / self._per_s
            time.sleep(max(0.0, due - time.monotonic()))
        self._sent += count

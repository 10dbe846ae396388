"""Messages as lines of output: bodies, a table, JSON, or a format with kcat's letters."""

import base64
import json
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from common.contract import Delivery, Message, decode_struct
from common.quoting import escaped
from common.utc import utc_ms
from engine.client.lookup import Stored

FORMAT_HELP = (
    "Print each message as FORMAT. As in kcat: %s body, %S its bytes, %k key, %K its bytes, %T time in ms, %h "
    "properties, %t topic, %p queue, %o offset, %% a percent sign; \\n \\t \\r \\0 \\xHH. Also: %v body, %i id, %g tag, "
    "%a attempt, %d time. A format without a line end gets one."
)
ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PART = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)", re.DOTALL)


class ShownMessage(NamedTuple):
    """A message with its place. `attempt` 0: it was not delivered to a group."""

    message: Message
    queue: int
    offset: int
    id: str
    stored_at_ms: int
    attempt: int = 0

    @property
    def body(self) -> bytes:
        return self.message.body or b""


Line = Callable[[ShownMessage], bytes]
OF_SENDERS = frozenset("svkhig")
"""Letters of a format whose values senders wrote."""
KEPT_ON_TERMINALS = "\n\t"


def of_delivery(delivery: Delivery) -> ShownMessage:
    return ShownMessage(
        delivery.message, delivery.queue, delivery.offset, delivery.id, delivery.stored_at_ms, delivery.attempt
    )


def of_stored(stored: Stored) -> ShownMessage:
    message = decode_struct(Message, stored.message)
    return ShownMessage(message, stored.queue, stored.offset, stored.id or "", stored.stored_at_ms)


def shown_body(body: bytes) -> dict[str, str]:
    """The body as a JSON field: text as it is, other bytes in base64."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def as_table(shown: ShownMessage) -> bytes:
    head = f"{shown.message.topic}/{shown.queue}@{shown.offset}\t{escaped(shown.message.key or '-')}\t"
    return head.encode() + shown.body


def as_json(shown: ShownMessage) -> bytes:
    message = shown.message
    row: dict[str, Any] = {
        "topic": message.topic,
        "queue": shown.queue,
        "offset": shown.offset,
        "id": shown.id,
        **({"attempt": shown.attempt} if shown.attempt else {}),
        "stored_at_ms": shown.stored_at_ms,
        "key": message.key,
        "tag": message.tag,
        "properties": message.properties or {},
        **shown_body(shown.body),
    }
    return json.dumps(row).encode()


LINES: dict[str, Line] = {"body": lambda shown: shown.body, "table": as_table, "json": as_json}
FIELDS: dict[str, Line] = {
    "s": lambda shown: shown.body,
    "v": lambda shown: shown.body,
    "S": lambda shown: b"%d" % len(shown.body),
    "k": lambda shown: (shown.message.key or "").encode(),
    "K": lambda shown: b"%d" % (-1 if shown.message.key is None else len(shown.message.key.encode())),
    "T": lambda shown: b"%d" % shown.stored_at_ms,
    "d": lambda shown: utc_ms(shown.stored_at_ms).encode(),
    "h": lambda shown: ",".join(f"{name}={value}" for name, value in (shown.message.properties or {}).items()).encode(),
    "t": lambda shown: shown.message.topic.encode(),
    "p": lambda shown: b"%d" % shown.queue,
    "o": lambda shown: b"%d" % shown.offset,
    "i": lambda shown: shown.id.encode(),
    "g": lambda shown: (shown.message.tag or "").encode(),
    "a": lambda shown: b"%d" % shown.attempt,
    "%": lambda shown: b"%",
}


class FormatType(click.ParamType):
    """An option's value as a function from a message to its bytes, the line's end included."""

    name = "FORMAT"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Line:
        if callable(value):
            return value
        try:
            return parse_format(value)
        except ValueError as error:
            self.fail(str(error), param, context)


def parse_format(text: str) -> Line:
    """Raises ValueError for a letter that means nothing."""
    parts: list[Line] = []
    at = 0
    for found in _PART.finditer(text):
        parts.append(_fixed(text[at : found.start()].encode("utf-8", "surrogateescape")))
        parts.append(_part(found))
        at = found.end()
    rest = text[at:]
    if rest.endswith(("%", "\\")):
        raise ValueError(f"{text!r}: ends with {rest[-1]}: write {rest[-1] * 2} for the character itself")
    parts.append(_fixed(rest.encode("utf-8", "surrogateescape")))
    if not text.endswith(("\\n", "\\0", "\n")):
        parts.append(_fixed(b"\n"))
    return lambda shown: b"".join(part(shown) for part in parts)


def for_terminal(data: bytes) -> bytes:
    """A sender's text, with control characters and bytes that are no UTF-8 as escapes."""
    return escaped(data.decode("utf-8", "backslashreplace"), KEPT_ON_TERMINALS).encode()


def is_on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _part(found: "re.Match[str]") -> Line:
    letter, code, escape = found.groups()
    if code is not None:
        return _fixed(bytes([int(code, 16)]))
    if escape is not None:
        if escape not in ESCAPES:
            raise ValueError(f"\\{escape} means nothing: use one of \\n \\t \\r \\0 \\\\ \\xHH")
        return _fixed(ESCAPES[escape])
    if letter not in FIELDS:
        raise ValueError(f"%{letter} means nothing: use one of {' '.join('%' + each for each in FIELDS)}")
    field = FIELDS[letter]
    return (lambda shown: for_terminal(field(shown))) if letter in OF_SENDERS and is_on_terminal() else field


def _fixed(text: bytes) -> Line:
    return lambda shown: text


def line_of(output: str, chosen: Line | None) -> Line:
    """What prints a message: by --format, else by -o, then with a line end. Bodies reach a terminal with escapes."""
    if chosen is not None:
        return chosen
    plain = LINES[output]
    if is_on_terminal():
        return lambda shown: for_terminal(plain(shown)) + b"\n"
    return lambda shown: plain(shown) + b"\n"


def output_options(command: Callable) -> Callable:
    """-o body|table|json, and --format, which wins."""
    command = click.option("--format", "format_", type=FormatType(), metavar="FORMAT", help=FORMAT_HELP)(command)
    return click.option(
        "-o",
        "--output",
        type=click.Choice(list(LINES)),
        default="body",
        help="Print bodies (default), a table, or JSON with one line per message.",
    )(command)

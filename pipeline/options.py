"""Options of a read and of a write. All faults are told at once, each with the values that the option takes."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pyspark.sql.types import StructType

from common.contract import Durability
from common.filter.errors import FilterError
from common.filter.expression import read_filter
from common.names import NAME_RULE, is_name
from pipeline.errors import OptionsError
from pipeline.proxy.identity import credential_fault
from pipeline.proxy.pulls import ConsumerEndpoints
from pipeline.reply.columns import NAMES

MALFORMED = "malformed"
"""Column with the bytes of bodies that could not be decoded."""
BODIES = ("binary", "string", "json")
DURABILITIES = ("topic_default", "memory", "fsync", "replicated", "replicated_fsync")
OF_SPARK = {"path", "checkpointlocation", "queryname"}
"""Options that Spark itself adds."""
EARLIEST, LATEST = "earliest", "latest"


class StartAt(NamedTuple):
    """Where reading starts or ends. One of the three is set.

    Attributes:
        word: EARLIEST or LATEST.
        time_ms: the first message stored at this time or later.
        offsets: by topic and queue.
    """

    word: str = ""
    time_ms: int | None = None
    offsets: dict[str, dict[int, int]] | None = None


@dataclass(frozen=True)
class ReadOptions:
    endpoints: ConsumerEndpoints
    topics: tuple[str, ...]  # empty: by the pattern
    topic_pattern: str
    columns: tuple[str, ...]
    start: StartAt | None  # None: earliest for a batch, latest for a stream
    end: StartAt
    body: str
    body_schema: StructType | None
    partitions_min: int
    messages_max: int  # per trigger; 0: no limit
    bytes_max: int  # per trigger, by the sizes of sampled messages; 0: no limit
    fail_on_data_loss: bool
    push_filters: bool
    filter: str  # of the engine's language; empty: all messages


@dataclass(frozen=True)
class WriteOptions:
    addresses: tuple[tuple[str, int], ...]
    credential: str
    topic: str  # empty: by the column `topic`
    id_column: str
    durability: int
    refused_path: str
    deadline_s: float
    task_rate: int  # messages per second of one task; 0: no limit
    window_addresses: tuple[tuple[str, int], ...]  # of consumer proxies that tell the window of ids; empty: not checked
    window_group: str
    due_column: str  # milliseconds after the task's beginning; empty: rows are sent at once


class OptionReader:
    """Takes options one by one and collects faults. `known`: every option that was asked for."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self.known: list[str] = []
        self.faults: list[str] = []

    def text(self, name: str, default: str | None, rule: str) -> str:
        """A text that is not empty; a fault with the rule when it is missing and has no default."""
        self.known.append(name)
        value = self._options.get(name.lower())
        if value is None or (value == "" and default is None):
            if default is None:
                self.faults.append(f"{name}: missing: {rule}")
            return default or ""
        return value

    def has(self, name: str) -> bool:
        """Whether the option is given and not empty."""
        return bool(self._options.get(name.lower()))

    def choice(self, name: str, default: str, values: tuple[str, ...]) -> str:
        value = self.text(name, default, "").lower()
        if value not in values:
            self.faults.append(f"{name} {value!r}: use {', '.join(values[:-1])} or {values[-1]}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, str(default).lower(), ("true", "false")) == "true"

    def number(self, name: str, default: int, low: int, high: int) -> int:
        value = self.text(name, str(default), "")
        if value.isascii() and value.isdigit() and (low <= int(value) <= high or int(value) == default):
            return int(value)
        self.faults.append(f"{name} {value!r}: use {low} to {high}")
        return default

    def parsed(self, name: str, default: str | None, parse: Callable[[str], Any], rule: str) -> Any:
        """A value made of the text by `parse`, which raises ValueError; None when it cannot be."""
        value = self.text(name, default, rule)
        if not value:
            return None
        try:
            return parse(value)
        except (ValueError, TypeError, KeyError, AttributeError):
            self.faults.append(f"{name} {value!r}: {rule}")
            return None

    def finish(self) -> None:
        """Raise OptionsError with all faults, unknown options among them."""
        known = {name.lower() for name in self.known} | OF_SPARK
        unknown = sorted(self._options.keys() - known)
        if unknown:
            self.faults.append(f"unknown: {', '.join(unknown)}: use {', '.join(sorted(self.known))}")
        if self.faults:
            raise OptionsError(self.faults)


ENDPOINT_RULE = "use HOST:PORT of {}, with commas between several"
PLACE_RULE = (
    'use earliest, latest, a time such as 2026-01-31T12:00:00Z, Unix milliseconds, or offsets as {"topic": {"0": 17}}'
)


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Check the options of a read. Raises OptionsError."""
    reader = OptionReader(options)
    addresses = _addresses(reader, "consumer proxies")
    credential = _credential(reader)
    topics, pattern = _chosen_topics(reader)
    body = reader.choice("body", "binary", BODIES)
    columns = reader.parsed("columns", ",".join(NAMES), _columns, f"use some of {', '.join((*NAMES, MALFORMED))}")
    schema = reader.parsed("bodySchema", "", _schema, "use the JSON of a StructType: `schema.json()`")
    if (body == "json") != (schema is not None) and not reader.faults:
        reader.faults.append("bodySchema: give it with body json, and only then")
    made = ReadOptions(
        endpoints=ConsumerEndpoints(
            addresses or (),
            credential,
            reader.text("group", "spark", ""),
            float(reader.number("timeoutSeconds", 60, 1, 86_400)),
        ),
        topics=topics,
        topic_pattern=pattern,
        columns=_with_malformed(columns or (), body, "columns" in {name.lower() for name in options}),
        start=reader.parsed("start", "", place, PLACE_RULE),
        end=reader.parsed("end", LATEST, place, PLACE_RULE) or StartAt(LATEST),
        body=body,
        body_schema=schema,
        partitions_min=reader.number("minPartitions", 1, 1, 100_000),
        messages_max=reader.number("maxMessagesPerTrigger", 0, 1, 1 << 53),
        bytes_max=reader.number("maxBytesPerTrigger", 0, 1, 1 << 53),
        fail_on_data_loss=reader.flag("failOnDataLoss", True),
        push_filters=reader.flag("pushFilters", False),
        filter=_filter(reader),
    )
    reader.finish()
    return made


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of a write. Raises OptionsError."""
    reader = OptionReader(options)
    addresses = _addresses(reader, "producer proxies")
    made = WriteOptions(
        addresses=addresses or (),
        credential=_credential(reader),
        topic=reader.parsed("topic", "", _topic, f"use one name: {NAME_RULE}") or "",
        id_column=reader.text("idColumn", "", ""),
        durability=getattr(Durability, reader.choice("durability", DURABILITIES[0], DURABILITIES).upper(), 0),
        refused_path=reader.text("refusedPath", "", ""),
        deadline_s=float(reader.number("timeoutSeconds", 60, 1, 86_400)),
        task_rate=reader.number("messagesPerSecondPerTask", 0, 1, 1 << 53),
        window_addresses=reader.parsed("windowEndpoint", "", _endpoints, ENDPOINT_RULE.format("consumer proxies"))
        or (),
        window_group=reader.text("windowGroup", "spark", ""),
        due_column=reader.text("dueColumn", "", ""),
    )
    if made.window_addresses and not made.topic:
        reader.faults.append("windowEndpoint: give it with topic")
    reader.finish()
    return made


def place(text: str) -> StartAt:
    """Parse a value of `start` or `end`. Raises ValueError."""
    if text.lower() in (EARLIEST, LATEST):
        return StartAt(text.lower())
    if text.isascii() and text.isdigit():
        return StartAt(time_ms=int(text))
    if text.lstrip().startswith("{"):
        found = {str(topic): _queue_offsets(offsets) for topic, offsets in json.loads(text).items()}
        return StartAt(offsets=found)
    moment = datetime.fromisoformat(text)
    return StartAt(time_ms=int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def _queue_offsets(offsets: Mapping[str, int]) -> dict[int, int]:
    found = {int(queue): int(offset) for queue, offset in offsets.items()}
    if any(queue < 0 or offset < 0 for queue, offset in found.items()):
        raise ValueError("queues and offsets are not negative")
    return found


def _addresses(reader: OptionReader, what: str) -> tuple[tuple[str, int], ...]:
    return reader.parsed("endpoint", None, _endpoints, ENDPOINT_RULE.format(what))


def _endpoints(text: str) -> tuple[tuple[str, int], ...]:
    found = []
    for part in text.split(","):
        host, _, port = part.strip().rpartition(":")
        if not host or not 0 < int(port) < 1 << 16:
            raise ValueError(part)
        found.append((host.strip("[]"), int(port)))
    return tuple(found)


def _credential(reader: OptionReader) -> str:
    path = reader.text("credential", None, "use the path of a file with the output of `penstock app create -o json`")
    if path and (fault := credential_fault(path)):
        reader.faults.append(fault)
    return path


def _chosen_topics(reader: OptionReader) -> tuple[tuple[str, ...], str]:
    """Names, or a pattern of names: exactly one of the two."""
    names_rule = f"use names with commas between them: {NAME_RULE}"
    topics = reader.parsed("topics", "", _topics, names_rule) or ()
    pattern = reader.parsed("topicPattern", "", _pattern, "use a regular expression of Python for whole names") or ""
    if reader.has("topics") == reader.has("topicPattern"):
        missing = f"topics: missing: {names_rule}; or give topicPattern"
        reader.faults.append("topics, topicPattern: give one of the two" if reader.has("topics") else missing)
    return topics, pattern


def _filter(reader: OptionReader) -> str:
    text = reader.text("filter", "", "")
    try:
        if text:
            read_filter(text)
    except FilterError as error:
        reader.faults.append(f"filter: {error}: use the language of `penstock filter check`")
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from error
    return text


def _topics(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_topic(each.strip()) for each in text.split(",")))


def _topic(text: str) -> str:
    if not is_name(text):
        raise ValueError(text)
    return text


def _columns(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(each.strip().lower() for each in text.split(",")))
    if not set(found) <= {*NAMES, MALFORMED}:
        raise ValueError(text)
    return found


def _with_malformed(columns: tuple[str, ...], body: str, are_chosen: bool) -> tuple[str, ...]:
    """The columns with that of malformed bodies where bodies are decoded, unless columns were chosen without it."""
    if body == "binary" or are_chosen or "body" not in columns:
        return columns if body != "binary" else tuple(each for each in columns if each != MALFORMED)
    return (*columns, MALFORMED)


def _schema(text: str) -> StructType:
    found = StructType.fromJson(json.loads(text))
    if not found.fields:
        raise ValueError("no fields")
    return found

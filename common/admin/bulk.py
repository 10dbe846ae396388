"""Topics from a file: one name per line, or `name,queues,durability`.

Blank lines and lines that begin with # are skipped.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from common.admin.topics import TopicSettings
from common.config.definitions import TopicDefinition
from common.config.errors import InvalidDefinition
from common.quoting import quoted

FAULTS_MAX, COUNTED_MAX = 10, 10_000
DIGITS_MAX = 19  # of a number; longer ones are out of every range
COLUMNS_RULE = "use name, name,queues or name,queues,durability; an empty column means the default"


def parse(lines: Iterable[str]) -> dict[str, TopicSettings]:
    """Names and settings of all lines.

    Raises:
        InvalidDefinition: with the first faults, each with its line's number, and their count.
    """
    wanted: dict[str, TopicSettings] = {}
    first: dict[str, int] = {}
    faults: list[str] = []
    for number, line in _content(lines):
        name, settings, rules = _parse_line(line)
        if name in wanted and not rules:
            rules = [f"{quoted(name)} is also in line {first[name]}: name each topic once"]
        faults += [f"line {number}: {rule}" for rule in rules]
        wanted[name], first[name] = settings, number
        if len(faults) >= COUNTED_MAX:  # it is no list of topics, and may have no end
            break
    if faults:
        more = [f"and {len(faults) - FAULTS_MAX:,} more"] if len(faults) > FAULTS_MAX else []
        raise InvalidDefinition("topics", faults[:FAULTS_MAX] + more)
    return wanted


def _content(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    for number, raw in enumerate(lines, 1):
        line = raw.strip().removeprefix("\ufeff")  # a byte order mark is not part of the first name
        if line and not line.startswith("#"):
            yield number, line


def _parse_line(line: str) -> tuple[str, TopicSettings, list[str]]:
    columns = [column.strip() for column in line.split(",")]
    name, queues, durability = (*columns, "", "")[:3]
    given: dict[str, Any] = {"durability": durability} if durability else {}
    if queues:
        given["queues"] = int(queues) if queues.isascii() and queues.isdigit() and len(queues) < DIGITS_MAX else queues
    faults = [] if len(columns) <= 3 else [f"{len(columns)} columns are too many: {COLUMNS_RULE}"]
    try:
        TopicDefinition.from_value(name, given)
    except InvalidDefinition as fault:
        faults += fault.faults
    return name, TopicSettings(**given), [f"{quoted(name)}: {each}" for each in faults]

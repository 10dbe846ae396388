"""Topics from a file: one name a line, or `name,queues,durability`; blank lines and lines that begin with # do not count."""

from collections.abc import Iterable, Iterator

from common.admin.topics import TopicSettings
from common.config.definitions import DURABILITIES, QUEUES_MAX
from common.config.errors import InvalidDefinition
from common.names import NAME_RULE, is_name

FAULTS_MAX = 10
COLUMNS_RULE = "name, or name,queues, or name,queues,durability; an empty column means the default"


def parse(lines: Iterable[str]) -> dict[str, TopicSettings]:
    """What each line wants.

    Raises:
        InvalidDefinition: with the first faults, each with its line's number, and their count.
    """
    wanted: dict[str, TopicSettings] = {}
    first: dict[str, int] = {}
    faults: list[str] = []
    for number, line in _content(lines):
        name, settings, rules = _parse_line(line)
        if name in wanted and not rules:
            rules = [f"{name!r} stands in line {first[name]} already"]
        faults += [f"line {number}: {rule}" for rule in rules]
        wanted[name], first[name] = settings, number
    if faults:
        more = [f"and {len(faults) - FAULTS_MAX:,} more"] if len(faults) > FAULTS_MAX else []
        raise InvalidDefinition("topics", faults[:FAULTS_MAX] + more)
    return wanted


def _content(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    for number, raw in enumerate(lines, 1):
        line = raw.strip().removeprefix("\ufeff")  # a byte order mark is no part of the first name
        if line and not line.startswith("#"):
            yield number, line


def _parse_line(line: str) -> tuple[str, TopicSettings, list[str]]:
    columns = [column.strip() for column in line.split(",")]
    name, queues, durability = (*columns, "", "")[:3]
    rules = [] if len(columns) <= 3 else [COLUMNS_RULE]
    if not is_name(name):
        rules.append(f"{name[:64]!r} is not a name: {NAME_RULE}")
    if queues and not (queues.isascii() and queues.isdigit() and 1 <= int(queues[:9]) <= QUEUES_MAX):
        rules.append(f"queues must be a whole number from 1 to {QUEUES_MAX}, not {queues[:20]!r}")
    if durability and durability not in DURABILITIES:
        rules.append(f"durability must be one of {', '.join(DURABILITIES)}, not {durability[:20]!r}")
    if rules:
        return name, TopicSettings(), rules
    return name, TopicSettings(int(queues) if queues else None, durability or None), rules

"""Masking of parts of messages by role: applied on the server before anything is rendered, exported or streamed.

A rule hides one field of the messages of some topics from the roles below the one that it names. What cannot be masked
precisely is hidden whole: a rule for a part of the body hides a body that is not JSON.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from common.dead_letters import is_dead_letter_topic
from console.errors import InvalidForm
from console.installation.stored_messages import FoundMessage
from console.roles import ROLE_NAMES, Role

HIDDEN = "•••"
ANY, DEEP = "*", "**"
TOPICS_MAX, FIELD_MAX, PARTS_MAX = 249, 300, 16
FIELD = re.compile(r"key|body(\.[^.]+)*|properties\.[^.]([^\n]*)")
FIELD_RULE = "Give key, body, body.PATH with dots and * or **, or properties.NAME, which may end with *."


class MaskingRule(NamedTuple):
    """Hides `field` of the topics that match `topics` from the roles below `role`. `rule_id` is 0 before it is kept."""

    rule_id: int
    topics: str
    field: str
    role: Role


def checked_rule(topics: str, field: str, role: str) -> MaskingRule:
    """Raises InvalidForm."""
    faults = {}
    if not 1 <= len(topics) <= TOPICS_MAX or not topics.isprintable() or "[" in topics:
        faults["topics"] = f"Give a topic, or a pattern with * and ?, of at most {TOPICS_MAX} characters."
    if len(field) > FIELD_MAX or not FIELD.fullmatch(field) or field.count(".") > PARTS_MAX:
        faults["field"] = FIELD_RULE
    if role not in ROLE_NAMES[1:]:
        faults["role"] = "Choose the least role that sees the field."
    if faults:
        raise InvalidForm(faults)
    return MaskingRule(0, topics, field, Role.named(role))


class Mask(NamedTuple):
    """The fields of one topic that a role does not see. Paths are those below `body.`, as parts."""

    key: bool
    body: bool
    paths: tuple[tuple[str, ...], ...]
    properties: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        return self == NOTHING

    @property
    def hides_search(self) -> bool:
        """Whether a search by key or filter could tell what is hidden: filters compare keys and properties."""
        return self.key or bool(self.properties)

    def property(self, name: str, value: str) -> str:
        return HIDDEN if any(fnmatchcase(name, pattern) for pattern in self.properties) else value

    def of(self, message: FoundMessage) -> FoundMessage:
        """The message as the role sees it."""
        if self.is_empty:
            return message
        return replace(
            message,
            key=HIDDEN if self.key and message.key else message.key,
            properties={name: self.property(name, value) for name, value in message.properties.items()},
            body=self._body(message.body),
            is_masked=True,
        )

    def _body(self, body: bytes) -> bytes:
        if not self.body and not self.paths:
            return body
        if not self.body:
            try:
                return json.dumps(hide(json.loads(body), self.paths), ensure_ascii=False).encode(errors="replace")
            except (ValueError, RecursionError):
                pass  # what is no JSON may hold the field in any form
        return HIDDEN.encode()


NOTHING = Mask(False, False, (), ())


def mask_of(rules: Iterable[MaskingRule], topic: str, role: Role) -> Mask:
    """The fields of a topic that these rules hide from a role. For a topic of dead letters every rule counts."""
    is_mixed = is_dead_letter_topic(topic)  # its messages come from any topic
    fields = [rule.field for rule in rules if role < rule.role and (is_mixed or fnmatchcase(topic, rule.topics))]
    if not fields:
        return NOTHING
    paths = [tuple(field.split(".")[1:]) for field in fields if field.startswith("body.")]
    properties = [field.removeprefix("properties.") for field in fields if field.startswith("properties.")]
    return Mask("key" in fields, "body" in fields, tuple(paths), tuple(properties))


def hide(value: Any, paths: Sequence[tuple[str, ...]]) -> Any:
    """A copy of a JSON value with HIDDEN at these paths.

    `*` is any one member or element, `**` any number of them. A path may name the elements of a list or pass them by.
    """
    if not paths:
        return value
    if any(not path or path == (DEEP,) for path in paths):
        return HIDDEN
    if isinstance(value, dict):
        return {name: hide(each, _below(name, paths)) for name, each in value.items()}
    if isinstance(value, list):
        return [hide(each, [*_below(str(number), paths), *paths]) for number, each in enumerate(value)]
    return value


def _below(name: str, paths: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The rests of the paths that go on through a member."""
    found = []
    for path in paths:
        if path[0] == DEEP:
            found.append(path)
            if len(path) > 1 and path[1] in (name, ANY):
                found.append(path[2:])
        elif path[0] in (name, ANY):
            found.append(path[1:])
    return found

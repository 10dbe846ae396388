"""YAML as people write it by hand: refused where it is large or deep, and where a number is read as another one."""

import re
from typing import Any

import yaml

DEPTH_MAX = 8
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_OCTAL = re.compile(r"[-+]?0[0-9_]+")


def check_events(text: str) -> None:
    """Refuse what makes a small file large or deep, and numbers in base 8 and 60. Raises ValueError, YAMLError.

    It takes time and memory in proportion to the text, whatever the text is.
    """
    depth, resolver = 0, yaml.resolver.Resolver()
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"{_place(event)}: aliases are not allowed: write the settings out")
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            depth += 1
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent) and event.tag is None and event.implicit[0]:
            _check_scalar(event, resolver)
        if depth > DEPTH_MAX:
            raise ValueError(f"{_place(event)}: nested deeper than {DEPTH_MAX} levels")


def _check_scalar(event: Any, resolver: Any) -> None:
    value = event.value
    if value == "<<":
        raise ValueError(f"{_place(event)}: merge keys (<<) are not allowed: write the settings out")
    if value[:1] not in "+-0123456789" or resolver.resolve(yaml.ScalarNode, value, (True, False)) not in (_INT, _FLOAT):
        return
    if ":" in value:
        raise ValueError(f"{_place(event)}: YAML reads {value} in base 60: write it as one number, or quote a text")
    if _OCTAL.fullmatch(value):
        raise ValueError(
            f"{_place(event)}: YAML reads {value} in base 8: write it without the first 0, or quote a text"
        )


def _place(event: Any) -> str:
    return f"line {event.start_mark.line + 1}"

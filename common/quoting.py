"""Values, lists and names as error sentences show them."""

import json
from collections.abc import Sequence
from typing import Any

SHOWN_CHARS_MAX = 64


def quoted(value: Any) -> str:
    """The value as JSON, where it has a JSON form, cut to a maximum length."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…"


def escaped(text: str, kept: str = "") -> str:
    """The text with control characters, line ends and invisible characters as escapes, but for those in `kept`.

    What a stranger wrote can then neither command a terminal nor begin a line of its own.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode() for each in text
    )


def listed(choices: Sequence[str]) -> str:
    """The words as `a, b or c`."""
    return " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))


def thing(kind: str, name: Any) -> str:
    """The subject of a sentence, as in `topic "orders"`."""
    return f"{kind.replace('_', ' ')} {quoted(str(name))}"

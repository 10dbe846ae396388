"""The rule for names of topics and groups: Kafka's, so that every Kafka topic can move here under its own name."""

import re

NAME_CHARS_MAX = 249
NAME_RULE = "use 1–249 characters of A–Z a–z 0–9 . _ - (but not . or ..)"

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def is_name(name: str) -> bool:
    """Whether `name` may name a topic or a group."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")

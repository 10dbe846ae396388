"""The rule that topics and groups are named by: Kafka's, so that every Kafka topic can move here under its own name."""

import re

NAME_CHARS_MAX = 249
NAME_RULE = "1 to 249 characters of A-Z a-z 0-9 . _ - and neither . nor .."

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def is_name(name: str) -> bool:
    """Whether `name` may name a topic or a group."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")

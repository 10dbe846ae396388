"""The rule for names of topics and groups: Kafka's, so that every Kafka topic can move here under its own name."""

import re

NAME_CHARS_MAX = 249
NAME_RULE = "use 1–249 characters of A–Z a–z 0–9 . _ - (but not . or ..)"

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_MADE = re.compile(r"[1-9][0-9]{0,15}")


def is_name(name: str) -> bool:
    """Whether `name` may name a topic or a group."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


def stored_name(name: str, made_ms: int) -> str:
    """The name by which proxies ask engines for a topic: with the time of its creation when that is known.

    A topic that is deleted and created again has another one, and so is another topic to the engines.
    """
    return f"{name}@{made_ms}" if made_ms else name


def split_stored_name(stored: str) -> tuple[str, int]:
    """The name and the time of creation (0: unknown) of a stored name. Other text is a name that no topic has."""
    name, _, made_ms = stored.partition("@")
    return (name, int(made_ms)) if _MADE.fullmatch(made_ms) else (stored, 0)


def is_stored_name(text: str) -> bool:
    """Whether `text` may be a topic's stored name."""
    name, separator, made_ms = text.partition("@")
    return is_name(name) and (not separator or _MADE.fullmatch(made_ms) is not None)

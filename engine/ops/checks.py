"""Checks of requests with a JSON payload."""

import json
from typing import Any, TypeGuard

from common.names import NAME_RULE, is_name, is_stored_name
from engine.ops.errors import RequestError

SHOWN_CHARS_MAX = 100


def json_object(payload: bytes, rule: str) -> dict[str, Any]:
    """The payload's JSON object. Raises RequestError with the rule when it is none."""
    try:
        request = json.loads(payload)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise RequestError(rule)
    return request


def json_answer(answer: object) -> list[bytes]:
    """An answer's payload as JSON."""
    return [json.dumps(answer).encode()]


def checked_name(name: object, field: str) -> str:
    """The name itself. Raises RequestError when it breaks the rule for names."""
    if not isinstance(name, str) or not is_name(name):
        raise RequestError(f"{field}: {NAME_RULE}")
    return name


def checked_stored_name(name: object) -> str:
    """The topic's name itself, with or without the time of its creation. Raises RequestError."""
    if not isinstance(name, str) or not is_stored_name(name):
        raise RequestError(f"topic: {NAME_RULE}")
    return name


def is_whole(value: object, minimum: int, maximum: int) -> TypeGuard[int]:
    """Whether the value is a whole number within the bounds. JSON's true and false are none."""
    return type(value) is int and minimum <= value <= maximum


def shown(value: object) -> str:
    """The value in an error sentence, cut off when it is long."""
    return repr(value)[:SHOWN_CHARS_MAX]

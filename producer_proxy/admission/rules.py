"""What a topic asks of each message's form: JSON bodies, properties that must be there. A topic that asks for nothing pays nothing.

A message of one that does takes the slow path. A body is parsed in the loop: 1 MiB of JSON takes some 10 ms, so such a topic's
`body_bytes_max` bounds what one message costs the others.
"""

import json

from common.config.definitions import TopicDefinition
from common.contract import Message, decode_struct
from common.wire.calls import HAS_BODY, HAS_PROPERTIES


def has_rules(topic: TopicDefinition) -> bool:
    """Whether messages of the topic have to be looked at one by one."""
    return topic.body_format != "any" or bool(topic.required_properties)


def broken_rule(message, topic: TopicDefinition) -> str | None:
    """The field and the rule that a walked message breaks, as a sentence; None: it is as the topic asks. Tells nothing of its content."""
    if topic.required_properties and (missing := _missing(message, topic.required_properties)):
        return f"Message.properties: the topic requires {', '.join(missing)}"
    if topic.body_format == "json" and (fault := _json_fault(message)):
        return f"Message.body: must be JSON for this topic: {fault}"
    return None


def _missing(message, required: tuple[str, ...]) -> list[str]:
    held = (decode_struct(Message, message.encoded).properties or {}) if message.flags & HAS_PROPERTIES else {}
    return [name for name in required if name not in held]


def _json_fault(message) -> str | None:
    if not message.flags & HAS_BODY:
        return "there is none"
    try:
        json.loads(message.body, parse_constant=_no_constant)
    except UnicodeDecodeError:
        return "it is no UTF-8"
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as error:
        return str(error)
    return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")

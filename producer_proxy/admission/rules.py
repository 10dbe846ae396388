"""Message rules per topic: JSON bodies, required properties. A topic without rules costs nothing.

Messages of a topic with rules take the rare path. A body is parsed in the loop, where 1 MiB of JSON takes some 10 ms.
The topic's `body_bytes_max` bounds this delay of other calls.
"""

import json

from common.config.definitions import TopicDefinition
from common.contract import Message, decode_struct
from common.wire.calls import HAS_BODY, HAS_PROPERTIES
from common.wire.calls import Message as WalkedMessage


def has_rules(topic: TopicDefinition) -> bool:
    """Whether messages of the topic are checked one by one."""
    return topic.body_format != "any" or bool(topic.required_properties)


def broken_rule(message: WalkedMessage, topic: TopicDefinition) -> str | None:
    """The broken rule and its field, as a sentence without the message's content; None: no rule is broken."""
    if topic.required_properties and (missing := _missing(message, topic.required_properties)):
        return f"Message.properties: the topic requires {', '.join(missing)}"
    if topic.body_format == "json" and (fault := _json_fault(message)):
        return f"Message.body: must be JSON for this topic: {fault}"
    return None


def _missing(message: WalkedMessage, required: tuple[str, ...]) -> list[str]:
    held = (decode_struct(Message, message.encoded).properties or {}) if message.flags & HAS_PROPERTIES else {}
    return [name for name in required if name not in held]


def _json_fault(message: WalkedMessage) -> str | None:
    if not message.flags & HAS_BODY:
        return "the body is missing"
    try:
        json.loads(message.body, parse_constant=_no_constant)
    except UnicodeDecodeError:
        return "it is not UTF-8"
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as error:
        return str(error)
    return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")

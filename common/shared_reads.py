"""Hidden topics of dual read: the engine's topic that has one group's copies of the records of one Kafka topic.

They are ordinary topics with an entry of kind `shared_read` in place of a definition. Clients cannot send to them, and
pull them by the name of the Kafka topic's counterpart alone. See docs/design/0035-migration.md.
"""

from hashlib import blake2b

from common.names import NAME_CHARS_MAX

PREFIX = "_kafka."
PREFIX_RULE = f"names that begin with {PREFIX} are reserved for what groups read from Kafka: use another one"
_DIGEST_CHARS = 32


def hidden_topic(group: str, topic: str) -> str:
    """The name of the hidden topic: `_kafka.GROUP.TOPIC`.

    Where that would be too long, or the end of the group's name not be seen because there is a dot in it: `_kafka..`,
    the beginning of `GROUP.TOPIC`, and a digest of both names. No group has an empty name, so the two forms never meet.
    """
    plain = f"{group}.{topic}"
    if "." not in group and len(PREFIX) + len(plain) <= NAME_CHARS_MAX:
        return PREFIX + plain
    digest = blake2b(f"{group}\0{topic}".encode(), digest_size=_DIGEST_CHARS // 2).hexdigest()
    return f"{PREFIX}.{plain[: NAME_CHARS_MAX - len(PREFIX) - 2 - _DIGEST_CHARS]}.{digest}"


def is_hidden_topic(name: str) -> bool:
    """Whether the name is reserved for hidden topics."""
    return name.startswith(PREFIX)

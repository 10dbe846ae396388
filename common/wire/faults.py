"""Faults of a call in three ranks, with the answer to each.

    WireError(rule, at, field, seqid)   the bytes are not a call. Answer: TApplicationException with `sentence`
    CallFault                           parsed, but its own fields break a rule. Answer: that code for the whole call
    MessageFault, AckFault              one element breaks a rule. Answer: that code for this element only

The numbers are shared with the native walker (`_cursor.pxd`); they are private to one build and may be renumbered.
"""

from enum import IntEnum

from common.contract import Code
from common.names import NAME_RULE
from common.wire.calls import ACKS_MAX, MESSAGES_MAX, POSITIONS_MAX, PULL_TOPICS_MAX


class WireFault(IntEnum):
    """Reasons why bytes are not a call; the native functions return their numbers."""

    NONE = 0
    TRUNCATED = 1
    VERSION = 2
    NAME = 3
    KIND = 4
    METHOD = 5
    TYPE = 6
    DEPTH = 7
    SIZE = 8
    COUNT = 9
    TRAILING = 10
    FIELD_TYPE = 11
    MISSING = 12
    LIST_TOO_LONG = 13
    FRAME_TOO_LARGE = 14
    TOO_MANY_ELEMENTS = 15


class CallFault(IntEnum):
    """Rules about a well-formed call as a whole. Of several broken rules the first in the order of the bytes counts."""

    NONE = 0
    NO_MESSAGES = 1
    TIMEOUT = 2
    DURABILITY = 3
    REPLY_WAIT = 4
    REPLY_WAIT_COUNT = 5
    GROUP_NAME = 6
    TOPIC_NAME = 7
    MAX_MESSAGES = 8
    MAX_BYTES = 9
    WAIT = 10
    INVISIBLE = 11
    CREDENTIAL_TEXT = 12


class MessageFault(IntEnum):
    """Rules about one message: the first broken one in the order of its bytes, then rules about several fields."""

    NONE = 0
    TOPIC_MISSING = 1
    TOPIC_NAME = 2
    TOPIC_TEXT = 3
    BODY_SIZE = 4
    KEY_SIZE = 5
    KEY_TEXT = 6
    TAG_WORD = 7
    TAG_SIZE = 8
    TAG_TEXT = 9
    PROPERTIES_COUNT = 10
    PROPERTIES_SIZE = 11
    PROPERTIES_TEXT = 12
    ID_SIZE = 13
    ID_TEXT = 14
    DELIVER_AT = 15
    DELAY = 16
    DELIVER_AT_AND_DELAY = 17
    OPERATION = 18
    CANCEL_ID = 19
    MESSAGE_SIZE = 20
    LOOP_WITHOUT_DELAY = 21


class AckFault(IntEnum):
    """Rules about one acknowledgement."""

    NONE = 0
    RECEIPT_MISSING = 1
    VERDICT = 2
    DELAY = 3
    REASON_TEXT = 4


# `error_field` is struct number << 8 | field id.
_STRUCTS = {
    1: ("", {1: "request"}),
    2: ("SendRequest.", {1: "credential", 2: "messages", 3: "timeout_ms", 4: "durability", 5: "reply_wait_ms"}),
    3: ("Credential.", {1: "app", 2: "key_id", 3: "issued_at_ms", 4: "signature"}),
    4: (
        "Message.",
        {1: "topic", 2: "body", 3: "key", 4: "tag", 5: "properties", 6: "id", 7: "deliver_at_ms", 8: "delay_ms"}
        | {9: "operation", 10: "reply_to"},
    ),
    5: (
        "PullRequest.",
        {1: "credential", 2: "group", 3: "topics", 4: "max_messages", 5: "max_bytes", 6: "wait_ms", 7: "acks"}
        | {8: "positions", 9: "invisible_ms", 10: "topics_after"},
    ),
    6: ("Ack.", {1: "receipt", 2: "verdict", 3: "delay_ms", 4: "reason"}),
    7: ("Position.", {1: "topic", 2: "queue", 3: "offset", 4: "end_offset", 5: "at_time_ms"}),
}
FIELDS = {
    number << 8 | field_id: prefix + name
    for number, (prefix, fields) in _STRUCTS.items()
    for field_id, name in fields.items()
}

_LIST_LIMITS = {
    "SendRequest.messages": MESSAGES_MAX,
    "PullRequest.topics": PULL_TOPICS_MAX,
    "PullRequest.acks": ACKS_MAX,
    "PullRequest.positions": POSITIONS_MAX,
}

WIRE_SENTENCES = {
    WireFault.TRUNCATED: "a value reaches past the end of the frame",
    WireFault.VERSION: "not Thrift's strict binary protocol, version 1",
    WireFault.NAME: "the method name is 1 to 64 bytes of UTF-8",
    WireFault.KIND: "the message type is not CALL",
    WireFault.METHOD: "no such method",
    WireFault.TYPE: "a type number that the binary protocol does not have",
    WireFault.DEPTH: "structs and containers are nested deeper than 16",
    WireFault.SIZE: "a negative string size",
    WireFault.COUNT: "an element count that is negative or larger than the bytes that follow could hold",
    WireFault.TRAILING: "bytes follow after the call's end",
    WireFault.FIELD_TYPE: "a field has another type than the contract's",
    WireFault.MISSING: "a required field is missing",
    WireFault.LIST_TOO_LONG: "at most {limit} per call",
    WireFault.FRAME_TOO_LARGE: "the frame is larger than 2 GiB",
    WireFault.TOO_MANY_ELEMENTS: "the lists, sets and maps of a call hold more than 100,000 elements together",
}

CALL_FAULTS = {
    CallFault.NO_MESSAGES: (Code.INVALID, "SendRequest.messages: 1 to 1000 messages a call"),
    CallFault.TIMEOUT: (Code.INVALID, "SendRequest.timeout_ms: not negative"),
    CallFault.DURABILITY: (Code.INVALID, "SendRequest.durability: one of the values of Durability"),
    CallFault.REPLY_WAIT: (Code.INVALID, "SendRequest.reply_wait_ms: not negative"),
    CallFault.REPLY_WAIT_COUNT: (Code.INVALID, "SendRequest.reply_wait_ms: a request carries exactly one message"),
    CallFault.GROUP_NAME: (Code.INVALID, f"PullRequest.group: {NAME_RULE}"),
    CallFault.TOPIC_NAME: (Code.INVALID, f"PullRequest.topics and positions.topic: {NAME_RULE}"),
    CallFault.MAX_MESSAGES: (Code.INVALID, "PullRequest.max_messages: not negative"),
    CallFault.MAX_BYTES: (Code.INVALID, "PullRequest.max_bytes: not negative"),
    CallFault.WAIT: (Code.INVALID, "PullRequest.wait_ms: not negative"),
    CallFault.INVISIBLE: (Code.INVALID, "PullRequest.invisible_ms: not negative"),
    CallFault.CREDENTIAL_TEXT: (Code.UNAUTHENTICATED, "Credential.app and key_id: valid UTF-8"),
}

MESSAGE_FAULTS = {
    MessageFault.LOOP_WITHOUT_DELAY: (
        Code.INVALID,
        "Message.properties: a loop (penstock-loop-…) needs deliver_at_ms or delay_ms",
    ),
    MessageFault.TOPIC_MISSING: (Code.INVALID, "Message.topic: required"),
    MessageFault.TOPIC_NAME: (Code.INVALID, f"Message.topic: {NAME_RULE}"),
    MessageFault.TOPIC_TEXT: (Code.INVALID, "Message.topic: valid UTF-8"),
    MessageFault.BODY_SIZE: (Code.TOO_LARGE, "Message.body: larger than this gateway takes (4 MiB unless configured)"),
    MessageFault.KEY_SIZE: (Code.INVALID, "Message.key: at most 4096 bytes"),
    MessageFault.KEY_TEXT: (Code.INVALID, "Message.key: valid UTF-8"),
    MessageFault.TAG_WORD: (Code.INVALID, "Message.tag: one word, not empty, without spaces or control characters"),
    MessageFault.TAG_SIZE: (Code.INVALID, "Message.tag: at most 128 bytes"),
    MessageFault.TAG_TEXT: (Code.INVALID, "Message.tag: valid UTF-8"),
    MessageFault.PROPERTIES_COUNT: (Code.INVALID, "Message.properties: at most 64 entries"),
    MessageFault.PROPERTIES_SIZE: (Code.TOO_LARGE, "Message.properties: at most 32 KiB of names and values"),
    MessageFault.PROPERTIES_TEXT: (Code.INVALID, "Message.properties: valid UTF-8"),
    MessageFault.ID_SIZE: (Code.INVALID, "Message.id: 1 to 64 characters"),
    MessageFault.ID_TEXT: (Code.INVALID, "Message.id: valid UTF-8"),
    MessageFault.DELIVER_AT: (Code.INVALID, "Message.deliver_at_ms: Unix milliseconds from 0 to the end of year 9999"),
    MessageFault.DELAY: (Code.INVALID, "Message.delay_ms: not negative and not beyond year 9999"),
    MessageFault.DELIVER_AT_AND_DELAY: (Code.INVALID, "Message.deliver_at_ms and delay_ms: set at most one of the two"),
    MessageFault.OPERATION: (Code.INVALID, "Message.operation: one of the values of Operation"),
    MessageFault.CANCEL_ID: (Code.INVALID, "Message.id: required to cancel"),
    MessageFault.MESSAGE_SIZE: (Code.TOO_LARGE, "Message: its fields beside the body take more than 64 KiB"),
}

ACK_FAULTS = {
    AckFault.RECEIPT_MISSING: (Code.INVALID, "Ack.receipt: required"),
    AckFault.VERDICT: (Code.INVALID, "Ack.verdict: one of the values of Verdict"),
    AckFault.DELAY: (Code.INVALID, "Ack.delay_ms: not negative"),
    AckFault.REASON_TEXT: (Code.INVALID, "Ack.reason: valid UTF-8"),
}


class WireError(Exception):
    """The bytes are not a call of this gateway. The connection may stay open if its framing is intact.

    Attributes:
        rule: the WireFault.
        at: offset in the frame of the offending byte.
        field: "Struct.name" of a known field, else "".
        seqid: of the call, for the answer; 0 when the header itself is invalid.
    """

    def __init__(self, rule: int, at: int, field: int = 0, seqid: int = 0):
        self.rule = WireFault(rule)
        self.at = at
        self.field = FIELDS.get(field, "")
        self.seqid = seqid
        super().__init__(self.sentence)

    @property
    def sentence(self) -> str:
        """One sentence without any of the call's bytes."""
        where = f"{self.field}: " if self.field else ""
        rule = WIRE_SENTENCES[self.rule].replace("{limit}", str(_LIST_LIMITS.get(self.field)))
        return f"{where}{rule} (byte {self.at})"

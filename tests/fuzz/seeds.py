"""The frames that fuzzing starts from: each feature of the contract once, and each way of lying that was found so far."""

from common import contract
from common.contract import Ack, Credential, Message, Position, PullRequest, SendRequest
from tests.unit.common.wire.frames import (
    BYTE,
    DOUBLE,
    I16,
    LIST,
    MAP,
    SET,
    STRING,
    STRUCT,
    field,
    header,
    i32,
    list_of,
    map_of,
    message,
    nested,
    pull,
    send,
    struct_of,
    text,
)

CREDENTIAL = Credential(app="shop", key_id="k1", issued_at_ms=1_714_000_000_000, signature=b"s" * 32)


def send_of(*messages: Message, **options) -> bytes:
    return contract.encode_call("send", 1, SendRequest(credential=CREDENTIAL, messages=list(messages), **options))


def pull_of(**options) -> bytes:
    return contract.encode_call("pull", 2, PullRequest(credential=CREDENTIAL, group="billing", **options))


FULL = Message(
    topic="shop.order.paid",
    body=b"\x00\xffbody",
    key="schlüssel",
    tag="eu",
    properties={"region": "eu", "größe": "€"},
    id="order-1",
    deliver_at_ms=1_714_000_060_000,
    operation=0,
)

SEEDS = {
    "send-least": send_of(Message(topic="t")),
    "send-full": send_of(FULL, timeout_ms=1000, durability=2),
    "send-batch": send_of(*[Message(topic=f"t{i}", body=b"b" * i, key=str(i)) for i in range(20)]),
    "send-request": send_of(Message(topic="rpc", body=b"?"), reply_wait_ms=500),
    "send-reply": send_of(Message(topic="", body=b"!", reply_to=b"token")),
    "send-cancel": send_of(Message(topic="t", id="x", operation=1)),
    "send-delayed": send_of(Message(topic="t", delay_ms=5000), Message(topic="t", delay_ms=1, deliver_at_ms=1)),
    "send-bad-messages": send_of(Message(topic="a/b"), Message(topic="t", id=""), Message(topic="t", tag="a b"), FULL),
    "send-empty": send_of(),
    "send-no-topic": send(message(topic=None), message()),
    "send-twice": send(message(field(STRING, 1, text(b"u"))), more=field(LIST, 2, list_of(STRUCT, message()))),
    "send-unknown-fields": send(
        message(field(DOUBLE, 20, bytes(8)), field(SET, 21, list_of(I16, b"\0\1"))),
        more=field(MAP, 22, map_of((b"a", b"b"))),
        arguments_more=field(STRUCT, 23, struct_of(field(BYTE, 1, b"\1"))),
    ),
    "send-nested": send(message(field(STRUCT, 99, nested(STRUCT, 12)), field(LIST, 98, nested(LIST, 12)))),
    "send-too-deep": send(message(field(MAP, 99, nested(MAP, 40)))),
    "send-lying-count": send(message(field(LIST, 99, b"\0" + i32(2**31 - 1)))),
    "send-lying-size": send(message(field(STRING, 2, i32(2**31 - 1)))),
    "send-bad-text": send(message(field(STRING, 3, text(b"\xed\xa0\x80")), field(MAP, 5, map_of((b"\xff", b"\xfe"))))),
    "pull-least": pull_of(),
    "pull-full": pull_of(
        topics=["a", "b"],
        max_messages=10,
        max_bytes=1000,
        wait_ms=1000,
        acks=[Ack(receipt=b"r" * 52)],
        invisible_ms=60_000,
    ),
    "pull-acks": pull_of(
        acks=[Ack(receipt=bytes([i]) * 52, verdict=i % 5, delay_ms=i - 1, reason="später") for i in range(10)]
    ),
    "pull-positions": pull_of(
        positions=[Position(topic="t", queue=0, offset=5, end_offset=9), Position(topic="t", queue=1, at_time_ms=-1)]
    ),
    "pull-topics": pull_of(max_messages=0, topics_after="orders"),
    "pull-bad-names": pull(field(LIST, 3, list_of(STRING, text(b".."), text(b"\xff"))), group=b"a/b"),
    "other-method": header(b"largest", kind=4) + struct_of(),
}

"""Whole frames of the links, one or more per operation: what mutation starts from."""

import json

from engine.link import operations as op
from engine.link.append import MEMORY, encode_append, encode_resend
from engine.link.batch import encode_batch
from engine.link.claim import Claim, encode_claims
from engine.link.copy import encode_state_question
from engine.link.find import encode_find
from engine.link.frame import VERSION
from engine.link.look_up import encode_look_up
from engine.link.produce import ProducedMessage, encode_produce
from engine.link.proof import NONCE_SIZE
from engine.link.pull import encode_pull
from engine.link.read import ReadPosition, ReadQuestion
from engine.link.record import encode_record
from engine.link.timer import encode_cancel, encode_list
from engine.link.topic import encode_topics
from engine.log.epochs import EpochStart
from engine.replication.frames import Fetch, Follow, StoredFrame, SyncFrame
from tests.link_bytes import frame

MESSAGE = b"\x0b\x00\x01\x00\x00\x00\x06orders\x0b\x00\x02\x00\x00\x00\x04body\x00"


def of_strangers() -> list[bytes]:
    """HELLO and AUTH, and operations that need a proof."""
    hello = {"version": VERSION, "role": "test", "nonce": bytes(NONCE_SIZE).hex(), "name": "a"}
    return [
        frame(op.HELLO, json.dumps(hello).encode()), frame(op.AUTH, bytes(32)),
        frame(op.ADMIN, b'{"verb": "status"}'), frame(op.APPEND, bytes(64)),
    ]  # fmt: skip


def of_proxies(topic: str) -> list[bytes]:
    """What a proxy asks of an engine."""
    append = encode_append(MEMORY, *[encode_batch(1, 0, [encode_record(MESSAGE)] * 3)] * 2)
    quota = {
        "role": "producer_proxy",
        "process": "p",
        "limits": [{"key": "app:shop", "total": 10, "demand": 1}],
        "live": ["p"],
    }
    backlog = {"topics": [{"name": topic, "groups": ["g"], "messages": 10, "bytes": 0, "age_ms": 0}]}
    asked = {
        op.APPEND: append, op.RESEND: encode_resend(4096, append), op.TOPIC: encode_topics([(topic, 1)]),
        op.PULL: encode_pull("g", [(topic, 1)], max_messages=3, invisible_ms=1_000), op.WINDOW: bytes(8),
        op.READ: ReadQuestion([ReadPosition(topic, 0, 0)], 3).encode(), op.LEASE: json.dumps(quota).encode(),
        op.BACKLOG: json.dumps(backlog).encode(), op.CLAIM: encode_claims(MEMORY, [Claim(topic, 1, "id", 0, 1_000)]),
        op.LOOK_UP_ID: encode_look_up(0, 3, None, topic=topic, id="x"),
        op.LOOK_UP_KEY: encode_look_up(0, 3, None, topic=topic, key="x"),
        op.TIMER_CANCEL: encode_cancel(MEMORY, topic, "id"), op.TIMER_LIST: encode_list(topic, 0, 10),
        op.SOURCE_STATE: encode_state_question([(topic, 0)]), op.ADMIN: b'{"verb": "status"}',
        op.REPLY: bytes(60), op.FORWARD: bytes(60), op.LISTEN: bytes(16), op.COPY: append,
        op.TIMER_ADD: append, op.CANCEL: b"",
    }  # fmt: skip
    return [frame(operation, payload) for operation, payload in asked.items()]


def of_slaves() -> list[bytes]:
    """What a slave asks of its master."""
    starts = (EpochStart(1, 0), EpochStart(2, 64))
    return [
        frame(op.FOLLOW, Follow(1, 7, 4096, starts).encode()), frame(op.FOLLOW, Follow(1, 7, 0).encode()),
        frame(op.STORED, StoredFrame(1, 4096, 64).encode()), frame(op.FETCH, Fetch(0, 0, 4096).encode()),
        frame(op.FETCH, Fetch(0, 64, 1 << 20, 1).encode()), frame(op.SYNC, SyncFrame(1, 64).encode()),
        frame(op.SEGMENT, bytes(68)), frame(op.BYTES, bytes(20)),
    ]  # fmt: skip


def of_bridge_links() -> list[bytes]:
    """What a producer proxy asks of a Kafka bridge."""
    messages = [ProducedMessage(0, -1, None, MESSAGE), ProducedMessage(0, 0, bytes(16), MESSAGE)]
    return [
        frame(op.PRODUCE, encode_produce("nowhere", ["orders"], 10, messages)),
        frame(op.FIND, encode_find("nowhere", "orders", 0, ["a", "b"])), frame(op.HELLO, b"{}"),
    ]  # fmt: skip

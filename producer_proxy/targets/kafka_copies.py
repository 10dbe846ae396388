"""Copies of messages on a Kafka cluster, by id: the bridge reads the records since a time."""

import time
from collections.abc import Sequence

from common.contract import Code
from engine.client.rpc import RpcClient
from engine.link.codes import OK
from engine.link.errors import PayloadError
from engine.link.find import decode_found, encode_find
from engine.link.operations import FIND
from producer_proxy.targets.base import MessageSlice, Outcome


def stored_copies(
    link: RpcClient | None, cluster: str, messages: Sequence[MessageSlice], shown_ids: Sequence[str], since_ms: int,
    deadline_s: float,
) -> list[Outcome]:  # fmt: skip
    """See SendTarget.stored_copies. One question per topic."""
    outcomes: list[Outcome] = [(int(Code.UNAVAILABLE), None, None)] * len(messages)
    by_topic: dict[str, list[int]] = {}
    for index, message in enumerate(messages):
        by_topic.setdefault(message.destination.name, []).append(index)
    for topic, indexes in by_topic.items():
        if link is None or not link.connected:
            break
        question = encode_find(cluster, topic, since_ms, [shown_ids[index] for index in indexes])
        code, answer = link.call(FIND, question, max(0.0, deadline_s - time.monotonic()))
        try:
            partitions = decode_found(answer) if code == OK else None
        except PayloadError:
            partitions = None
        if partitions is None:
            continue
        for index in indexes:
            found = partitions.get(shown_ids[index])
            outcomes[index] = (int(Code.OK), None, None) if found is None else (int(Code.DUPLICATE), found, None)
    return outcomes

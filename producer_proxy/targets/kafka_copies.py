"""Copies of messages on a Kafka cluster, by id: the bridge reads the records since a time."""

import time
from collections.abc import Callable, Iterator, Sequence

from common.contract import Code
from engine.client.rpc import RpcClient
from engine.link.codes import OK, TOO_LARGE
from engine.link.errors import PayloadError
from engine.link.find import decode_counts, decode_found, encode_find
from engine.link.operations import FIND
from producer_proxy.targets.base import UNCOUNTABLE, MessageSlice, Outcome


def stored_copies(
    link: RpcClient | None, cluster: str, messages: Sequence[MessageSlice], shown_ids: Sequence[str], since_ms: int,
    deadline_s: float,
) -> list[Outcome]:  # fmt: skip
    """See SendTarget.stored_copies. One question per topic."""
    outcomes: list[Outcome] = [(int(Code.UNAVAILABLE), None, None)] * len(messages)
    for indexes, _, found in _asked(link, cluster, messages, shown_ids, since_ms, deadline_s, False, decode_found):
        if found is None:
            continue
        for index in indexes:
            partition = found.get(shown_ids[index])
            is_there = partition is not None
            outcomes[index] = (int(Code.DUPLICATE), partition, None) if is_there else (int(Code.OK), None, None)
    return outcomes


def count_copies(
    link: RpcClient | None, cluster: str, messages: Sequence[MessageSlice], shown_ids: Sequence[str], since_ms: int,
    deadline_s: float,
) -> list[int | None]:  # fmt: skip
    """See SendTarget.count_copies. One question per topic."""
    counts: list[int | None] = [None] * len(messages)
    for indexes, code, found in _asked(link, cluster, messages, shown_ids, since_ms, deadline_s, True, decode_counts):
        for index in indexes:
            if found is not None:
                counts[index] = found.get(shown_ids[index], 0)
            elif code == TOO_LARGE:
                counts[index] = UNCOUNTABLE
    return counts


def _asked(
    link: RpcClient | None, cluster: str, messages: Sequence[MessageSlice], shown_ids: Sequence[str], since_ms: int,
    deadline_s: float, is_counted: bool, decode: Callable[[bytes], dict[str, int]],
) -> Iterator[tuple[list[int], int, dict[str, int] | None]]:  # fmt: skip
    """(indexes of a topic's messages, code, the answer's numbers by id), of the topics that were asked about."""
    by_topic: dict[str, list[int]] = {}
    for index, message in enumerate(messages):
        by_topic.setdefault(message.destination.name, []).append(index)
    for topic, indexes in by_topic.items():
        if link is None or not link.connected:
            break
        question = encode_find(cluster, topic, since_ms, [shown_ids[index] for index in indexes], is_counted)
        code, answer = link.call(FIND, question, max(0.0, deadline_s - time.monotonic()))
        try:
            numbers = decode(answer) if code == OK else None
        except PayloadError:
            numbers = None
        yield indexes, code, numbers

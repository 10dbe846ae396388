"""`GET /deliveries?topic=&queue=&offset=` on the operator's port of a consumer proxy: the clients that got one message.

It needs no proof, as /connections does not. Only the last replies are known: of the message an answer may be empty.
"""

from collections.abc import Callable, Mapping
from typing import Any

from common.operator_proof import DELIVERIES_PATH
from common.ops.connection_pages import MorePages, OpsAnswer, OpsRequest

DIGITS_MAX = 19
DeliveriesOf = Callable[[str, int, int], list[dict[str, Any]]]
"""(topic, queue, offset) → rows, the newest first."""


def delivery_pages(deliveries_of: DeliveriesOf) -> MorePages:
    """The page by path."""

    def show(asked: OpsRequest) -> OpsAnswer:
        if asked.method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", {"error": "method not allowed: use GET"}
        topic, queue, offset = (
            asked.query.get("topic", ""),
            _number(asked.query, "queue"),
            _number(asked.query, "offset"),
        )
        if not topic or queue is None or offset is None:
            return "400 Bad Request", {"error": "use topic, queue and offset, the last two as whole numbers from 0"}
        return "200 OK", {"deliveries": deliveries_of(topic, queue, offset)}

    return {DELIVERIES_PATH: show}


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else None

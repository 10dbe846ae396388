"""Deliveries of one message, as the consumer proxies remember them: their last replies, per connection."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlencode

from common.admin.proxy_pages import FAILURES, ask, ask_each, proxies, unanswered
from common.config.reported_process import Address
from common.config.store import ConfigStore
from common.operator_proof import DELIVERIES_PATH

CONSUMER_PROXY = "consumer_proxy@"


class DeliveryRow(NamedTuple):
    """A reply that carried the message.

    Attributes:
        process: the proxy. peer: the client's address and port. open: whether its connection still is.
        lease: the engine's number of the lease.
    """

    process: str
    peer: str
    at_ms: int
    group: str
    application: str = ""
    open: bool = False
    lease: int = 0


@dataclass(frozen=True)
class DeliveriesTold:
    """The rows of all proxies, the newest first, and a sentence per proxy that did not answer."""

    rows: Sequence[DeliveryRow] = ()
    faults: Sequence[str] = field(default_factory=list)


def list_deliveries(store: ConfigStore, topic: str, queue: int, offset: int) -> DeliveriesTold:
    """The known deliveries of a message. Raises StoreUnavailable."""
    pages = {name: address for name, address in proxies(store).items() if name.startswith(CONSUMER_PROXY)}
    query = urlencode({"topic": topic, "queue": queue, "offset": offset})
    rows: list[DeliveryRow] = []
    faults = []
    for process, answer in ask_each(pages, partial(_try_list, query)).items():
        if isinstance(answer, str):
            faults.append(f"{process}: {answer}")
        else:
            rows += [_row(process, each) for each in answer]
    return DeliveriesTold(sorted(rows, key=lambda row: row.at_ms, reverse=True), faults)


def _try_list(query: str, address: Address) -> list[dict[str, Any]] | str:
    """The rows of one proxy, or why there are none."""
    try:
        status, answer = ask(address, "GET", f"{DELIVERIES_PATH}?{query}")
    except FAILURES as error:
        return unanswered(address, error)
    if status == 404:
        return "its version does not tell deliveries"
    return answer["deliveries"] if status == 200 else str(answer.get("error", f"status {status}"))


def _row(process: str, row: Mapping[str, Any]) -> DeliveryRow:
    """The fields that this version knows; a proxy of a later version may tell more."""
    return DeliveryRow(process=process, **{name: row[name] for name in DeliveryRow._fields if name in row})

"""Connections of clients to the proxies: listed and closed through the operator's port of each proxy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlencode

from common.admin import audit
from common.admin.administrator import Administrator
from common.admin.errors import StateConflict
from common.admin.proxy_pages import FAILURES, ProxyPageError, ask, ask_each, ask_proved, proxies, unanswered
from common.config.errors import EntryNotFound, InvalidEntry
from common.config.reported_process import Address
from common.config.store import ConfigStore
from common.operator_proof import CLOSE_PATH, CONNECTIONS_PATH, OperatorKeys
from common.quoting import quoted


class ConnectionRow(NamedTuple):
    """One open connection, as its proxy tells it.

    Attributes:
        process: that serves it. peer: the client's address and port.
        application: of its last call; empty: no call was accepted yet.
        group: as which it pulled last, and topics of that pull (topic_count: of them all); a producer proxy tells none.
        answered_bytes: what was sent to the client.
    """

    process: str
    id: str
    peer: str
    tls: bool
    since_ms: int
    application: str = ""
    group: str = ""
    topics: tuple[str, ...] = ()
    topic_count: int = 0
    is_waiting: bool = False
    answered_bytes: int = 0

    @property
    def kind(self) -> str:
        """The kind of its proxy: producer_proxy or consumer_proxy."""
        return self.process.partition("@")[0]


@dataclass(frozen=True)
class ConnectionsTold:
    """The answers of all proxies.

    Attributes:
        rows: the wanted ones, longest open first, at most the limit. total: how many there are.
        faults: a sentence per proxy that did not answer.
    """

    rows: Sequence[ConnectionRow] = ()
    total: int = 0
    faults: Sequence[str] = field(default_factory=list)


def list_connections(store: ConfigStore, wanted: Mapping[str, str], limit: int) -> ConnectionsTold:
    """The open connections of all proxies in contact with the store.

    Args:
        wanted: id, application, group, topic; empty or missing ones want all. A topic is reached, at a producer proxy, by
            connections whose application may send to it, and at a consumer proxy by those whose last pull reads it.
    Raises:
        StoreUnavailable.
    """
    pages = proxies(store)
    query = urlencode({**{name: value for name, value in wanted.items() if value}, "limit": limit})
    answers = ask_each(pages, partial(_try_list, query))
    rows: list[ConnectionRow] = []
    total, faults = 0, []
    for process, answer in answers.items():
        if isinstance(answer, str):
            faults.append(f"{process}: {answer}")
            continue
        total += answer["total"]
        rows += [ConnectionRow(process=process, **_known(each)) for each in answer["connections"]]
    if len(answers) < len(pages):
        faults.append(f"{len(pages) - len(answers)} more proxies were not asked")
    rows.sort(key=lambda row: (row.since_ms, row.process, row.id))
    return ConnectionsTold(rows[:limit], total, faults)


def find_connection(store: ConfigStore, id: str) -> ConnectionRow:
    """The connection with this id. Raises EntryNotFound, InvalidEntry, ProxyPageError, StoreUnavailable."""
    if not (id.isascii() and 0 < len(id) <= 40):
        raise InvalidEntry(f"connection {quoted(id[:80])}: invalid id: use one of the list")
    told = list_connections(store, {"id": id}, 1)
    if not told.rows:
        if told.faults:
            raise ProxyPageError(f"connection {quoted(id)}: not found, and {told.faults[0]}")
        raise EntryNotFound(f"connection {quoted(id)}: not found: it is closed already")
    return told.rows[0]


def close_connection(admin: Administrator, keys: OperatorKeys, id: str) -> ConnectionRow:
    """Close a connection, and return what it was. Its client connects again, if it is one that does.

    A call in progress gets no answer, as when a network breaks. The application may connect again: who must not needs
    its key revoked.

    Raises:
        EntryNotFound: it is closed already. ProxyPageError, StateConflict, StoreUnavailable.
    """
    found = find_connection(admin.store, id)
    address = proxies(admin.store).get(found.process)
    if address is None:
        raise EntryNotFound(f"connection {quoted(id)}: not found: its proxy has stopped")
    status, answer = ask_proved(address, found.process, CLOSE_PATH, id.encode(), keys, admin.clock)
    if status == 404:
        raise EntryNotFound(f"connection {quoted(id)}: not found: it is closed already")
    if status != 200:
        raise StateConflict(f"{found.process}: {answer.get('error', f'status {status}')}")
    audit.record(admin.store, admin.clock, admin.who, "close", "connection", [id], shown(found), None)
    return found


def shown(row: ConnectionRow) -> dict[str, Any]:
    """The fields of a connection that the audit log keeps."""
    return {"process": row.process, "peer": row.peer, "application": row.application, "group": row.group}


def _try_list(query: str, address: Address) -> dict[str, Any] | str:
    """The answer of one proxy, or why there is none."""
    try:
        status, answer = ask(address, "GET", f"{CONNECTIONS_PATH}?{query}")
    except FAILURES as error:
        return unanswered(address, error)
    if status == 404:
        return "its version does not tell its connections"
    return answer if status == 200 else str(answer.get("error", f"status {status}"))


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that this version knows; a proxy of a later version may tell more."""
    found = {name: row[name] for name in ConnectionRow._fields if name in row}
    return {**found, "topics": tuple(found.get("topics", ()))}

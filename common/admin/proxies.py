"""Proxies: listed with what they do, taken out of service and put back, through the operator's port of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from common.admin import audit
from common.admin.administrator import Administrator
from common.admin.errors import StateConflict
from common.admin.proxy_pages import FAILURES, ProxyPageError, ask, ask_each, ask_proved, proxies, unanswered
from common.config.errors import EntryNotFound, InvalidEntry
from common.config.reported_process import Address, parse_name
from common.config.store import ConfigStore
from common.operator_proof import BACK, DRAIN_PATH, OUT, OperatorKeys
from common.quoting import quoted

SERVING, DRAINING, DRAINED = "serving", "draining", "drained"


@dataclass(frozen=True)
class ProxyStanding:
    """One proxy, as it tells itself.

    Attributes:
        process: the name of its report.
        state: serving, draining or drained; empty: see `fault`.
        calls: in progress, long polls included. answers: that have not left as a whole.
        passed_on: calls (at a producer proxy: messages) that it has sent to other proxies since it was drained.
        left: what it still keeps, by name; a producer proxy tells of its fallback buffer and its repair journal.
        turn: names this state for a change of it.
    """

    process: str
    state: str = ""
    calls: int = 0
    answers: int = 0
    connections: int = 0
    passed_on: int = 0
    out_s: float = 0.0
    left: Mapping[str, int] = field(default_factory=dict)
    turn: str = ""
    fault: str = ""

    @property
    def kind(self) -> str:
        """producer_proxy or consumer_proxy."""
        return self.process.partition("@")[0]

    @property
    def address(self) -> str:
        """Host and port that it serves."""
        return self.process.partition("@")[2].partition("/")[0]


def list_proxies(store: ConfigStore) -> list[ProxyStanding]:
    """All proxies in contact with the store, by name. Raises StoreUnavailable."""
    pages = proxies(store)
    told = ask_each(pages, _try_read)
    return [_standing(process, told.get(process, "it was not asked, as there are too many")) for process in pages]


def find_proxy(store: ConfigStore, wanted: str) -> str:
    """The name of the only proxy that is meant: by its name or a part of it before `@` or `/`, or by the address it serves.

    Raises EntryNotFound, InvalidEntry (several are meant), StoreUnavailable.
    """
    names = list(proxies(store))
    found = [name for name in names if wanted.replace("-", "_") in _short_names(name) or wanted in _short_names(name)]
    if not found:
        known = ", ".join(name.partition("/")[0] for name in names) or "none is in contact with the configuration"
        raise EntryNotFound(f"proxy {quoted(wanted[:80])}: not found: use one of {known}")
    if len(found) > 1:
        raise InvalidEntry(f"proxy {quoted(wanted)}: several are meant: use one of {', '.join(found)}")
    return found[0]


def standing(store: ConfigStore, process: str) -> ProxyStanding:
    """One proxy by the name of its report. Raises ProxyPageError, StoreUnavailable."""
    return _standing(process, _try_read(_address(store, process)))


def drain(admin: Administrator, keys: OperatorKeys, process: str) -> ProxyStanding:
    """Have a proxy answer SHUTTING_DOWN to further calls, which makes clients use another one. Returns at once.

    A proxy that starts again serves again.

    Raises:
        ProxyPageError, StateConflict (somebody else changed it at the same time), StoreUnavailable.
    """
    return _change(admin, keys, process, OUT)


def undrain(admin: Administrator, keys: OperatorKeys, process: str) -> ProxyStanding:
    """As drain(), the other way."""
    return _change(admin, keys, process, BACK)


def others_serving(store: ConfigStore, process: str) -> int:
    """The number of other proxies of its kind that serve. Raises StoreUnavailable."""
    kind = process.partition("@")[0]
    return sum(each.state == SERVING for each in list_proxies(store) if each.kind == kind and each.process != process)


def _change(admin: Administrator, keys: OperatorKeys, process: str, wanted: str) -> ProxyStanding:
    before = standing(admin.store, process)
    if before.fault:
        raise ProxyPageError(f"{process}: {before.fault}")
    if (before.state == SERVING) is (wanted == BACK):
        return before
    body = f"{wanted} {before.turn}".encode()
    status, answer = ask_proved(_address(admin.store, process), process, DRAIN_PATH, body, keys, admin.clock)
    if status != 200:
        raise StateConflict(f"{process}: {answer.get('error', f'status {status}')}")
    after = _standing(process, answer)
    action = "drain" if wanted == OUT else "undrain"
    audit.record(
        admin.store, admin.clock, admin.who, action, "proxy", [process], {"state": before.state}, {"state": after.state}
    )
    return after


def _address(store: ConfigStore, process: str) -> Address:
    address = proxies(store).get(process)
    if address is None:
        raise ProxyPageError(f"{process}: it has stopped, or has lost the configuration store")
    return address


def _short_names(name: str) -> set[str]:
    place = parse_name(name)
    assert place is not None  # proxies() has parsed it
    host = f"[{place.host}]" if ":" in place.host else place.host
    own_host = f"[{place.address[0]}]" if ":" in place.address[0] else place.address[0]
    return {name, name.partition("/")[0], place.kind, f"{host}:{place.port}", f"{own_host}:{place.port}"}


def _try_read(address: Address) -> dict[str, Any] | str:
    """The page of one proxy, or why there is none."""
    try:
        status, answer = ask(address, "GET", DRAIN_PATH)
    except FAILURES as error:
        return unanswered(address, error)
    if status == 404:
        return "its version cannot be drained"
    return answer if status == 200 else str(answer.get("error", f"status {status}"))


def _standing(process: str, told: dict[str, Any] | str) -> ProxyStanding:
    """The fields of a proxy's answer that this version knows, or its fault. A later version may send more fields."""
    if isinstance(told, str):
        return ProxyStanding(process, fault=told)
    names = ("state", "calls", "answers", "connections", "passed_on", "out_s", "left", "turn")
    return ProxyStanding(process, **{name: told[name] for name in names if name in told})

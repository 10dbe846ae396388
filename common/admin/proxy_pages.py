"""The operator's ports of the proxies: which there are, and one request to one of them."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from common.clock import Clock
from common.config.reported_process import Address, ops_pages
from common.config.store import ConfigStore
from common.errors import PenstockError
from common.operator_proof import OperatorKeys
from common.ops.page_reader import read_page

T = TypeVar("T")
Answer = tuple[int, dict[str, Any]]
"""Status and value of a page. 404 with an empty value: the proxy's version does not have the page."""

PROXIES = ("producer_proxy@", "consumer_proxy@")
PROXIES_MAX = 200
"""Proxies that are asked, the first by name."""

ASKED_AT_ONCE = 16
FAILURES = (OSError, ValueError)


class ProxyPageError(PenstockError, ConnectionError):
    """The operator's port of a proxy does not answer, or refuses: a ConnectionError, as it may answer later."""


def proxies(store: ConfigStore) -> dict[str, Address]:
    """The operator's port of each proxy in contact with the store, by the name of its report. Raises StoreUnavailable."""
    pages = ops_pages(store.applied())
    return {process: address for process, address in pages.items() if process.startswith(PROXIES)}


def ask_each(pages: Mapping[str, Address], ask_one: Callable[[Address], T]) -> dict[str, T]:
    """The answer of `ask_one` for each of the first PROXIES_MAX, several at a time."""
    asked = dict(list(pages.items())[:PROXIES_MAX])
    with ThreadPoolExecutor(max(1, min(ASKED_AT_ONCE, len(asked)))) as pool:
        return dict(zip(asked, pool.map(ask_one, asked.values()), strict=True))


def unanswered(address: Address, error: Exception) -> str:
    """Why there is no answer, in words."""
    return f"its operator's port does not answer at {address[0]}:{address[1]} ({error})"


def ask(
    address: Address, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> Answer:
    """One request. Raises one of FAILURES."""
    answer = read_page(address, path, method=method, body=body, headers=headers)
    if answer.status == 404 and not answer.text.startswith("{"):
        return 404, {}
    return answer.status, answer.value()


def ask_proved(address: Address, process: str, path: str, body: bytes, keys: OperatorKeys, clock: Clock) -> Answer:
    """One POST with an operator's proof. Raises ProxyPageError without an answer.

    Args:
        process: the name of its report.
    """
    headers = keys.headers(process.partition(";")[0], path, clock.now_ms(), body)
    try:
        return ask(address, "POST", path, body, headers)
    except FAILURES as error:
        raise ProxyPageError(f"{process}: its operator's port does not answer: {error}") from error

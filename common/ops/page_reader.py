"""Reads pages of the operators' ports of processes: one request each, bounded in time and bytes."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

PAGE_S_MAX = 2.0
PAGE_BYTES_MAX = 8 << 20
OK, NOT_READY = 200, 503

Address = tuple[str, int]


class PageAnswer(NamedTuple):
    """The answer of a process. Bytes that are not UTF-8 are replaced."""

    status: int
    text: str

    def value(self) -> dict[str, Any]:
        """The JSON object of the page. Raises ValueError for anything else."""
        found = json.loads(self.text)
        if not isinstance(found, dict):
            raise ValueError("the answer is not that of a Penstock process")
        return found


class Readiness(NamedTuple):
    """The content of /readyz. Faults and notes are sentences by their subject."""

    is_ready: bool
    faults: Mapping[str, str]
    notes: Mapping[str, str]


def read_page(
    address: Address, path: str, *, method: str = "GET", body: bytes = b"", headers: Mapping[str, str] | None = None,
    timeout_s: float = PAGE_S_MAX,
) -> PageAnswer:  # fmt: skip
    """One request, whatever its status. Blocks; raises OSError where there is no answer of HTTP."""
    import http.client  # not at import: commands that read no page do not wait for it

    link = http.client.HTTPConnection(address[0], address[1], timeout=timeout_s)
    try:
        link.request(method, path, body or None, dict(headers or {}))
        answer = link.getresponse()
        return PageAnswer(answer.status, answer.read(PAGE_BYTES_MAX).decode("utf-8", "replace"))
    except http.client.HTTPException as error:
        raise OSError(str(error) or type(error).__name__) from error
    finally:
        link.close()


def read_text(address: Address, path: str) -> str:
    """The text of a page. Raises OSError, also for another status than 200."""
    found = read_page(address, path)
    if found.status != OK:
        raise OSError(f"{path} answers {found.status}")
    return found.text


def readiness_of(answer: PageAnswer) -> Readiness:
    """Raises ValueError for what is no answer of /readyz."""
    state = answer.value()
    try:
        return Readiness(bool(state["ready"]), dict(state["faults"]), dict(state["notes"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"/readyz answers {answer.text[:80]!r}") from error

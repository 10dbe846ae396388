"""The console's API, as a report on traffic uses it: refusals in, minutes out."""

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from common.secret_file import secret_fault
from pipeline.errors import ConsoleRefused, OptionsError
from pipeline.traffic.minutes import ReportedChunk
from pipeline.traffic.refusals import RefusedMessages, read_refusals

TIMEOUT_S = 60.0
CHUNKS_PER_CALL = 20
ANSWER_BYTES_MAX = 64 << 20
ERROR_CHARS = 300


class ConsoleApi:
    """
    Args:
        url: of the console, such as https://penstock.example.
        token_file: path of a file with an API token, which other users may not read.
    Raises:
        OptionsError: the file cannot be used, or the URL is none.
    """

    def __init__(self, url: str, token_file: str) -> None:
        faults = [] if urlsplit(url).scheme in ("http", "https") else [f"console {url!r}: use http:// or https://"]
        if fault := secret_fault(Path(token_file), 1, "console token"):
            faults.append(fault)
        if faults:
            raise OptionsError(faults)
        self._url, self._token = url.rstrip("/"), Path(token_file).read_text().strip()

    def refusals(self, topic: str, begin_s: int, end_s: int) -> list[RefusedMessages]:
        """Raises ConsoleRefused."""
        return read_refusals(
            self._call(f"/refused?{urlencode({'topic': topic, 'begin_s': begin_s, 'end_s': end_s})}", None)
        )

    def feed(self, chunks: Sequence[ReportedChunk]) -> int:
        """Give minutes to the history; returns how many it did not have, or had with fewer messages.

        Raises:
            ConsoleRefused: what was given before it is kept, and may be given again.
        """
        taken = 0
        for first in range(0, len(chunks), CHUNKS_PER_CALL):
            part = [
                {"topic": each.topic, "begin_s": each.begin_s, **each.figures}
                for each in chunks[first : first + CHUNKS_PER_CALL]
            ]
            taken += int(self._call("/traffic", {"chunks": part}).get("minutes", 0))
        return taken

    def _call(self, path: str, value: Any) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(f"{self._url}/api/v1{path}", data, headers)
        try:
            with _OPENER.open(request, timeout=TIMEOUT_S) as answer:
                found = json.loads(answer.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            raise ConsoleRefused(f"console {self._url}: {error.code}: {_sentence(error)}") from error
        except (OSError, ValueError) as error:
            raise ConsoleRefused(f"console {self._url}: {error}") from error
        if not isinstance(found, dict):
            raise ConsoleRefused(f"console {self._url}: the answer is no JSON object")
        return found


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the token elsewhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _sentence(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(1 << 16))["error"])[:ERROR_CHARS]
    except (OSError, ValueError, KeyError, TypeError):
        return str(error.reason)

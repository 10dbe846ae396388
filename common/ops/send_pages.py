"""The page of a producer proxy's operator's port with outcomes of sends per topic: its path, and a reader of it."""

import http.client
import json
from collections.abc import Mapping
from typing import NamedTuple

SENDS_PATH = "/sends"
PAGE_S_MAX = 3.0
PAGE_BYTES_MAX = 4 << 20


class TopicSendCounts(NamedTuple):
    """Messages with an outcome within the page's window."""

    stored: int
    failed: int


def read_sends(host: str, port: int) -> Mapping[str, TopicSendCounts]:
    """The counts by topic, of topics that had any.

    Raises:
        OSError: the page cannot be read. ValueError: it is another one: the proxy is of an older version.
    """
    connection = http.client.HTTPConnection(host, port, timeout=PAGE_S_MAX)
    try:
        connection.request("GET", SENDS_PATH)
        answer = connection.getresponse()
        body = answer.read(PAGE_BYTES_MAX)
    except http.client.HTTPException as error:
        raise OSError(str(error) or type(error).__name__) from error
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise ValueError(f"{SENDS_PATH} answers {answer.status}")
    try:
        return {name: TopicSendCounts(*map(int, counts)) for name, counts in json.loads(body)["topics"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{SENDS_PATH} has another form") from error

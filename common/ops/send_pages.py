"""The page of a producer proxy's operator's port with outcomes of sends per topic: its path, and a reader of it."""

from collections.abc import Mapping
from typing import NamedTuple

from common.ops.page_reader import OK, read_page

SENDS_PATH = "/sends"
PAGE_S_MAX = 3.0


class TopicSendCounts(NamedTuple):
    """Messages with an outcome within the page's window."""

    stored: int
    failed: int


def read_sends(host: str, port: int) -> Mapping[str, TopicSendCounts]:
    """The counts by topic, of topics that had any.

    Raises:
        OSError: the page cannot be read. ValueError: it is another one: the proxy is of an older version.
    """
    answer = read_page((host, port), SENDS_PATH, timeout_s=PAGE_S_MAX)
    if answer.status != OK:
        raise ValueError(f"{SENDS_PATH} answers {answer.status}")
    try:
        return {name: TopicSendCounts(*map(int, counts)) for name, counts in answer.value()["topics"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{SENDS_PATH} has another form") from error

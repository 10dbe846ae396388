"""Failed sends of a plan's topics over the last minutes, from the pages of all producer proxies in contact."""

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from common.config.reported_process import Address, ops_pages
from common.config.store import ConfigStore
from common.ops.send_pages import TopicSendCounts, read_sends
from migration.facts import SendErrors
from migration.journals import PRODUCERS

ASKED_AT_ONCE = 16
NONE = TopicSendCounts(0, 0)


def read_send_errors(store: ConfigStore, topics: Collection[str]) -> SendErrors:
    """Ask every producer proxy, all at the same time. Raises ConfigError."""
    reports = {name: each for name, each in store.applied().items() if name.startswith(PRODUCERS)}
    places = ops_pages(reports)
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        pages = list(pool.map(lambda name: _page(name, places.get(name)), sorted(reports)))
    counts = {
        topic: TopicSendCounts(*map(sum, zip(*(page.get(topic, NONE) for page in pages if isinstance(page, Mapping)), strict=True)))
        for topic in sorted({each for page in pages if isinstance(page, Mapping) for each in page} & {*topics})
    }  # fmt: skip
    return SendErrors(counts, tuple(each for each in pages if isinstance(each, str)))


def _page(name: str, place: Address | None) -> Mapping[str, TopicSendCounts] | str:
    """The page of a proxy, or why there is none."""
    if place is None:
        return f"{name} (it does not report where its pages are)"
    try:
        return read_sends(*place)
    except (OSError, ValueError) as error:
        return f"{name} (its page at {place[0]}:{place[1]}: {error})"

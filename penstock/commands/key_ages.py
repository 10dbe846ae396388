"""When the keys of an application were used last, by what the proxies of a running `up` tell on their operators' pages."""

import urllib.request
from collections.abc import Iterable
from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from penstock.commands.instance import Instance
from penstock.up.files import read_running

METRIC = "penstock_key_last_used_seconds"
PROXIES = ("producer_proxy", "consumer_proxy")
PAGE_S_MAX = 2.0


def last_used(instance: Instance, app: str) -> dict[str, str]:
    """By key id, as a UTC time; a key that no proxy knows to have been used is left out, and so are all when none can be asked."""
    facts = read_running(instance.data)
    if facts is None:
        return {}
    found: dict[str, float] = {}
    try:
        for proxy in PROXIES:
            for key_id, at_s in _told(f"http://{facts[proxy]['host']}:{facts['ops'][proxy]}/metrics", app):
                found[key_id] = max(at_s, found.get(key_id, 0.0))
    except OSError:
        return {}
    return {key_id: f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}" for key_id, at_s in found.items()}


def _told(url: str, app: str) -> Iterable[tuple[str, float]]:
    with urllib.request.urlopen(url, timeout=PAGE_S_MAX) as answer:
        page = answer.read().decode()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == METRIC and sample.labels["app"] == app:
                yield sample.labels["key_id"], sample.value

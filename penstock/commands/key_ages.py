"""Last use of an application's keys, from the metrics of the proxies of a running `up`."""

from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from common.ops.page_reader import Address, read_text
from common.utc import utc
from penstock.terminal.instance import Instance
from penstock.up.files import read_running

METRIC = "penstock_key_last_used_timestamp_seconds"
PROXIES = ("producer_proxy", "consumer_proxy")


def last_used(instance: Instance, app: str) -> dict[str, str]:
    """UTC times by key id. Keys without a known use are left out, and all keys when a proxy cannot be reached."""
    facts = read_running(instance.data)
    if facts is None:
        return {}
    found: dict[str, float] = {}
    try:
        for proxy in PROXIES:
            for key_id, at_s in _reported((facts[proxy]["host"], facts["ops"][proxy]), app):
                found[key_id] = max(at_s, found.get(key_id, 0.0))
    except OSError:
        return {}
    return {key_id: utc(at_s * 1000) for key_id, at_s in found.items()}


def _reported(address: Address, app: str) -> Iterable[tuple[str, float]]:
    for family in text_string_to_metric_families(read_text(address, "/metrics")):
        for sample in family.samples:
            if sample.name == METRIC and sample.labels["app"] == app:
                yield sample.labels["key_id"], sample.value

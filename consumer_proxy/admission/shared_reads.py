"""Dual read: the hidden topics that belong to a pull's topics, and the table by which deliveries tell their source.

Done once per verdict, not per pull. See docs/design/0035-migration.md.
"""

from collections.abc import MutableMapping

from common.config.definitions import GroupDefinition, SharedReadDefinition
from common.config.view import ConfigView
from common.names import split_stored_name, stored_name
from common.shared_reads import hidden_topic
from consumer_proxy.response_fields import source_row

ENGINE = "engine"


def add_shared_reads(view: ConfigView, group: GroupDefinition, topics: MutableMapping[str, int]) -> bytes:
    """Add the hidden topics of the topics that the group also reads on Kafka; returns the table of sources.

    A group with an order has the Kafka side alone until that is drained: its topic of the engine is taken away.

    Args:
        topics: numbers of queues by stored name; changed.
    """
    table = b""
    for stored in list(topics):
        name = split_stored_name(stored)[0]
        shared = view.find(SharedReadDefinition, hidden_topic(group.name, name))
        if shared is None:
            continue
        if group.order != "none" and not shared.is_drained:
            del topics[stored]
        topics[stored_name(shared.name, shared.made_ms)] = shared.queues
        table += source_row(shared.name.encode(), f"kafka:{shared.cluster}") + source_row(name.encode(), ENGINE)
    return table

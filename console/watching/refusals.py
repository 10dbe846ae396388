"""Refusals of the last hour by code, each with its meaning and what helps. Pure but for the sampler that is read."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from common.contract import Code
from console.database.series_history import ALL, SeriesKey
from console.watching.figures import REFUSED
from console.watching.sampler import HistorySampler

SHOWN_S = 3_600
MEANINGS: Mapping[int, tuple[str, str]] = {
    Code.INVALID: ("A message breaks a rule of the contract.", "The client's log has the field and the rule."),
    Code.TOO_LARGE: ("A body or a message is larger than its topic takes.", "Send less, or ask for a larger body."),
    Code.UNKNOWN_TOPIC: ("The topic has no definition.", "Ask for it, or correct the name in the client."),
    Code.UNAUTHENTICATED: ("No valid credential.", "Check key, secret and clock of the client; was the key revoked?"),
    Code.FORBIDDEN: ("The application has no grant.", "The application's page shows and changes its grants."),
    Code.NOT_CANCELLABLE: (
        "A delayed message was delivered already, or is unknown.",
        "Nothing: the client came too late.",
    ),
    Code.QUOTA_EXCEEDED: ("The application has created as many groups or topics as it may.", "See its settings."),
    Code.RATE_LIMITED: (
        "Over the limit of a topic, an application or a proxy.",
        "Ask for a higher limit, or send less.",
    ),
    Code.OVERLOADED: ("Too many messages wait for a broker.", "Look at brokers and disks on the map."),
    Code.BACKLOGGED: ("A required group is too far behind.", "Look at the lag of the topic's groups."),
    Code.UNAVAILABLE: (
        "No broker takes the write, and no buffer has room.",
        "Look at breakers and buffers on the map.",
    ),
    Code.FENCED: ("A migration moves the topic's home.", "Nothing: it takes seconds, and clients send again."),
    Code.DISK_FULL: ("An engine's disk is full.", "Make room: the runbook says how."),
    Code.TIMEOUT: ("The deadline of the call passed.", "The client sends again with the same id. Look at latency."),
    Code.SHUTTING_DOWN: ("A proxy was stopped.", "Nothing: clients go to another proxy."),
    Code.NO_CONSUMER: ("No group took a request in time.", "Does a consumer run that answers it?"),
    Code.NO_REPLY: ("A request was not answered in time.", "Look at the consumer that answers it."),
    Code.CONSUMER_FAILED: ("Every group rejected a request.", "Look at the dead letters of its group."),
}


class RefusedCode(NamedTuple):
    """Messages that were answered with a code, about so many in the last hour."""

    code: int
    name: str
    messages: int
    meaning: str
    help: str


def refusals(sampler: HistorySampler, names: list[str], now_s: int, subject: str = ALL) -> list[RefusedCode]:
    """The most frequent first.

    Args:
        names: of the figures that are known, as `refused.200`.
        subject: `all` or `topic:NAME`.
    """
    keys = [SeriesKey(subject, name) for name in names if name.startswith(REFUSED)]
    if not keys:
        return []
    step_s, found = sampler.read(keys, now_s - SHOWN_S, now_s)
    rows = []
    for key in keys:
        count = sum(value for value in found[key].means if value is not None and not math.isnan(value)) * step_s
        code = int(key.name.removeprefix(REFUSED))
        if count >= 0.5:
            meaning = MEANINGS.get(code, ("See the contract.", ""))
            rows.append(RefusedCode(code, Code._VALUES_TO_NAMES.get(code, str(code)), round(count), *meaning))
    return sorted(rows, key=lambda row: -row.messages)

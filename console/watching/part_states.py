"""Breakers, buffers, the configuration store and Kafka clusters, as the processes' pages have told them. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

KEY_USE = "penstock_key_last_used_timestamp_seconds"
BREAKER_STATES = ("closed", "half open", "open")


class Scraped(NamedTuple):
    """One value of a page: the process's address, name, labels."""

    address: str
    name: str
    labels: dict[str, str]
    value: float


class BreakerState(NamedTuple):
    """The circuit breaker of one proxy for one broker group. `state`: one of BREAKER_STATES; `opened`: times."""

    address: str
    broker_group: str
    state: str
    opened: int


class BufferState(NamedTuple):
    """One store of a producer proxy's fallback buffer: what waits in it, and its dead-letter list."""

    address: str
    store: str
    entries: int
    bytes: int
    oldest_s: float
    dead: int
    is_working: bool
    is_weak: bool


class KafkaState(NamedTuple):
    """One Kafka cluster, as one bridge sees it."""

    address: str
    cluster: str
    is_connected: bool
    requests: int
    waiting_bytes: int


class StoreContact(NamedTuple):
    """The contact of one process to the configuration store: `age_s` is the time without, 0 with it."""

    address: str
    age_s: float
    is_damaged: bool


@dataclass(frozen=True)
class PartStates:
    """All of them, at one time; 0: no page was read yet.

    Attributes:
        key_uses: Unix milliseconds of the last use by application and key; a proxy tells those since it started.
        reasons: sentences of /readyz by the process's address, of those that have said that something is wrong.
    """

    at_s: float = 0.0
    breakers: tuple[BreakerState, ...] = ()
    buffers: tuple[BufferState, ...] = ()
    kafka: tuple[KafkaState, ...] = ()
    contacts: tuple[StoreContact, ...] = ()
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    key_uses: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def troubled(self) -> set[str]:
        """Addresses of the processes that tell of something wrong."""
        return {
            *(each.address for each in self.breakers if each.state != BREAKER_STATES[0]),
            *(each.address for each in self.buffers if not each.is_working or each.is_weak),
            *(each.address for each in self.kafka if not each.is_connected),
            *(each.address for each in self.contacts if each.age_s or each.is_damaged),
        }


def part_states(at_s: float, rows: Iterable[Scraped]) -> PartStates:
    """The states in the values of all pages."""
    breakers: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    buffers: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    kafka: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    contacts: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    tables = (
        ("penstock_breaker_", "broker_group", breakers), ("penstock_buffer_", "store", buffers),
        ("penstock_kafka_bridge_", "cluster", kafka),
    )  # fmt: skip
    uses: dict[tuple[str, str], int] = {}
    for row in rows:
        if row.name == KEY_USE:
            key = row.labels.get("app", ""), row.labels.get("key_id", "")
            uses[key] = max(uses.get(key, 0), int(row.value * 1000))
        for prefix, label, table in tables:
            if row.name.startswith(prefix) and label in row.labels:
                table[row.address, row.labels[label]][row.name.removeprefix(prefix)] = row.value
        if row.name in ("penstock_config_age_seconds", "penstock_config_damaged"):
            contacts[row.address, ""][row.name.removeprefix("penstock_config_")] = row.value
    return PartStates(
        at_s,
        tuple(_breaker(*key, each) for key, each in sorted(breakers.items())),
        tuple(_buffer(*key, each) for key, each in sorted(buffers.items()) if "entries" in each),
        tuple(_kafka(*key, each) for key, each in sorted(kafka.items()) if "connected" in each),
        tuple(
            StoreContact(address, each.get("age_seconds", 0.0), each.get("damaged", 0.0) == 1)
            for (address, _), each in sorted(contacts.items())
        ),
        key_uses=uses,
    )


def _breaker(address: str, group: str, each: Mapping[str, float]) -> BreakerState:
    state = BREAKER_STATES[min(len(BREAKER_STATES) - 1, int(each.get("state", 0)))]
    return BreakerState(address, group, state, int(each.get("opened_total", 0)))


def _buffer(address: str, store: str, each: Mapping[str, float]) -> BufferState:
    entries, size, dead = (int(each.get(name, 0)) for name in ("entries", "bytes", "dead"))
    working, weak = each.get("working", 1.0) == 1, each.get("weak", 0.0) == 1
    return BufferState(address, store, entries, size, each.get("oldest_seconds", 0.0), dead, working, weak)


def _kafka(address: str, cluster: str, each: Mapping[str, float]) -> KafkaState:
    return KafkaState(
        address, cluster, each["connected"] == 1, int(each.get("requests", 0)), int(each.get("waiting_bytes", 0))
    )

"""The installed drivers, by the names of their libraries. A library is imported when it is first used."""

from importlib import import_module
from importlib.util import find_spec

from common.kafka.base import KafkaDriver
from common.kafka.errors import DriverMissing

_HOMES = {
    "confluent-kafka": ("confluent_kafka", "common.kafka.librdkafka.driver"),
    "kafka-python": ("kafka", "common.kafka.python_client.driver"),
}
DRIVERS = tuple(_HOMES)
"""All drivers, the faster first."""


def installed() -> list[str]:
    return [name for name, (library, _) in _HOMES.items() if find_spec(library) is not None]


def open_driver(name: str = "") -> KafkaDriver:
    """Return a driver; without a name, the fastest that is installed.

    Raises:
        DriverMissing: none is installed, or not this one.
    """
    there = installed()
    if name and name not in DRIVERS:
        raise DriverMissing(f'Kafka driver "{name}": use one of {", ".join(DRIVERS)}')
    if not there or (name and name not in there):
        wanted = name or "kafka-python"
        extra = "penstock[kafka-fast]" if wanted == "confluent-kafka" else "penstock[kafka]"
        raise DriverMissing(f"{wanted} is not installed: pip install '{extra}'")
    return import_module(_HOMES[name or there[0]][1]).driver()

"""The installed drivers, by the names of their libraries. A library is imported when it is first used."""

from importlib import import_module
from importlib.util import find_spec

from common.kafka import native
from common.kafka.base import KafkaDriver
from common.kafka.errors import DriverMissing
from common.kafka.paired import PairedDriver

_HOMES = {
    "confluent-kafka": (("confluent_kafka",), "common.kafka.librdkafka.driver"),
    "kafka-python": (("kafka", "cramjam"), "common.kafka.python_client.driver"),
}
DRIVERS = tuple(_HOMES)
"""All drivers, the faster first."""


def installed() -> list[str]:
    return [name for name, (libraries, _) in _HOMES.items() if all(find_spec(each) is not None for each in libraries)]


def open_driver(name: str = "") -> KafkaDriver:
    """Return a driver; without a name, the fastest that is installed.

    Where both are, partitions are read by kafka-python, whose batches are decoded natively, and all else is done by
    confluent-kafka.

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
    if not name and there == list(DRIVERS) and native.NATIVE:
        return PairedDriver(*map(_made, DRIVERS))
    return _made(name or there[0])


def _made(name: str) -> KafkaDriver:
    found: KafkaDriver = import_module(_HOMES[name][1]).driver()
    return found

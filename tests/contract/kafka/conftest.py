"""Brokers for the contract of both Kafka drivers: started once, since a start takes seconds of CPU."""

import tempfile
import uuid
from pathlib import Path

import pytest

from common.kafka.base import NewKafkaTopic
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import DRIVERS, installed, open_driver
from common.kafka.errors import KafkaFault
from common.kafka.records import Partition
from tests.contract.kafka.exchange import Exchange
from tests.services import require
from tests.services.kafka import KafkaBrokers
from tests.waiting import until


def own_folder(prefix):
    """Not pytest's, which is emptied after each module."""
    return tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)


@pytest.fixture(scope="session")
def brokers():
    """One node that also listens with SASL and TLS."""
    with own_folder("penstock-kafka-") as folder, KafkaBrokers(Path(folder), secure=True) as started:
        yield started


@pytest.fixture(scope="session")
def connection(brokers):
    return KafkaConnection("test", (brokers.bootstrap,))


@pytest.fixture(params=DRIVERS)
def driver(request):
    require(request.param in installed(), f"pip install {request.param}")
    return open_driver(request.param)


@pytest.fixture
def exchange(driver, connection):
    """Producers and readers of this driver, closed at the end."""
    with Exchange(driver, connection) as opened:
        yield opened


@pytest.fixture(scope="session")
def any_admin(brokers):
    """Of the faster driver; for what a test only prepares."""
    require(installed(), "pip install kafka-python")
    admin = open_driver().admin(KafkaConnection("test", (brokers.bootstrap,)))
    admin.create_topics({"first": NewKafkaTopic(1, 1)})
    until(lambda: has_coordinator(admin), "a coordinator of groups", 60.0)
    yield admin
    admin.close()


def has_coordinator(admin):
    """A broker that has just started makes its topic of positions when it is first asked."""
    try:
        admin.set_group_offsets("first", {Partition("first", 0): 0})
    except KafkaFault:
        return False
    return True


@pytest.fixture
def new_topic(any_admin):
    """Make a topic and return its name when the broker serves it."""

    def make(partitions=1, **configs):
        name = f"t-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
        assert any_admin.create_topics({name: NewKafkaTopic(partitions, 1, settings)}) == {}
        until(lambda: name in any_admin.topics([name]), "the topic", 30.0)
        return name

    return make

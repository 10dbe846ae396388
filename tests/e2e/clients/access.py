"""Addresses and credentials of a Penstock for client programs: the fake one or a running `penstock up`."""

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.services.fake_penstock import FakePenstock

_names = itertools.count(1)


@dataclass
class Access:
    """Addresses as HOST:PORT, an application that may send and pull everything named `clients.*`, and topics on demand."""

    producer: str
    consumer: str
    app: str
    key_id: str
    secret: str
    create_topic: Callable[[str], Any]

    def topic(self, name: str) -> str:
        """A new topic, ready for sending; its name begins with `clients.`."""
        unique = f"clients.{name}.{os.getpid()}.{next(_names)}"
        self.create_topic(unique)
        return unique


def of_fake(fake: FakePenstock) -> Access:
    return Access(
        fake.producers[0].address,
        fake.consumers[0].address,
        fake.app,
        fake.key_id,
        fake.secret,
        create_topic=lambda name: None,
    )


def of_running(up: Any) -> Access:
    """Access to the `up` of the fixture `penstock_up`, by an application of its own."""
    app = f"clients-{os.getpid()}-{next(_names)}"
    created = up.run("app", "create", app)
    up.run("app", "grant", app, "--send", "clients.*", "--pull", "clients.*")
    return Access(
        "{}:{}".format(*up.producer),
        "{}:{}".format(*up.consumer),
        created["app"],
        created["key_id"],
        created["secret"],
        create_topic=lambda name: up.run("topic", "create", name, "--queues", "8", "--durability", "memory"),
    )

"""Definitions for the demo: a new topic, an application that may use it, a group."""

import time
from dataclasses import dataclass

from common.config import open_store
from common.config.applying import wait_applied
from common.config.definitions import ApplicationDefinition, Grant, GroupDefinition, TopicDefinition
from common.config.root_keys import root_keys_of
from common.config.store import ConfigStore
from penstock.demo.errors import DemoError

NAME = "demo"
QUEUES = 8
APPLIED_S_MAX = 10.0


@dataclass(frozen=True)
class Access:
    topic: str
    group: str
    app: str
    key_id: str
    secret: str


def make_access(config: str, body_bytes: int, secrets_key: str | None = None) -> Access:
    """Write the definitions and wait until the proxies have applied them.

    Each run has a new topic (demo, demo-2, …), so that messages of an earlier run do not count.

    Args:
        secrets_key: file of the proxies' root keys; None: they have none.
    Raises:
        DemoError: a proxy did not apply the configuration in time.
    """
    store = open_store(config)
    try:
        topic = free_name(store)
        key, secret = root_keys_of(secrets_key).new_key(NAME, "demo-key", int(time.time() * 1000))
        access = Access(topic, NAME, NAME, key.key_id, secret)
        definition = TopicDefinition(topic, QUEUES, "memory", max(TopicDefinition.body_bytes_max, body_bytes))
        store.put("topic", topic, definition.to_value(), 0)
        put(store, "group", NAME, GroupDefinition(NAME).to_value())
        grants = (Grant("send", f"{NAME}*"), Grant("pull", f"{NAME}*"))
        put(store, "application", NAME, ApplicationDefinition(NAME, (key,), grants).to_value())
        if late := wait_applied(store, store.version(), APPLIED_S_MAX):
            raise DemoError(f"{', '.join(late)}: configuration not applied within {APPLIED_S_MAX:.0f} s")
        return access
    finally:
        store.close()


def free_name(store: ConfigStore) -> str:
    number = 1
    while store.get("topic", name := NAME if number == 1 else f"{NAME}-{number}"):
        number += 1
    return name


def put(store: ConfigStore, kind: str, name: str, value: dict) -> None:
    found = store.get(kind, name)
    store.put(kind, name, value, found.version if found else 0)

"""Names of the configuration that are like a misspelt one."""

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Protocol

from common.config import open_store
from common.config.errors import ConfigError, EntryNotFound
from common.config.store import ConfigStore
from common.errors import PenstockError
from penstock.terminal.exits import CommandError
from penstock.terminal.suggestions import did_you_mean

NAMES_MAX = 2_000
"""Of those that begin with the same letter; with more of them the closest may be missed, and the answer stays fast."""
NOT_FOUND = re.compile(
    r'(topic|family|group|application|kafka cluster|kafka|broker group) "([^"]+)": not (?:found|defined.*)'
)


class Configured(Protocol):
    """Where the configuration is; an Instance."""

    def config(self) -> str: ...


def near(store: ConfigStore, kind: str, name: str) -> str:
    """`: did you mean …?` or nothing."""
    hint = did_you_mean(name, store.names(kind, name[:1], limit=NAMES_MAX))
    return f": {hint}" if hint else ""


def of_topic(instance: Configured, name: str) -> str:
    """`near` for a topic that a proxy does not know; nothing where the configuration cannot be read from here."""
    try:
        with closing(open_store(instance.config())) as store:
            return near(store, "topic", name)
    except (PenstockError, CommandError, OSError):
        return ""


@contextmanager
def added(store: ConfigStore) -> Iterator[None]:
    """Let errors about an entry that does not exist end with the names that are like it."""
    try:
        yield
    except EntryNotFound as error:
        found = NOT_FOUND.fullmatch(str(error))
        if found is None:
            raise
        raise EntryNotFound(f"{error}{_near_or_nothing(store, found[1].replace(' ', '_'), found[2])}") from error


def _near_or_nothing(store: ConfigStore, kind: str, name: str) -> str:
    try:
        return near(store, {"kafka_cluster": "kafka"}.get(kind, kind), name)
    except ConfigError:
        return ""

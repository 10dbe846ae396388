"""Quotas of applications on what comes into being by its first use: groups and topics without an entry of their own.

Each engine counts for itself. A group counts for the application of its first pull, until it is forgotten or has a
definition; a topic of a family for that of its first send or pull. What exists already costs no look-up.

Keys of progress: b"\0made by" ‖ kind ‖ name → application; b"\0made" ‖ kind ‖ application → u32 count, big-endian.
"""

from collections.abc import Iterable
from typing import Protocol

from common.names import split_stored_name
from engine.delivery.topic_uses import TopicUses
from engine.errors import QuotaError
from engine.log.port import ProgressLog

GROUP, TOPIC = b"g", b"t"
_OWNER = b"\0made by"
_COUNT = b"\0made"


class CreationLimits(Protocol):
    """Source of the quotas."""

    def most(self, kind: bytes, application: str) -> int | None:
        """How many groups or topics the application may have created; None: no limit is known."""

    def is_counted(self, kind: bytes, name: str) -> bool:
        """Whether it has no entry of its own; a topic: whether a family defines it."""


class NoLimits:
    """No quota, where there is no configuration."""

    def most(self, kind: bytes, application: str) -> int | None:
        """There is none."""
        return None

    def is_counted(self, kind: bytes, name: str) -> bool:
        """Nothing counts."""
        return False


NO_LIMITS = NoLimits()


class Creations:
    """Counts creations per application, and refuses those above its quota.

    Attributes:
        topic_uses: topics that requests have named lately; what is used is not forgotten.
    """

    def __init__(self, store: ProgressLog, limits: CreationLimits) -> None:
        self._store, self._limits = store, limits
        self.topic_uses = TopicUses()
        self._counts: dict[bytes, int] = {}

    def count(self, kind: bytes, application: str) -> int:
        """How many groups or topics count for the application."""
        key = _COUNT + kind + application.encode()
        if key not in self._counts:
            self._counts[key] = int.from_bytes(self._value(key), "big")
        return self._counts[key]

    def admit(self, kind: bytes, names: Iterable[str], application: str) -> None:
        """Count new groups or topics before they are created. Raises QuotaError; then none is counted.

        Args:
            names: of groups, or stored names of topics, that do not exist.
            application: empty: it is not known, so nothing is counted.
        """
        most = self._limits.most(kind, application) if application else None
        if most is None:
            return
        plain = dict.fromkeys(split_stored_name(name)[0] for name in names)
        counted = [name for name in plain if self._limits.is_counted(kind, name)]
        if not counted:
            return
        held = self.count(kind, application)
        if held + len(counted) > most:
            raise QuotaError(_sentence(kind, counted[0], application, held, most))
        owners = [(_OWNER + kind + name.encode(), application.encode()) for name in counted]
        self._add(kind, application, len(counted), owners)

    def forget(self, kind: bytes, name: str) -> None:
        """A group or topic is forgotten, or has an entry of its own: it counts no more."""
        key = _OWNER + kind + name.encode()
        application = self._value(key).decode()
        if application:
            self._add(kind, application, -1, [(key, b"")])

    def _add(self, kind: bytes, application: str, change: int, entries: list[tuple[bytes, bytes]]) -> None:
        count = max(0, self.count(kind, application) + change)
        key = _COUNT + kind + application.encode()
        # One record each for the names, and the count last: a torn end counts too few, never too many for good.
        self._store.put_progress([*entries, (key, count.to_bytes(4, "big") if count else b"")])
        self._counts[key] = count

    def _value(self, key: bytes) -> bytes:
        raw, value = next(iter(self._store.progress(key)), (b"", b""))
        return value if raw == key else b""


def _sentence(kind: bytes, name: str, application: str, held: int, most: int) -> str:
    if kind == GROUP:
        return (
            f'group "{name}": application {application} has {held:,} groups without a definition, and may have {most:,}: '
            "use fewer names, define the group, or ask an operator to raise --groups-max"
        )
    return (
        f'topic "{name}": application {application} has created {held:,} topics of families, and may create {most:,}: '
        "use fewer names, define the topic, or ask an operator to raise --family-topics-max"
    )

"""Coordination of broker groups: records, registered brokers, one elected controller.

Siblings: memory_coordination, file_coordination, zookeeper_coordination. Design: docs/design/0031-switch-over.md.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from common.cluster.group_record import GroupRecord, Incarnation, InvalidGroupRecord
from common.config.errors import StoreDamaged

Watcher = Callable[[str], None]


class VersionedRecord(NamedTuple):
    """A group's record. Versions begin at 1 and grow with each change."""

    record: GroupRecord
    version: int


class Registration(NamedTuple):
    """A broker's process.

    Attributes:
        address: where proxies, controllers and other brokers reach it.
    """

    incarnation: Incarnation
    address: str


class Coordination(ABC):
    """The view of one process. Its methods may be called from several threads.

    Methods may block for I/O, and raise StoreUnavailable, unless they say otherwise. Watchers run in the coordination's
    own thread and may use it; except in memory, they never run inside the call that made the change.
    """

    @abstractmethod
    def groups(self) -> list[str]:
        """Names of all groups that have a record or had a broker, sorted."""

    @abstractmethod
    def record(self, group: str) -> VersionedRecord | None:
        """The group's record. Raises StoreDamaged when it cannot be read."""

    @abstractmethod
    def write(self, group: str, record: GroupRecord, version: int) -> int:
        """Replace the record of that version, durably; 0: there is none yet. Returns the new version.

        Raises:
            VersionConflict: another process has changed it. Nothing was written.
            UncertainWrite: it may have been written: read it again.
        """

    @abstractmethod
    def history(self, group: str) -> list[VersionedRecord]:
        """The latest changes of the record that were remembered, oldest first, as `history.py` bounds them."""

    @abstractmethod
    def remember(self, group: str, change: VersionedRecord) -> None:
        """Add a change that was written to `history`. Nothing depends on it; one that fails is missing there.

        A version that is known is replaced. Of two processes that add one at the same time neither is lost.
        """

    @abstractmethod
    def brokers(self, group: str) -> dict[str, Registration]:
        """The registered brokers by name. A process stays registered for some time after its end or its loss of contact."""

    @abstractmethod
    def register(self, group: str, broker: str, registration: Registration) -> None:
        """Register this process as that broker, until `unregister` or its end. Does not raise.

        It happens as soon as there is contact, again after each loss of the session, and only once no other process is
        registered under that name: see `brokers`.
        """

    @abstractmethod
    def unregister(self, group: str, broker: str) -> None:
        """Withdraw a registration of this process; one that it does not have is ignored. Does not raise."""

    @abstractmethod
    def watch(self, group: str, watcher: Watcher) -> None:
        """Call `watcher(group)` soon after each change of the record or of the brokers, and when contact returns.

        Several changes may cause one call. Does not raise.
        """

    @abstractmethod
    def watch_groups(self, watcher: Callable[[], None]) -> None:
        """Call `watcher()` soon after each change of `groups()` or of `controller()`, and when contact returns."""

    @abstractmethod
    def stand(self, name: str) -> None:
        """Stand for election as the controller, under that name, until `close`. Does not raise."""

    @abstractmethod
    def rank(self, number: int) -> None:
        """Be elected after candidates of a lower rank; 0 at first. Among equal ones the first to stand is. Does not raise.

        A store of one machine knows no ranks.
        """

    @abstractmethod
    def controller(self) -> str | None:
        """Name of the elected controller, as far as is known without a request; None: unknown or none. Does not block."""

    @abstractmethod
    def is_controller(self) -> bool:
        """Whether this process is the elected one, as far as is known without a request. False without contact.

        Another one may be elected at any time: what it writes is guarded by `write` alone. Does not block.
        """

    @abstractmethod
    def contact_age_s(self) -> float:
        """Time since the latest request was sent that the coordination has answered as a whole; infinite without contact.

        An answer of one server that may be cut off from the others does not count. Does not block.
        """

    @property
    def session_fault(self) -> str:
        """Why a process whose machine has ended counts as alive for longer than was asked for; "": it does not."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """End the registrations, the candidacy and the watches."""


def encode_record(record: GroupRecord) -> bytes:
    return json.dumps(record.to_value()).encode()


def parse_record(data: bytes, subject: str) -> GroupRecord:
    """Raises StoreDamaged."""
    try:
        return GroupRecord.from_value(json.loads(data))
    except (ValueError, RecursionError, InvalidGroupRecord) as error:
        raise StoreDamaged(f"{subject}: damaged: it is not the record of a group: {error}") from error


def encode_registration(registration: Registration) -> bytes:
    return json.dumps(registration._asdict()).encode()


def parse_registration(data: bytes) -> Registration | None:
    """None: it is not one of this version, or not written yet."""
    try:
        value: Any = json.loads(data)
        return Registration(int(value["incarnation"]), str(value["address"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None

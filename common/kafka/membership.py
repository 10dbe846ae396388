"""Membership of one reader in a group, the same for both drivers: which partitions it has, and the listener's calls."""

import threading
from abc import abstractmethod
from collections.abc import Collection, Mapping
from functools import partial

from common.kafka.base import (
    END,
    NO_NOTES,
    CommitOutcome,
    CommitResult,
    GroupListener,
    GroupOptions,
    GroupReader,
)
from common.kafka.callback_relay import CallbackRelay
from common.kafka.codes import (
    FENCED_INSTANCE_ID,
    FENCED_MEMBER_EPOCH,
    ILLEGAL_GENERATION,
    UNKNOWN_MEMBER_ID,
    UNSUPPORTED_VERSION,
)
from common.kafka.errors import KafkaRefusal
from common.kafka.records import Partition, Records

COMMIT_S = 10.0
HEARTBEAT_S_MAX = 3.0
"""A member learns by a heartbeat that the group wants its partitions back."""
FENCED_NUMBERS = (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH)
"""Kafka's errors of a commit by a reader that is not, or not as it was, a member of the group."""


def check_protocol(cluster: str, options: GroupOptions, driver: str, protocols: Collection[str]) -> None:
    """Raises KafkaRefusal: the driver does not have the group protocol."""
    if options.protocol not in protocols:
        raise KafkaRefusal(
            UNSUPPORTED_VERSION,
            f'kafka "{cluster}": group {options.group}: {driver} does not have the group protocol '
            f'"{options.protocol}": use {" or ".join(protocols)}',
        )


def heartbeat_ms(options: GroupOptions) -> int:
    return int(min(HEARTBEAT_S_MAX, options.session_s / 3) * 1000)


class RelayedGroupReader(GroupReader):
    """A reader whose library runs in a relay's thread. Drivers tell the rebalances by `hand_…`, from any thread.

    Invariant: a partition is in `owned` from before on_assigned until on_revoked has returned, or its deadline is over,
    or on_lost begins. Only these can be committed: a broker does not check who commits what, as long as the generation
    is the present one.
    """

    def __init__(self, cluster: str, options: GroupOptions, listener: GroupListener) -> None:
        self._cluster, self._options, self._listener = cluster, options, listener
        self._relay = CallbackRelay(f"kafka-{cluster}-group")
        self._owned: set[Partition] = set()
        self._is_closed = False

    def poll(self, wait_s: float) -> list[Records]:
        return self._relay.run(partial(self._fetch, wait_s))

    def commit(self, positions: Mapping[Partition, int], notes: Mapping[Partition, str] = NO_NOTES) -> CommitResult:
        foreign = [f"{topic} {number}" for topic, number in positions if Partition(topic, number) not in self._owned]
        if foreign:
            return CommitResult(
                CommitOutcome.FENCED,
                f'kafka "{self._cluster}": group {self._options.group}: {", ".join(foreign)}: not this reader\'s (any '
                "more); nothing was committed",
            )
        return self._commit(positions, notes) if positions else CommitResult(CommitOutcome.COMMITTED)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._relay.run(self._leave)
        finally:
            self._relay.end()

    def hand_assigned(self, partitions: Collection[Partition]) -> threading.Event:
        self._owned.update(partitions)
        return self._relay.hand(partial(self._listener.on_assigned, partitions))

    def hand_revoked(self, partitions: Collection[Partition]) -> threading.Event:
        """The driver waits for the event for `revoke_s`, then calls `forget`."""
        return self._relay.hand(partial(self._listener.on_revoked, partitions, self._options.revoke_s))

    def hand_lost(self, partitions: Collection[Partition]) -> threading.Event:
        self.forget(partitions)
        return self._relay.hand(partial(self._listener.on_lost, partitions))

    def keep_ends(self, positions: Mapping[Partition, int]) -> None:
        """Commit where the group begins, if that is at the end: after a rebalance the end is another one."""
        if positions and self._options.start == END:
            self._commit(positions, NO_NOTES)

    def forget(self, partitions: Collection[Partition]) -> None:
        self._owned.difference_update(partitions)

    @abstractmethod
    def _fetch(self, wait_s: float) -> list[Records]:
        """In the relay's thread, as `_leave`."""

    @abstractmethod
    def _leave(self) -> None: ...

    @abstractmethod
    def _commit(self, positions: Mapping[Partition, int], notes: Mapping[Partition, str]) -> CommitResult:
        """In the caller's thread, also in a callback while the relay's thread waits."""

"""The interface of both drivers: producer, readers, and administration of one Kafka cluster.

Every option that decides about loss, duplicates or order is given to the library by name; none is left to its default.
Errors are those of `common.kafka.errors`; no library's exception leaves a driver.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from common.kafka.connection import KafkaConnection
from common.kafka.errors import KafkaRefusal
from common.kafka.group_admin import GroupAdmin
from common.kafka.records import OutgoingRecords, Partition, ProduceResults, Records

OnResults = Callable[[ProduceResults], None]

METADATA_AGE_S = 30.0
"""After it, a producer asks again for the number of a topic's partitions."""

EARLIEST, END, STABLE_END = -2, -1, -3
"""Of `ClusterAdmin.offsets`: the first record, after the last one, and after the last one that readers of committed
records may see: the start of the oldest open transaction, or the end. The first two are Kafka's own numbers."""


NO_NOTES: Mapping[Partition, str] = {}


@dataclass(frozen=True)
class ProducerOptions:
    """
    Attributes:
        transactional_id: for begin(), commit() and abort(); a newer producer with the same id fences this one.
        linger_ms: how long a record may wait for others of its partition. More saves CPU and costs latency.
        delivery_timeout_s: after it, a record that Kafka has not confirmed is TIMEOUT.
        pending_bytes_max: payload without a result; what comes above it is OVERLOADED.
    """

    transactional_id: str = ""
    linger_ms: int = 5
    delivery_timeout_s: float = 30.0
    request_timeout_s: float = 10.0
    pending_bytes_max: int = 32 << 20


@dataclass(frozen=True)
class ReaderOptions:
    """
    Attributes:
        records_max: the most records that one poll() returns.
        partition_bytes: what one fetch asks for per partition. Memory is this times the partitions.
        committed_only: skip records of transactions that are aborted or still open.
        wait_s: how long a broker holds a request that finds no record. Less costs requests while nothing comes; more
            delays the first fetch of a partition that is added.
    """

    records_max: int = 10_000
    partition_bytes: int = 1 << 20
    committed_only: bool = True
    wait_s: float = 0.1


@dataclass(frozen=True)
class GroupOptions:
    """
    Attributes:
        start: EARLIEST or END: where to begin in a partition for which the group has no position. END is committed
            at once, so that what comes before a first rebalance is not skipped.
        session_s: a member that the group has not heard of for so long is out of it. Less finds a dead one earlier.
        rebalance_s: how long members may take to give partitions up and to join again, and may be without poll().
        revoke_s: the deadline of on_revoked; below `rebalance_s`, or the group drops the reader in its course.
        protocol: "classic", or "consumer" (KIP-848), which only some drivers have and where the session is the
            broker's setting. A broker with its default settings lets classic members join a "consumer" group.
    """

    group: str
    topics: tuple[str, ...]
    reading: ReaderOptions = ReaderOptions()
    start: int = EARLIEST
    session_s: float = 45.0
    rebalance_s: float = 300.0
    revoke_s: float = 30.0
    protocol: str = "classic"


class KafkaProducer(ABC):
    """Writes records with acks=all and idempotence: retries of its own neither double nor reorder them.

    Thread-safe, but transactions belong to one thread. Makes connections as it is opened.

    Attributes:
        writes_null_headers: whether a header's value may be null; otherwise such records are INVALID.
    """

    writes_null_headers = True

    @property
    @abstractmethod
    def fatal_fault(self) -> str:
        """Why this producer is of no use from now on: close it and open another one. Empty: it works.

        Its owner looks at it now and then. Closing gives the records that wait their results.
        """

    @property
    def stalled_s(self) -> float:
        """Seconds for which records have waited and none got its result; 0: none waits."""
        return 0.0

    @abstractmethod
    def partitions(self, topic: str) -> int:
        """Number of partitions; asks the cluster where it is not known, or known for `METADATA_AGE_S`.

        Raises:
            KafkaRefusal: the topic does not exist, or the user may not see it.
            ClusterUnreachable: no broker has answered in time.
        """

    @abstractmethod
    def produce(self, records: OutgoingRecords, on_results: OnResults) -> None:
        """Send records. Blocks only for topics that `partitions` has not been asked for.

        `on_results` is called once, with one result per record in order, by this thread or by one of the driver's. It
        must not block or raise, and must not call this producer's close() or flush().
        """

    @abstractmethod
    def flush(self, timeout_s: float) -> bool:
        """Wait until all records have their results; False: not all in time."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction. Raises ProducerFenced."""

    @abstractmethod
    def commit(self, positions: Mapping[Partition, int], group: str, notes: Mapping[Partition, str] = NO_NOTES) -> None:
        """Commit the transaction and, with it, positions of a group. Blocks until the coordinator has answered.

        Args:
            positions: next offsets to read; empty: no group is touched.
            notes: texts that are kept with positions, as Kafka's offset metadata.
        Raises:
            TransactionAborted: a record or the commit was refused. Close this producer; another one with its
                transactional id aborts what is open. Both libraries stumble where one is used on after abort().
            ProducerFenced: another producer has the transactional id.
        """

    @abstractmethod
    def abort(self) -> None:
        """Abort the transaction: readers of committed records skip what it has written."""

    @abstractmethod
    def close(self, timeout_s: float) -> None:
        """Flush for at most `timeout_s`; records without a result are then TIMEOUT or UNAVAILABLE."""


class PartitionReader(ABC):
    """Reads partitions that the caller chooses, from positions that the caller keeps. For one thread."""

    @abstractmethod
    def assign(self, positions: Mapping[Partition, int]) -> None:
        """Read these partitions from these offsets, in place of all earlier ones.

        Raises:
            KafkaRefusal: a topic does not exist, or the user may not see it.
        """

    @abstractmethod
    def add(self, positions: Mapping[Partition, int]) -> None:
        """Read these partitions from these offsets, beside those that are read already.

        Of one that is read already, nothing that was fetched before is returned any more. Topics are not looked for: of one
        that does not exist nothing comes, or poll() raises.
        """

    @abstractmethod
    def remove(self, partitions: Collection[Partition]) -> None:
        """Read these no more; nothing of them is returned any more. Those that are not read are left out."""

    @abstractmethod
    def pause(self, partitions: Collection[Partition]) -> None: ...

    @abstractmethod
    def resume(self, partitions: Collection[Partition]) -> None: ...

    @abstractmethod
    def poll(self, wait_s: float) -> list[Records]:
        """Return what has arrived, at most one entry per partition; wait for the first of it for at most `wait_s`.

        Raises:
            PositionOutOfRange: a position does not exist (any more); nothing is skipped, assign() another one.
            KafkaRefusal: a broker refuses to serve a partition.
        """

    @abstractmethod
    def positions(self) -> dict[Partition, int]:
        """Next offset per partition, as the last poll() left it."""

    @property
    @abstractmethod
    def interruptions(self) -> int:
        """The number of its connections to the cluster that have ended; it may grow by more than that.

        Over one connection a partition only grows. Behind the next one a cluster may have been put back to an older copy,
        with other records at offsets that were read. It counts before poll() returns anything of the next connection.
        """

    @abstractmethod
    def close(self) -> None: ...


class CommitOutcome(Enum):
    """
    Attributes:
        COMMITTED: the group has the positions.
        FENCED: it does not have them, and the partitions are no longer this reader's: drop what was read of them.
        UNKNOWN: it may have them, or not yet: commit again after the next poll(), or count it as not committed.
    """

    COMMITTED = "committed"
    FENCED = "fenced"
    UNKNOWN = "unknown"


class CommitResult(NamedTuple):
    """Attributes: sentence: why it was not committed."""

    outcome: CommitOutcome
    sentence: str = ""


class GroupListener:
    """Learns which partitions a reader of a group has. Called in poll() and close(), in the thread that called them."""

    def on_assigned(self, partitions: Collection[Partition]) -> None:
        """These are the reader's from now on, beside those that it has."""

    def on_revoked(self, partitions: Collection[Partition], deadline_s: float) -> None:
        """The group asks for these; they are given up when this returns.

        A commit in it counts. After `deadline_s` the group gets them all the same, and commits of them are FENCED.
        """

    def on_lost(self, partitions: Collection[Partition]) -> None:
        """Others may have these already: commits of them are FENCED."""


class GroupReader(ABC):
    """A member of a consumer group: reads the partitions that the group gives it. For one thread.

    poll() keeps the membership: without a call for `rebalance_s` the reader leaves the group. It begins at the position
    that the group has committed, and where there is none, at `start`.
    """

    @abstractmethod
    def poll(self, wait_s: float) -> list[Records]:
        """As `PartitionReader.poll`. It may take longer than `wait_s` by the time of the listener's calls.

        Raises:
            PositionOutOfRange: the group's position does not exist (any more); nothing is skipped. An operator sets
                another one, after close().
            KafkaRefusal: a broker refuses to serve a partition, or the group refuses this reader.
        """

    @abstractmethod
    def commit(self, positions: Mapping[Partition, int], notes: Mapping[Partition, str] = NO_NOTES) -> CommitResult:
        """Commit next offsets to read. Blocks until the coordinator has answered: for some 10 s, and while it is away.

        Args:
            notes: texts that are kept with positions, as Kafka's offset metadata.
        Raises:
            KafkaRefusal: the user may not commit.
        """

    @abstractmethod
    def pause(self, partitions: Collection[Partition]) -> None:
        """Get no records of these until resume(); a partition that is assigned anew is not paused."""

    @abstractmethod
    def resume(self, partitions: Collection[Partition]) -> None: ...

    @abstractmethod
    def rewind(self, positions: Mapping[Partition, int]) -> None:
        """Read these again from there; nothing that was fetched of them before is returned any more. Raises KafkaFault."""

    @abstractmethod
    def positions(self) -> dict[Partition, int]:
        """Next offset per partition that the reader has, as the last poll() left it."""

    @property
    @abstractmethod
    def interruptions(self) -> int:
        """As of a PartitionReader."""

    @abstractmethod
    def close(self) -> None:
        """Give all partitions up, as by on_revoked, and leave the group."""


class KafkaBroker(NamedTuple):
    id: int
    host: str
    port: int
    rack: str


class ClusterDescription(NamedTuple):
    """Attributes: controller: id of the broker that leads requests for changes."""

    cluster_id: str
    controller: int
    brokers: Sequence[KafkaBroker]


class KafkaTopic(NamedTuple):
    """Attributes: id: changes when a topic is deleted and made again; copies: replicas per partition."""

    name: str
    id: UUID
    partitions: int
    copies: int


class NewKafkaTopic(NamedTuple):
    partitions: int
    copies: int
    configs: Mapping[str, str] = {}


class ClusterAdmin(GroupAdmin):
    """Questions to a cluster and changes of it. For one thread. All calls block and raise KafkaFault."""

    @abstractmethod
    def describe(self) -> ClusterDescription: ...

    @abstractmethod
    def topics(self, names: Sequence[str] | None = None) -> dict[str, KafkaTopic]:
        """The topics of these names that exist and that the user may see; None: all but internal ones."""

    @abstractmethod
    def create_topics(self, topics: Mapping[str, NewKafkaTopic]) -> dict[str, KafkaRefusal]:
        """Create topics; returns only those that were refused. Brokers learn of new topics a moment later."""

    @abstractmethod
    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics; those that do not exist are left out. Raises KafkaRefusal at the first that is refused."""

    @abstractmethod
    def configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """All settings of topics, defaults included."""

    @abstractmethod
    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Change these settings of a topic and leave the others."""

    @abstractmethod
    def offsets(self, partitions: Sequence[Partition], at: int) -> dict[Partition, int | None]:
        """Offsets by EARLIEST, END, STABLE_END, or of the first record that is not older than `at`, in ms since 1970.

        None: there is no such record.
        """

    @abstractmethod
    def leader_epochs(self, partitions: Sequence[Partition]) -> dict[Partition, int | None]:
        """Numbers that grow with each election of a leader, without which a partition loses nothing. None: it is not told."""

    @abstractmethod
    def close(self) -> None: ...


class KafkaDriver(ABC):
    """A library. Opening waits for a broker, for at most the connection's time.

    Raises:
        ClusterUnreachable: no broker has answered.
        LoginRefused: wrong user or password, or TLS failed.
    """

    name: str
    group_protocols: tuple[str, ...] = ("classic",)

    @abstractmethod
    def producer(self, connection: KafkaConnection, options: ProducerOptions) -> KafkaProducer: ...

    @abstractmethod
    def reader(self, connection: KafkaConnection, options: ReaderOptions) -> PartitionReader: ...

    @abstractmethod
    def group_reader(self, connection: KafkaConnection, options: GroupOptions, listener: GroupListener) -> GroupReader:
        """Raises KafkaRefusal: a topic does not exist, or the driver does not have the group protocol."""

    @abstractmethod
    def admin(self, connection: KafkaConnection) -> ClusterAdmin: ...

    def group_admin(self, connection: KafkaConnection) -> GroupAdmin:
        """The client that asks about many groups with the fewest requests."""
        return self.admin(connection)

"""Columns of Kafka records: what is produced, what became of it, and what was fetched. No object per record."""

from collections.abc import Sequence
from typing import NamedTuple

from common.contract import Code

Headers = Sequence[tuple[str, bytes | None]]
"""Of one record, in their order; a name may occur twice. Records without headers have an empty sequence."""

NO_TIMESTAMP = -1
"""Kafka's number for a record without a time."""

NO_OFFSET = -1


class Partition(NamedTuple):
    """A partition of a Kafka topic."""

    topic: str
    number: int


class Records(NamedTuple):
    """One fetch of one partition. The columns are equally long, and may be empty where only `next_offset` has moved.

    Attributes:
        next_offset: where reading continues. It counts control records and the holes that aborted transactions and
            compaction leave, so it may be larger than the last offset plus one.
        timestamps: in ms since 1970; NO_TIMESTAMP: none.
        keys, values: None is Kafka's null, which differs from empty.
    """

    partition: Partition
    next_offset: int
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]


class OutgoingRecords(NamedTuple):
    """Records to produce: equally long columns.

    Attributes:
        partitions: the number of each record's partition; the caller chooses it, see `common.keyhash.queue_of`.
        timestamps: in ms since 1970; NO_TIMESTAMP is stored as it is.
    """

    topics: Sequence[str]
    partitions: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]


class ProduceResults(NamedTuple):
    """Results of one batch, in the order of its records.

    Attributes:
        codes: result codes of the contract: OK, INVALID, TOO_LARGE, OVERLOADED, UNAVAILABLE (not stored) or
            TIMEOUT (it may be stored).
        offsets: Kafka's; NO_OFFSET where the code is not OK.
        sentences: one per record that was refused, by its index.
    """

    codes: Sequence[int]
    offsets: Sequence[int]
    sentences: dict[int, str]

    @property
    def all_stored(self) -> bool:
        return not self.sentences


def refused(count: int, code: int, sentence: str) -> ProduceResults:
    """Results of a batch of which no record was sent."""
    return ProduceResults([code] * count, [NO_OFFSET] * count, dict.fromkeys(range(count), sentence))


STORED = int(Code.OK)

"""A sample of the newest records of Kafka topics: what the mapping to messages has to bend."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from common.kafka.base import PartitionReader
from common.kafka.records import Partition, Records

WAIT_S = 5.0
KEY_BYTES_MAX = 4_096


@dataclass
class TopicSample:
    """Counts over the records that were read."""

    records: int = 0
    keyless: int = 0
    foreign_keys: int = 0
    bent_headers: int = 0
    body_bytes_max: int = 0

    def add(self, fetched: Records) -> None:
        for key, value, headers in zip(fetched.keys, fetched.values, fetched.headers, strict=True):
            self.records += 1
            self.keyless += key is None
            self.foreign_keys += key is not None and not _is_text(key)
            names = [name for name, _ in headers]
            self.bent_headers += len(set(names)) < len(names) or any(
                each is None or not _is_text(each) for _, each in headers
            )
            self.body_bytes_max = max(self.body_bytes_max, len(value or b""))

    def notes(self) -> list[str]:
        """Sentences for the operator."""
        of = f"of {self.records:,} records"
        found = []
        if self.foreign_keys:
            found.append(f"{self.foreign_keys:,} {of} have a key that is no text: it is copied as hexadecimal digits")
        if self.bent_headers:
            found.append(
                f"{self.bent_headers:,} {of} have headers that are twice, null or no text: kept in one property"
            )
        return found


def _is_text(value: bytes) -> bool:
    try:
        return len(value.decode()) <= KEY_BYTES_MAX
    except UnicodeDecodeError:
        return False


def sample(
    reader: PartitionReader, ends: Mapping[Partition, int], firsts: Mapping[Partition, int], count: int
) -> dict[str, TopicSample]:
    """Read up to `count` of the newest records of each partition, for at most WAIT_S.

    Args:
        ends, firsts: of the wanted partitions.
    """
    starts = {each: max(firsts.get(each, 0), end - count) for each, end in ends.items()}
    wanted = {each: at for each, at in starts.items() if at < ends[each]}
    found: dict[str, TopicSample] = {each.topic: TopicSample() for each in ends}
    if not wanted:
        return found
    reader.assign(wanted)
    deadline = time.monotonic() + WAIT_S
    while wanted and time.monotonic() < deadline:
        for fetched in reader.poll(0.2):
            found[fetched.partition.topic].add(fetched)
            if fetched.next_offset >= ends[fetched.partition]:
                wanted.pop(fetched.partition, None)
    return found

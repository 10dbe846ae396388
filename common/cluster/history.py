"""The latest changes of a group's record, for operators: one JSON line per change, beside the record."""

import json
from contextlib import suppress

from common.cluster.coordination import VersionedRecord
from common.cluster.group_record import GroupRecord, InvalidGroupRecord

CHANGES_MAX = 100


def parse_changes(data: bytes) -> list[VersionedRecord]:
    """The changes, oldest first. Lines that this version cannot read are left out."""
    found = []
    for line in data.splitlines():
        with suppress(ValueError, KeyError, TypeError, InvalidGroupRecord):
            value = json.loads(line)
            found.append(VersionedRecord(GroupRecord.from_value(value["record"]), int(value["version"])))
    return found


def with_change(data: bytes, change: VersionedRecord) -> bytes:
    """The lines with one more change, in the order of versions; the oldest beyond CHANGES_MAX are dropped."""
    changes = {each.version: each for each in (*parse_changes(data), change)}
    newest = sorted(changes.values(), key=lambda each: each.version)[-CHANGES_MAX:]
    lines = [json.dumps({"version": each.version, "record": each.record.to_value()}) for each in newest]
    return "\n".join(lines).encode()

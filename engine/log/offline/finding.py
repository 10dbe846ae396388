"""Findings of a verification."""

from dataclasses import asdict, dataclass
from typing import Any

DAMAGE, TORN_TAIL, NOTE = "damage", "torn tail", "note"
INDEX, VIEW, TAIL, LEFTOVER = "index", "view", "tail", "leftover"
"""Repairs: rebuild the index or the view, cut the tail, remove a leftover file."""


@dataclass(frozen=True)
class Finding:
    """One finding. `damage` makes the directory bad; a `torn tail` is normal after a crash; the next start mends a
    `note`.

    Args:
        position: position in the log; in files other than segments a byte address.
        records: number of lost records, None when unknown.
        mend: repair that helps; empty when only a copy of the file would.
    """

    what: str
    file: str
    position: int
    bytes: int
    records: int | None
    reason: str
    mend: str = ""

    def to_value(self) -> dict[str, Any]:
        """The finding as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        records = "an unknown number of" if self.records is None else str(self.records)
        return (
            f"{self.what}: file={self.file} position={self.position} bytes={self.bytes}: {records} "
            f"record{'' if self.records == 1 else 's'} lost: {self.reason}"
        )

"""What a look at a directory found, one thing each."""

from dataclasses import asdict, dataclass
from typing import Any

DAMAGE, TORN_TAIL, NOTE = "damage", "torn tail", "note"
INDEX, VIEW, TAIL, LEFTOVER = "index", "view", "tail", "leftover"
"""What `repair` can do: build the index or the view again, cut the tail, remove a file that means nothing."""


@dataclass(frozen=True)
class Finding:
    """`damage` makes the directory bad; a `torn tail` is what any crash leaves, and a `note` what the next start mends.

    Args:
        position: of the log; in other files than segments a byte address.
        records: how many are lost, None when nobody can say.
        mend: what repair does about it; empty when only a copy of the file could help.
    """

    what: str
    file: str
    position: int
    bytes: int
    records: int | None
    reason: str
    mend: str = ""

    def to_value(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        records = "an unknown number of" if self.records is None else str(self.records)
        return (
            f"{self.what}: file={self.file} position={self.position} bytes={self.bytes}: {records} "
            f"record{'' if self.records == 1 else 's'} lost: {self.reason}"
        )

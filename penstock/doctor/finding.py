"""The result of a check."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class DoctorFinding:
    """One fact about this machine.

    Attributes:
        state: "ok"; "note" (works, could be better or is optional); "missing" (Penstock does not work without it).
        advice: what to do about it; "" when there is nothing to do.
    """

    subject: str
    state: str
    words: str
    advice: str = ""

    def to_value(self) -> dict[str, Any]:
        return asdict(self)

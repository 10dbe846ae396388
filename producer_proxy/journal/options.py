"""Options of the producer proxy for its repair journal, and the journal that they configure."""

import argparse
from pathlib import Path

from producer_proxy.buffer.options import believed_now_ms
from producer_proxy.journal.journal import BYTES_MAX, RepairJournal
from producer_proxy.journal.journaling import Journaling

MIB_MIN, MIB_MAX = 32, 1 << 24


def options_of_journal(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("repair journal, for topics with a secondary")
    group.add_argument("--journal", type=Path, metavar="DIR", help="Directory of the repair journal, one per proxy; "
                       "unset: topics with a secondary are written to their home alone, and /readyz says so.")  # fmt: skip
    group.add_argument("--journal-mib-max", type=int, default=BYTES_MAX >> 20, metavar="MIB",
                       help="Maximum size; what does not fit is recorded as a range to compare (default %(default)s).")  # fmt: skip


def make_journaling(options: argparse.Namespace) -> Journaling:
    """Open the journal. Raises: ValueError (an option), BufferInUse, OSError."""
    if not MIB_MIN <= options.journal_mib_max <= MIB_MAX:
        raise ValueError(f"--journal-mib-max: from {MIB_MIN} to {MIB_MAX}")
    now_ms = believed_now_ms()
    if options.journal is None:
        return Journaling(None, now_ms)
    return Journaling(RepairJournal(options.journal, now_ms, options.journal_mib_max << 20), now_ms)

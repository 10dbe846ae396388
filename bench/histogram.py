"""The histogram of a run, which exists natively only. Ends the program with one line where it is not built."""

import sys

from bench.errors import NativeMissingError

try:
    from bench._histogram import Histogram
except ImportError:
    sys.exit(f"bench: {NativeMissingError()}")

__all__ = ["Histogram"]

"""The end of a process that cannot serve."""

import sys
from typing import NoReturn

from common.config.errors import StoreUnavailable

FAILED, UNAVAILABLE = 1, 5  # of the commands' exit codes


def end(process: str, error: Exception) -> NoReturn:
    """Exit with one line on stderr; code 5 when the configuration is away: another try may succeed."""
    print(f"penstock {process}: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(UNAVAILABLE if isinstance(error, StoreUnavailable) else FAILED)

"""The end of a process that cannot serve."""

import errno
import sys
from typing import NoReturn

from common.config.errors import StoreUnavailable

FAILED, CONFLICT, UNAVAILABLE = 1, 4, 5  # of the commands' exit codes


def end(process: str, error: Exception) -> NoReturn:
    """Exit with one line on stderr.

    Code 4 when an address is in use, 5 when the configuration is away: another try may succeed.
    """
    print(f"penstock {process}: {' '.join(str(error).split())}", file=sys.stderr)
    if isinstance(error, StoreUnavailable):
        sys.exit(UNAVAILABLE)
    sys.exit(CONFLICT if isinstance(error, OSError) and error.errno == errno.EADDRINUSE else FAILED)

"""The readiness line: how a process tells its parent that it serves, and where."""

import json
import os
from typing import Any


def announce_ready(fd: int | None, facts: dict[str, Any]) -> None:
    """Write one JSON line `{"host","port","ops_port","pid",…}` to `fd` and close it.

    The pid is added when it is missing. Without a descriptor (a process started by hand) nothing happens. A parent that
    has gone is no reason to stop serving, so a closed pipe is ignored.
    """
    if fd is None or fd < 0:
        return
    line = json.dumps({"pid": os.getpid(), **facts}).encode() + b"\n"
    try:
        os.write(fd, line)  # below PIPE_BUF, so the reader sees all of it or nothing
    except BrokenPipeError:
        pass
    finally:
        if fd > 2:
            os.close(fd)

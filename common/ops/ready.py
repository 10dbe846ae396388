"""The readiness line: a process reports to its parent that it serves, and at which addresses."""

import json
import os
from typing import Any

from common.ops.service_manager import notify


def announce_ready(fd: int | None, facts: dict[str, Any]) -> None:
    """Write one JSON line `{"host","port","ops_port","pid",…}` to `fd` and close it; tell the service manager, too.

    The pid is added when it is missing. Without a descriptor (a process started from a shell) nothing happens. A closed
    pipe is ignored: a process keeps serving when its parent has ended.
    """
    notify("READY=1")
    if fd is None or fd < 0:
        return
    line = json.dumps({"pid": os.getpid(), **facts}).encode() + b"\n"
    try:
        os.write(fd, line)  # below PIPE_BUF, so the write is atomic
    except BrokenPipeError:
        pass
    finally:
        if fd > 2:
            os.close(fd)

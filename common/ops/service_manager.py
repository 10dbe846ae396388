"""Notices to systemd, or another service manager with its protocol, for units of `Type=notify`.

The protocol is one datagram of `NAME=VALUE` lines to the socket in $NOTIFY_SOCKET: sd_notify(3).
"""

import logging
import os
import socket

log = logging.getLogger(__name__)


def notify(state: str) -> None:
    """Send `state`, such as READY=1. Without a service manager nothing happens; a send that fails is logged.

    Never raises: a process that serves does not end because its manager cannot be told.
    """
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path  # an abstract socket
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.connect(address)
            sender.sendall(state.encode())
    except (OSError, ValueError) as error:
        log.warning("notify_socket=%s: the service manager was not told %s: %s", path, state, error)

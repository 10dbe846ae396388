"""Long work of a greenlet in pieces, between which the loop serves its sockets."""

import gevent

SOON_S = 1e-6


def next_turn() -> None:
    """Return in the loop's next turn, after the sockets that are ready.

    `gevent.sleep(0)` is not enough: it returns in the same turn, before any socket is looked at, until the turn has lasted
    sys.getswitchinterval(), 5 ms.
    """
    gevent.sleep(SOON_S)

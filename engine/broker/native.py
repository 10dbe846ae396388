"""Selected forms of the links between brokers: a slave's link to its master, and what a master sends of its log's end."""

from typing import TYPE_CHECKING

from common.twins import use_native
from engine.log.write.native import Appender
from engine.ops.peer import Peer
from engine.replication.native import NATIVE as _REPLICATION_IS_NATIVE

NATIVE = use_native(
    "engine.broker", "_frame_link", "_tail_frame",
    requires=_REPLICATION_IS_NATIVE and use_native("common.net", "_connection"),
)  # fmt: skip


def _send_no_tail(peer: Peer, appender: Appender, epoch: int, position: int, confirmed: int, bytes_max: int) -> int:
    """See `engine.broker._tail_frame`. Always 0: nothing was queued."""
    return 0


if NATIVE and not TYPE_CHECKING:
    from engine.broker._tail_frame import send_tail
else:
    send_tail = _send_no_tail

__all__ = ["NATIVE", "send_tail"]

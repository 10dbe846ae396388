"""Selected forms of the links between brokers: their turns, what a master sends, and a slave's link to its master."""

from typing import TYPE_CHECKING

from common.twins import use_native
from engine.log.write.native import Appender
from engine.ops.peer import Peer
from engine.replication.native import NATIVE as _REPLICATION_IS_NATIVE

NATIVE = use_native(
    "engine.broker", "_broker_turn", "_frame_link", "_tail_frame",
    requires=_REPLICATION_IS_NATIVE and use_native("common.net", "_connection"),
)  # fmt: skip


def _send_no_tail(peer: Peer, appender: Appender, epoch: int, position: int, confirmed: int, bytes_max: int) -> int:
    """See `engine.broker._tail_frame`. Always 0: nothing was queued."""
    return 0


if NATIVE and not TYPE_CHECKING:
    from engine.broker._broker_turn import BrokerTurn
    from engine.broker._tail_frame import send_tail
else:
    from engine.broker.broker_turn import BrokerTurn

    send_tail = _send_no_tail

__all__ = ["NATIVE", "BrokerTurn", "send_tail"]

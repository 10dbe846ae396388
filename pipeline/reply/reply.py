"""One reply of `pull` by position: its deliveries as columns, the rest as a PullResponse."""

from typing import Any, NamedTuple

from common import contract
from pipeline.reply.columns import Deliveries
from pipeline.reply.native import read_deliveries
from pipeline.reply.row_filter import ALL_ROWS, RowFilter

EMPTY_LIST = b"\x0c\0\0\0\0"


class PullReply(NamedTuple):
    """`response` has everything but the deliveries: its list of them is empty."""

    response: Any
    deliveries: Deliveries


def read_reply(frame: bytes, wanted: int, rows: RowFilter = ALL_ROWS) -> PullReply:
    """Read a reply, with the deliveries for which the row filter holds.

    Raises:
        ReplyError: it is malformed.
        TApplicationException: it does not answer a pull.
    """
    if frame[:4] == b"\x80\x01\x00\x03":  # an exception
        contract.decode_reply(frame)
    deliveries = read_deliveries(frame, wanted, rows)
    rest = frame[: deliveries.start] + EMPTY_LIST + frame[deliveries.end :]
    return PullReply(contract.decode_reply(rest), deliveries)

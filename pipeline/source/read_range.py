"""Reads one range of offsets as record batches: the work of a task."""

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from common.contract import Code, Position
from pipeline.errors import CallRefused
from pipeline.options import ReadOptions
from pipeline.proxy.attempts import CallAttempts, code_name, is_tried_again
from pipeline.proxy.pulls import PositionPulls
from pipeline.reply.arrow import record_batch, wanted_bits
from pipeline.reply.reply import PullReply
from pipeline.reply.row_filter import ALL_ROWS, RowFilter
from pipeline.source.ranges import OffsetRange, data_lost

log = logging.getLogger("penstock.pipeline")

MESSAGES_PER_CALL = 8_000
"""More makes larger record batches, which cost Spark memory and are not faster."""
BYTES_PER_CALL = 4 << 20


def read_range(
    options: ReadOptions, names: tuple[str, ...], part: OffsetRange, rows: RowFilter = ALL_ROWS
) -> Iterator[pa.RecordBatch]:
    """Read the messages of a range in order, those for which the row filter holds.

    Each call goes out before the previous reply is turned into columns, so the proxy works meanwhile.

    Args:
        names: columns of the reply to fill.
    Raises:
        CallRefused: a proxy refused the pull for good.
        DataLost: messages of the range are gone, and the options ask to fail then.
    """
    wanted = wanted_bits(names)
    attempts = CallAttempts(f"topic {part.topic} queue {part.queue}", options.endpoints.deadline_s)
    offset = part.start
    with PositionPulls(options.endpoints) as pulls:
        while offset < part.end:
            reply = pulls.pull(_position(part, offset), MESSAGES_PER_CALL, BYTES_PER_CALL, wanted, rows)
            report = reply.response.positions[0]
            following = _following(options, part, offset, report)
            if following is None or (following == offset and not reply.deliveries.scanned):
                attempts.pause(_reason(report, offset))
                continue
            attempts.succeeded()
            offset = following
            if offset < part.end:
                _begin(pulls, part, offset)
            if reply.deliveries.row_count:
                yield _batch(reply, names)


def _following(options: ReadOptions, part: OffsetRange, offset: int, report: Any) -> int | None:
    """The offset to read next; None when the same one is to be read again later."""
    if report.code < 100:
        return report.next_offset
    if is_tried_again(report.code):
        return None
    if report.code != Code.OFFSET_OUT_OF_RANGE:
        raise CallRefused(f"topic {part.topic} queue {part.queue}: {_reason(report, offset)}")
    if options.fail_on_data_loss:
        raise data_lost(part.topic, part.queue, offset, report.min_offset)
    following = report.min_offset if report.min_offset > offset else part.end
    log.warning(
        "topic=%s queue=%d: offsets %d to %d are no longer stored: skipped",
        part.topic, part.queue, offset, min(following, part.end),
    )  # fmt: skip
    return following


def _reason(report: Any, offset: int) -> str:
    if report.code < 100:
        return f"no message at offset {offset}, below the end that was reported"
    return f"{code_name(report.code)}: {report.error}"


def _position(part: OffsetRange, offset: int) -> list[Any]:
    return [Position(part.topic, part.queue, offset=offset, end_offset=part.end)]


def _begin(pulls: PositionPulls, part: OffsetRange, offset: int) -> None:
    try:
        pulls.begin(_position(part, offset), MESSAGES_PER_CALL, BYTES_PER_CALL)
    except OSError:
        pass  # the next pull meets it again, and retries


def _batch(reply: PullReply, names: tuple[str, ...]) -> pa.RecordBatch:
    return record_batch(reply.deliveries, names)

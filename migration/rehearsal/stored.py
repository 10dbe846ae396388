"""Ids of the synthetic messages that the rehearsal's engine holds, in the order of each queue."""

from collections.abc import Sequence

from common.names import stored_name
from engine.link.record import read_record
from migration.positions import CopiedTopic, EnginePositions
from migration.reconcile.engine_side import pieces, queue_reports
from migration.reconcile.lookups import engine_id
from migration.reconcile.spans import ReadRange
from migration.rehearsal.ledger import load_id


def stored_ids(engine: EnginePositions, topics: Sequence[CopiedTopic]) -> dict[tuple[str, int], list[str]]:
    """By topic and queue. Blocks; raises AdminError, OSError, PayloadError."""
    found: dict[tuple[str, int], list[str]] = {}
    for topic in topics:
        stored = stored_name(topic.name, topic.made_ms)
        for home in engine.homes(topic):
            reports = queue_reports(home.link, stored, home.queues)
            spans = {queue: ReadRange(each.first, each.end) for queue, each in reports.items() if each.first < each.end}
            for piece in pieces(home.link, stored, spans) if spans else ():
                at = 0
                for _ in range(piece.count):
                    record, at = read_record(piece.records, at)
                    shown = engine_id(record).decode("utf-8", "replace")
                    if load_id(shown) is not None:
                        found.setdefault((topic.name, piece.queue), []).append(shown)
    return found

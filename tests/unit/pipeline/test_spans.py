"""The offsets that a comparison of an archive with the engine judges."""

import pytest

from pipeline.archive.manifest import RangeEntry
from pipeline.errors import NothingToCompare
from pipeline.proxy.topics import QueueBounds
from pipeline.reconcile.spans import QueueSpan, archived_spans, common_spans


def entry(start, end, queue=0, pruned_ms=0):
    return RangeEntry("t", queue, start, end, end - start, "", (), pruned_ms)


def test_what_was_pruned_is_not_judged_and_a_gap_is():
    entries = [entry(0, 10, pruned_ms=1), entry(10, 20), entry(25, 30), entry(0, 5, queue=1, pruned_ms=1)]
    assert archived_spans(entries) == {0: QueueSpan(10, 30)}


def test_only_what_both_have_is_judged_and_the_rest_is_told():
    asked = {0: QueueSpan(0, 100), 1: QueueSpan(0, 50)}
    stored = {0: QueueBounds(20, 100), 1: QueueBounds(0, 50)}
    spans, notes = common_spans(asked, {0: QueueSpan(10, 80)}, stored)
    assert spans == {0: QueueSpan(20, 80)}
    assert notes == [
        "queue 0: offsets 10 to 20 are no longer in the engine: not compared",
        "queue 0: offsets 80 to 100 are not archived: not compared",
        "queue 1: offsets 0 to 50 are not archived: not compared",
    ]
    with pytest.raises(NothingToCompare, match="no offset is in both"):
        common_spans(asked, {}, stored)

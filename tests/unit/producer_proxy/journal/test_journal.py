"""When the journal writes and syncs: seldom while it runs, and all of it at its end."""

import pytest

from common.clock import SystemClock
from producer_proxy.journal import journal as journal_module
from producer_proxy.journal.journal import RepairJournal
from producer_proxy.journal.missed import read
from producer_proxy.journal.segment import JournalSegment
from producer_proxy.targets.base import MessageSlice
from tests.services.fake_broker import wait_until
from tests.unit.producer_proxy.journal.side import SideDestination

MESSAGE = MessageSlice(SideDestination("t", 1), None, None, b"body")


@pytest.fixture
def synced(monkeypatch):
    """Sizes of the segments at their syncs."""
    sizes, sync = [], JournalSegment.sync

    def watched(segment):
        sizes.append(segment.size)
        sync(segment)

    monkeypatch.setattr(JournalSegment, "sync", watched)
    return sizes


@pytest.fixture
def opened(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "MARK_S", 0.005)
    return lambda: RepairJournal(tmp_path, SystemClock().now_ms)


def test_what_is_written_while_the_last_but_one_sync_runs_is_synced_before_an_orderly_end(opened, synced, monkeypatch):
    monkeypatch.setattr(journal_module, "SYNC_S", 0.0)
    journal, sync, closing = opened(), RepairJournal._sync, []

    def sync_while_it_closes(self):
        sync(self)
        if not closing:
            closing.append(True)
            journal.intend([MESSAGE])
            journal._stopping.set()
            journal._dirty.set()

    monkeypatch.setattr(RepairJournal, "_sync", sync_while_it_closes)
    journal.intend([MESSAGE])
    wait_until(lambda: closing)
    journal.close()
    assert len(synced) == 2 and synced[0] < synced[1]


def test_a_range_that_no_intent_covers_does_not_wait_for_the_next_sync(opened, tmp_path, synced, monkeypatch):
    monkeypatch.setattr(journal_module, "TELL_S", 0.0)
    journal = opened()
    journal.intend([MESSAGE])
    journal.missed.add("t", 0, 5, 1, "full")
    journal._dirty.set()
    wait_until(lambda: len(read(tmp_path / "missed")[1]) == 1)
    assert not synced
    journal.close()
    assert synced

"""Numbers of process starts: which of them a log still continues."""

import itertools

import pytest

from engine.broker.incarnations import KEPT_MAX, Incarnations


@pytest.fixture
def start(tmp_path):
    numbers = itertools.count(1)

    def made(boot="one", **options):
        return Incarnations(
            tmp_path / "incarnation", boot, lambda size: (next(numbers) << 1).to_bytes(size, "little"), **options
        )

    return made


def test_a_process_that_was_killed_on_a_machine_that_went_on_is_continued(start):
    first, second = start(), start()
    assert (first.continues, second.continues) == (frozenset(), {first.present})
    assert start().continues == {first.present, second.present}


def test_after_a_power_cut_nothing_is_continued_and_a_later_orderly_stop_does_not_mend_that(start):
    start()
    cut = start(boot="two")
    assert cut.continues == frozenset()
    cut.end()
    assert start(boot="three").continues == {cut.present}


def test_an_orderly_stop_outlives_a_power_cut(start):
    first = start()
    first.end()
    assert start(boot="two").continues == {first.present}


def test_after_a_failed_sync_or_a_cut_of_the_log_nothing_is_continued(start):
    start()
    failed = start(sync_failed=True)
    assert failed.continues == frozenset()
    before = failed.present
    failed.renew()
    assert failed.present != before
    assert start().continues == {failed.present}


def test_a_damaged_file_counts_as_none(start, tmp_path):
    start().end()
    (tmp_path / "incarnation").write_bytes(b"{")
    assert start().continues == frozenset()


def test_only_the_newest_starts_are_remembered(start):
    for _ in range(KEPT_MAX + 5):
        last = start()
    assert len(last.continues) == KEPT_MAX
    assert last.present - 1 in last.continues

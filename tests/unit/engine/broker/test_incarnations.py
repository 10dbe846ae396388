"""Numbers of process starts: which of them a log still continues."""

import errno
import itertools

import pytest

from engine.broker.incarnations import KEPT_MAX, Incarnations, KeptFile


@pytest.fixture
def start(tmp_path):
    numbers = itertools.count(1)

    def made(boot="one", **options):
        return Incarnations(
            KeptFile(tmp_path / "incarnation"),
            boot,
            lambda size: (next(numbers) << 1).to_bytes(size, "little"),
            **options,
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


def test_what_a_power_cut_has_torn_is_known_until_the_log_is_cut(start):
    start()
    cut = start(boot="two")
    assert not cut.is_checked
    assert not start(boot="two").is_checked  # the first one was killed before it had looked
    found = start(boot="two")
    found.check(4096)
    found.end()
    assert (start(boot="two").torn_at, start(boot="two").is_checked) == (4096, True)
    later = start(boot="two")
    later.renew()
    assert (later.torn_at, later.is_checked) == (None, False)
    assert start(boot="two").torn_at is None


def test_a_second_power_cut_does_not_hide_what_the_first_has_torn(start):
    """A checkpoint after the first one may cover the damage, which no start counts as torn then."""
    start(boot="two").check(4096)
    second = start(boot="three")
    assert (second.is_checked, second.torn_at, second.may_be_torn) == (False, 4096, True)
    second.check(4096)
    assert start(boot="three").may_be_torn


def test_damage_below_an_ordered_cut_is_none_of_the_last_power_cut(start):
    cut = start(boot="two")
    cut.check(4096)
    cut.renew()
    cut.check(None)
    assert (start(boot="two").torn_at, start(boot="two").is_checked) == (None, True)
    assert not start(boot="three").is_checked


def test_a_log_that_was_never_cut_has_nothing_torn(start):
    first = start()
    first.check(None)
    assert (start().torn_at, start().is_checked) == (None, True)
    assert not start(boot="two").is_checked


class FullDisk:
    """Keeps nothing more once it is full."""

    def __init__(self) -> None:
        self.data, self.is_full = b"", False

    def read(self) -> bytes:
        return self.data

    def replace(self, data: bytes) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.data = data


def test_what_could_not_be_noted_counts_as_not_looked_for():
    disk = FullDisk()
    numbers = Incarnations(disk, "one", bytes)
    disk.is_full = True
    with pytest.raises(OSError):
        numbers.check(5)
    assert (numbers.is_checked, numbers.torn_at) == (False, None)
    disk.is_full = False
    numbers.check(5)
    assert (numbers.is_checked, Incarnations(disk, "one", bytes).torn_at) == (True, 5)


def test_a_stop_that_cannot_be_noted_is_as_a_kill():
    disk = FullDisk()
    numbers = Incarnations(disk, "one", bytes)
    disk.is_full = True
    numbers.end()
    disk.is_full = False
    assert Incarnations(disk, "two", bytes).continues == frozenset()

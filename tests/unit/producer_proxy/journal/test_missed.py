"""Ranges that no intent covers: joining, the bound of their number, and their file."""

import pytest

from producer_proxy.journal.missed import ALL_QUEUES, ALL_TOPICS, RANGES_MAX, SLOT_BYTES, MissedRanges, read

NAME_CHARS = 249


class NodeClock:
    at_ms = 1_000

    def now_ms(self):
        self.at_ms += 1
        return self.at_ms


@pytest.fixture
def open_ranges(tmp_path):
    return lambda: MissedRanges(tmp_path / "missed", NodeClock().now_ms)


def test_messages_of_one_queue_are_one_range_from_the_first_to_the_last_offset(open_ranges):
    ranges = open_ranges()
    for offset in (7, 5, 9):
        ranges.add("t", 1, offset, 1, "full")
    (found,) = ranges.all
    assert (found.first, found.last, found.messages, found.to_ms - found.from_ms) == (5, 9, 3, 2)


def test_a_range_without_offsets_has_times_alone(open_ranges):
    ranges = open_ranges()
    ranges.add("t", 1, None, 1, "full")
    ranges.add("t", 1, 5, 1, "full")
    assert (ranges.all[0].first, ranges.all[0].last, ranges.all[0].messages) == (None, None, 2)


def test_ranges_survive_a_restart_and_a_torn_write(open_ranges, tmp_path):
    ranges = open_ranges()
    ranges.add("t", 1, 5, 1, "full")
    ranges.write()
    ranges.add("u", 1, 5, 1, "full")
    ranges.write()
    assert {each.topic for each in open_ranges().all} == {"t", "u"}
    data = bytearray((tmp_path / "missed").read_bytes())
    data[60] ^= 1  # in the slot that was written last
    (tmp_path / "missed").write_bytes(data)
    assert {each.topic for each in open_ranges().all} == {"t"}


def test_the_file_never_grows_and_takes_any_number_of_ranges(open_ranges, tmp_path):
    ranges = open_ranges()
    for number in range(3 * RANGES_MAX):
        ranges.add(f"{number}".ljust(NAME_CHARS, "x"), number % 9, number, 1, "y" * 100)
        ranges.write()
        assert (tmp_path / "missed").stat().st_size == 2 * SLOT_BYTES
    found = read(tmp_path / "missed")[1]
    assert sum(each.messages for each in found) == 3 * RANGES_MAX
    assert any((each.topic, each.queue) == (ALL_TOPICS, ALL_QUEUES) for each in found)


def test_ranges_of_compared_topics_are_forgotten(open_ranges):
    ranges = open_ranges()
    ranges.add("t", 1, 5, 1, "full")
    ranges.add("u", 1, 5, 1, "full")
    ranges.forget([each[:4] for each in ranges.all if each.topic == "t"])
    ranges.write()
    assert [each.topic for each in open_ranges().all] == ["u"]

import pytest

from common.ids import ID_SIZE, IdSource, assigned_at_ms, parse_id, process_bytes, show_id


def source(moments, random=b"\xab"):
    return IdSource(iter(moments).__next__, lambda size: random * size)


def test_ids_are_16_bytes_that_sort_by_time():
    ids = source([1, 2, 1_714_000_000_000, 2**48 - 1])
    made = [ids.next() for _ in range(4)]
    assert made == sorted(made)
    assert {len(one) for one in made} == {ID_SIZE}


def test_ids_differ_within_a_millisecond_and_when_the_clock_steps_back():
    ids = source([5, 5, 5, 4, 4, 5])
    assert len({ids.next() for _ in range(6)}) == 6


def test_the_counter_wraps_without_a_fault():
    ids = source([5, 5], random=b"\xff")
    assert ids.next()[-4:] == bytes(4)
    assert ids.next()[-4:] == bytes([0, 0, 0, 1])


def test_two_processes_do_not_meet():
    assert source([5]).next() != source([5], random=b"\xac").next()


def test_an_id_is_shown_as_32_lower_case_hex_characters_and_read_back():
    made = source([5]).next()
    assert len(show_id(made)) == 32
    assert parse_id(show_id(made)) == made


def test_an_assigned_id_tells_when_it_was_assigned_and_is_told_from_uuids():
    assert assigned_at_ms(show_id(source([1_714_000_000_000]).next())) == 1_714_000_000_000
    assert len(process_bytes()) == 6
    assert assigned_at_ms("order-1") is assigned_at_ms("") is assigned_at_ms("é" * 32) is None
    assert assigned_at_ms("0190a1b2c3d47abc8def0123456789ab") is None  # a UUID of version 7


@pytest.mark.parametrize("shown", ["", "order-1", "A" * 32, "a" * 31, "a" * 33, "a" * 32 + "\n", " " * 32])
def test_an_id_in_another_form_is_a_clients_own(shown):
    assert parse_id(shown) is None

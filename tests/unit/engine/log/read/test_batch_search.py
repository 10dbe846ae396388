"""Batches that are found by their bytes, from a position of the log on."""

from random import Random

import pytest


def records(machine, *bodies: bytes) -> bytes:
    return b"".join(machine.form.format.pack_record(body) for body in bodies)


def find(machine, position: int, *batches: tuple[bytes, ...], queue: int = 0) -> tuple[list[int | None], bool]:
    """Offsets of these batches of topic 1, and whether those that are missing are known not to be stored."""
    wanted = [records(machine, *bodies) for bodies in batches]
    found, is_complete = machine.log.batch_search.find({(1, queue): wanted}, position)[1, queue]
    return [found.get(each) for each in wanted], is_complete


def test_a_batch_is_found_from_its_own_position_on_and_not_from_a_later_one(any_machine):
    any_machine.append(1, 0, b"a")
    position = any_machine.log.end_position
    any_machine.append(1, 1, b"b", b"c")
    any_machine.append(1, 0, b"b", b"c")
    after = any_machine.log.end_position
    assert find(any_machine, position, (b"b", b"c"), (b"a",)) == ([1, None], True)
    assert find(any_machine, after, (b"b", b"c")) == ([None], True)
    assert find(any_machine, after + 1_000_000, (b"b", b"c")) == ([None], True)
    assert find(any_machine, position, (b"b", b"c"), queue=1) == ([0], True)
    assert find(any_machine, position, (b"b", b"c"), queue=2) == ([None], True)


def test_only_a_batch_that_is_equal_as_a_whole_is_found(machine):
    machine.append(1, 0, b"a")
    machine.append(1, 0, b"a", b"b", b"c")
    assert find(machine, 0, (b"a", b"b"), (b"b", b"c"), (b"a",), (b"a", b"b", b"c")) == ([None, None, 0, 1], True)


def test_the_first_of_equal_batches_is_found(machine):
    machine.append(1, 0, b"a")
    machine.append(1, 0, b"a")
    assert find(machine, 0, (b"a",)) == ([0], True)


@pytest.mark.parametrize("seed", range(3))
def test_batches_of_all_segments_are_found_from_any_position_below_them(any_machine, seed):
    random = Random(seed)
    stored = []
    while any_machine.log.segments.active.base < 4 * 8192:
        position, queue, body = (
            any_machine.log.end_position,
            random.randrange(3),
            random.randbytes(random.randint(1, 900)),
        )
        stored.append((position, queue, body, any_machine.append(1, queue, body)))
    for position, queue, body, offset in stored:
        since = random.choice([each for each, _, _, _ in stored if each <= position])
        assert find(any_machine, since, (body,), queue=queue) == ([offset], True)
        # A batch begins the next segment when it did not fit: its position is above the end of the log before it.
        assert find(any_machine, position, (body,), queue=queue) == ([offset], True)
        later = [each for each, _, _, _ in stored if each > position]
        if later:
            assert find(any_machine, later[0], (body,), queue=queue) == ([None], True)


def test_below_a_deleted_segment_it_is_unknown_what_was_stored(machine):
    while machine.log.segments.active.base < 3 * 8192:
        machine.append(1, 0, bytes(2000))
    machine.log.segments.sealed.bases.discard(0)
    assert find(machine, 100, (b"a",)) == ([None], False)
    assert find(machine, machine.log.end_position, (b"a",)) == ([None], True)


def test_where_a_batch_cannot_be_read_the_others_are_still_found(machine):
    machine.append(1, 0, b"a")
    at = machine.log.end_position + 60
    machine.append(1, 0, b"b" * 100)
    machine.append(1, 0, b"c")
    file = machine.log.segments.active.file
    machine.damage(machine.file(), at - machine.log.segments.active.base, b"?")
    assert find(machine, 0, (b"a",), (b"c",)) == ([0, 2], True)
    assert find(machine, 0, (b"c",), (b"b" * 100,)) == ([2, None], False)
    read_at = file.read_at

    def read(size: int, start: int) -> bytes:
        raise OSError("Input/output error")

    file.read_at = read
    assert find(machine, 0, (b"a",)) == ([None], False)
    file.read_at = read_at


def test_a_search_ends_after_its_limit_of_bytes(machine, monkeypatch):
    position = machine.log.end_position
    for number in range(30):
        machine.append(1, 0, bytes([number]) * 100)
    module = vars(type(machine.log.batch_search))["find"].__globals__  # of the form under test
    monkeypatch.setitem(module, "SEARCH_BYTES_MAX", 1000)
    monkeypatch.setitem(module, "PAGE_BYTES", 500)
    assert find(machine, position, (bytes([3]) * 100,)) == ([3], True)
    assert find(machine, position, (bytes([29]) * 100,)) == ([None], False)

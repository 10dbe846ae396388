"""The backlog of repairs: order by position, and diverted keys."""

import random

from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.journal.backlog import RepairBacklog, WaitingRepair, packed


def entry(topic, key):
    return BufferEntry(topic, key, None, b"", 0)


def test_entries_come_in_the_order_of_their_positions_whatever_the_order_in_which_they_were_diverted():
    chance = random.Random(1)
    backlog = RepairBacklog()
    positions = [8 * number for number in range(1, 500)]
    shuffled = chance.sample(positions, len(positions))
    for position in shuffled:
        backlog.divert(
            entry(chance.choice("tu"), b"k"), WaitingRepair(position, chance.choice((None, 0, 9_999)), False)
        )
    assert backlog.count == len(positions)
    taken = backlog.take(lambda topic: True, 300, None) + backlog.take(lambda topic: True, 300, None)
    assert [repair.position for _, repair in taken] == positions


def test_batches_come_in_the_order_of_their_positions_too_among_single_entries_and_whichever_comes_first():
    chance = random.Random(2)
    backlog = RepairBacklog()
    pieces = [list(range(8 * first, 8 * (first + 6), 8)) for first in range(1, 600, 6)]
    for at in range(0, len(pieces), 3):  # mostly in order, as a proxy diverts them
        pieces[at : at + 3] = chance.sample(pieces[at : at + 3], len(pieces[at : at + 3]))
    taken: list[int] = []
    for piece in pieces:
        if chance.random() < 0.3:
            for position in piece:
                backlog.divert(entry(chance.choice("tu"), b"k"), WaitingRepair(position, 1, False))
        else:
            topics = {topic: [each for each in piece if (each // 8) % 2 == odd] for odd, topic in enumerate("tuv")}
            backlog.divert_batch(
                [(topic, [packed(each, 1, False) for each in some], {0: len(some)}) for topic, some in topics.items()]
            )
        if chance.random() < 0.1 and (first := backlog.take(lambda topic: True, 1, None)):
            backlog.put_back(*first[0])
    assert backlog.count == 600 and not backlog.count_of("v")
    for topic in "tu":
        every = [each.position for each in backlog.first(topic, 1_000)]
        assert every == sorted(every) and len(every) == backlog.count_of(topic)
        assert [each.position for each in backlog.first(topic, 7)] == every[:7]
    while found := backlog.take(lambda topic: True, 50, None):
        taken += [repair.position for _, repair in found]
    assert taken == sorted(each for piece in pieces for each in piece)


def test_a_topic_that_is_in_a_batch_twice_keeps_the_order_of_its_positions():
    backlog = RepairBacklog()
    parts = [[8, 24, 40, 56], [16, 32, 48, 64]]
    backlog.divert_batch([("t", [packed(each, 1, False) for each in part], {0: len(part)}) for part in parts])
    assert [each.position for each in backlog.first("t", 9)] == sorted(parts[0] + parts[1])
    assert [repair.position for _, repair in backlog.take(lambda topic: True, 9, None)] == sorted(parts[0] + parts[1])


def test_queue_and_question_survive():
    backlog = RepairBacklog()
    wanted = [WaitingRepair(8, None, True), WaitingRepair(16, 0, False), WaitingRepair(1 << 50, 9_999, True)]
    for each in wanted:
        backlog.divert(entry("t", None), each)
    assert [repair for _, repair in backlog.take(lambda topic: True, 10, None)] == wanted


def test_entries_from_a_position_on_and_topics_that_are_not_wanted_stay():
    backlog = RepairBacklog()
    for number, topic in enumerate("tutu", 1):
        backlog.divert(entry(topic, b"k"), WaitingRepair(8 * number, 1, False))
    assert [repair.position for _, repair in backlog.take(lambda topic: topic == "t", 10, 24)] == [8]
    assert [repair.position for _, repair in backlog.take(lambda topic: True, 10, None)] == [16, 24, 32]


def test_a_key_is_diverted_until_its_last_entry_has_left_also_while_it_is_in_hand():
    backlog = RepairBacklog()
    for number in (1, 2):
        backlog.divert(entry("t", b"k"), WaitingRepair(8 * number, 1, False))
    assert len(backlog.take(lambda topic: True, 1, None)) == 1
    assert backlog.holds("t", b"k") and not backlog.holds("t", b"other")
    backlog.leave([entry("t", b"k")], [8])
    assert backlog.holds("t", b"k") and backlog.count == 1
    backlog.take(lambda topic: True, 1, None)
    backlog.leave([entry("t", b"k")], [16])
    assert not backlog.holds("t", b"k") and not backlog.count and not backlog.topics


def test_the_first_entries_of_a_topic_are_told_also_while_they_are_in_hand():
    backlog = RepairBacklog()
    for number, topic in enumerate("tutt", 1):
        backlog.divert(entry(topic, b"k"), WaitingRepair(8 * number, 1, False))
    assert [each.position for each in backlog.first("t", 2)] == [8, 24]
    ((topic, repair),) = backlog.take(lambda topic: True, 1, None)
    assert [each.position for each in backlog.first("t", 9)] == [8, 24, 32] and backlog.count_of("t") == 3
    backlog.put_back(topic, repair._replace(is_asked_for=True))
    assert backlog.first("t", 1) == [WaitingRepair(8, 1, True)]
    backlog.take(lambda topic: True, 1, None)
    backlog.leave([entry("t", b"k")], [8])
    assert [each.position for each in backlog.first("t", 9)] == [24, 32] and backlog.count_of("t") == 2

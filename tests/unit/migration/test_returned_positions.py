"""Progress in the engine as offsets of Kafka, over a Kafka in memory and a real engine."""

import pytest

from migration.errors import PlanRefused
from migration.paired_positions import PairedPositions
from migration.positions import CopiedTopic
from migration.returned_positions import EngineProgress, ReturnedPositions
from migration.topic_sides import TopicSides
from tests.unit.migration.reconcile.test_comparison import QUEUE, BothSides, engine  # noqa: F401


@pytest.fixture
def both(engine):  # noqa: F811
    made = BothSides(engine)
    yield made
    made.link.close()


def sides(both):
    return TopicSides(CopiedTopic(both.name, 0, 1), both.topic, both.admin, both.engine, both.open_reader)


def returned(both, at, settled=0, *, is_returned=True):
    positions = ReturnedPositions(sides(both), is_returned=is_returned)
    (found,) = positions.translated([EngineProgress(QUEUE, at, settled)])
    return found


def moved(both):
    """Four copied records at engine offsets 0 to 3, three own messages at 4 to 6, and their copies in Kafka at 4 to 6."""
    both.add(4)
    both.copy()
    both.send(b"a", b"b", b"c")
    for number, body in enumerate((b"a", b"b", b"c")):
        both.copy_back(4 + number, body, 1_000_000_000_000 + number)


def test_a_group_goes_on_at_the_record_of_the_first_message_that_it_has_not_settled(both):
    moved(both)
    assert [returned(both, at).kafka for at in range(8)] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert {returned(both, at).checked for at in range(7)} == {"after"} and returned(both, 7).checked == ""
    assert (returned(both, 5, settled=1).again, returned(both, 5).end) == (1, 7)


def test_what_came_to_kafka_since_the_roll_back_and_is_not_copied_yet_is_not_passed_over(both):
    moved(both)
    both.write(b"later")
    assert [returned(both, at).kafka for at in (6, 7)] == [6, 7]
    both.copy(4, 5, 6)
    assert [returned(both, at).kafka for at in (6, 7, 8)] == [6, 7, 8]


def test_a_record_of_a_writer_beside_the_proxies_that_was_copied_late_is_not_passed_over(both):
    both.add(2)
    both.copy()
    both.send(b"a")
    both.write(b"beside")  # at 2 in Kafka, before the copy of "a"
    both.copy_back(2, b"a", 1_000_000_000_000)
    assert returned(both, 3).kafka == 2, "it is not in the engine yet"
    both.copy(3)
    assert [returned(both, at).kafka for at in (2, 3, 4)] == [2, 2, 4]


def test_a_message_that_was_written_into_the_engine_by_a_repair_leads_to_its_record(both):
    moved(both)
    both.write(b"lost", b"after")
    both.copy(4, 5, 6, 7)
    both.repair(both.compare())
    assert [returned(both, at).kafka for at in (7, 8, 9)] == [7, 7, 9]


@pytest.mark.parametrize(
    ("is_returned", "sentence"), [(False, "not in Kafka yet: wait"), (True, "not in Kafka any more")]
)
def test_an_own_message_that_kafka_does_not_have_is_refused(both, is_returned, sentence):
    both.add(1)
    both.copy()
    both.send(b"a", b"b")
    both.copy_back(1, b"a", 1_000_000_000_000)
    assert returned(both, 1, is_returned=is_returned).kafka == 1
    with pytest.raises(PlanRefused, match=f"engine offset 2, which the group has not settled, is {sentence}"):
        returned(both, 2, is_returned=is_returned)


def test_a_record_that_retention_has_deleted_in_kafka_is_refused(both):
    moved(both)
    both.cluster.starts[(both.name, QUEUE)] = 3
    assert returned(both, 3).kafka == 3
    with pytest.raises(PlanRefused, match=r"engine offset 1, .* is not in Kafka any more"):
        returned(both, 1)


def test_a_record_with_another_content_is_refused(both):
    moved(both)
    run = both.cluster.partitions[both.name][QUEUE]
    run[2] = run[2]._replace(value=b"other")
    with pytest.raises(PlanRefused, match="engine offset 2 and Kafka offset 2: id or content differ"):
        returned(both, 2)


def test_messages_that_proxies_wrote_to_both_sides_are_found_by_id_in_both_directions(both):
    both.add(3)
    both.copy()
    both.send(b"a", b"b", b"c")
    both.write(b"a", b"c", b"b")
    paired = PairedPositions(sides(both))
    assert [paired.translated({QUEUE: at})[0].engine for at in range(7)] == [0, 1, 2, 3, 4, 4, 6]
    assert [paired.translated({QUEUE: at})[0].again for at in range(7)] == [0, 0, 0, 0, 0, 1, 0]
    assert [paired.returned([EngineProgress(QUEUE, at)])[0].kafka for at in range(7)] == [0, 1, 2, 3, 4, 4, 6]

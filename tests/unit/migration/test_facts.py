"""Records after a cut, by what a real engine says of its queues' sources."""

import pytest

from engine.client import copied
from migration.facts import IN_ENGINE, IN_KAFKA, TopicFacts
from tests.unit.migration.reconcile.test_comparison import QUEUE, BothSides, engine  # noqa: F401


@pytest.fixture
def both(engine):  # noqa: F811
    made = BothSides(engine)
    yield made
    made.link.close()


def facts(both, cut_firsts):
    (row,) = copied.states(both.link, [(both.name, QUEUE)])
    return TopicFacts(
        home=IN_ENGINE, cut_firsts=cut_firsts, copied_ends=(row.end,), copied_firsts=(row.sources[0].first,)
    )


def test_own_messages_of_an_added_queue_that_came_before_its_copy_are_no_records_after_the_cut(engine):  # noqa: F811
    made = BothSides(engine, sent_before=(b"own",))
    assert facts(made, ()).late_queues == [], "the queue was added since the cut"
    made.add(1)
    made.copy()
    assert facts(made, ()).late_queues == [0]
    made.link.close()


def test_a_record_that_was_copied_after_the_cut_is_told(both):
    both.add(2)
    both.copy()
    both.send(b"own")
    assert facts(both, (2,)).late_queues == []
    both.add(1, first=2)
    both.copy()
    assert facts(both, (2,)).late_queues == [0]


def test_what_kafka_has_lost_matters_while_the_home_is_there_and_another_topic_always():
    lost, other = {0: "up to 8 records are lost"}, "it was made again"
    assert TopicFacts(home=IN_KAFKA, losses=lost).losses_of_home == ("up to 8 records are lost",)
    assert TopicFacts(home=IN_ENGINE, losses=lost).losses_of_home == ()
    assert TopicFacts(home=IN_ENGINE, losses=lost, foreign=other).losses_of_home == (other,)

"""The wait before a comparison: nothing that Kafka has is passed over because its copy was late."""

import pytest

from migration.errors import PlanRefused
from migration.reconcile.copied_ends import wait_for_copies
from tests.unit.migration.reconcile.test_comparison import BothSides, engine  # noqa: F401


@pytest.fixture
def both(engine):  # noqa: F811
    made = BothSides(engine)
    yield made
    made.link.close()


def test_a_comparison_begins_when_the_copy_has_what_kafka_had(both):
    told = []

    def say(sentence):
        told.append(sentence)
        both.add(2, first=3)  # they come later, and are not waited for
        both.copy(3, 4)

    both.add(3)
    wait_for_copies(both.admin, both.engine, [both.definition], None, both.open_reader, say)
    assert told == [
        "the copies lack 3 records that Kafka had when the comparison began, most of them of "
        f"{both.name} partition 0: waiting for them"
    ]


def test_a_copy_that_stands_refuses_the_comparison(both):
    both.add(3)
    with pytest.raises(
        PlanRefused, match=r"lack 3 records .* and have stood for 0\.1 s: see `penstock migrate status`"
    ):
        wait_for_copies(both.admin, both.engine, [both.definition], None, both.open_reader, print, stall_s=0.1)


def test_a_copy_that_stands_before_a_record_that_the_engine_cannot_store_refuses_at_once(both):
    both.add(1)
    both.cluster.add(both.name, 0, b"large", headers=[("h", b"x" * 40_000)])
    both.copy()
    with pytest.raises(PlanRefused, match=r"partition 0 offset 1: its headers and its key need 40,.* --skip 1 "):
        wait_for_copies(both.admin, both.engine, [both.definition], None, both.open_reader, print, stall_s=60.0)


def test_records_after_the_end_of_the_span_and_topics_on_both_sides_are_not_waited_for(both):
    both.add(3)
    both.next, kept = 0, both.cluster.partitions[both.name][0][2:]
    del both.cluster.partitions[both.name][0][2:]
    both.copy()
    both.cluster.partitions[both.name][0] += kept
    wait_for_copies(both.admin, both.engine, [both.definition], 60_000 * 3, both.open_reader, pytest.fail)
    dual = both.definition.__class__(both.name, home="kafka:main", queues=1, secondary="engine")
    wait_for_copies(both.admin, both.engine, [dual], None, both.open_reader, pytest.fail)

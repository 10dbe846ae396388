"""What was copied last is compared by its content, over a Kafka in memory and a real engine."""

import pytest

from common.config.definitions import CutRecord
from common.kafka.base import END
from common.kafka.group_admin import CommittedPosition
from common.kafka.records import Partition
from engine.client import copied
from kafka_bridge.copy_out.page import EngineTopic
from migration.copied_tails import ComingCopy, ReturningCopy, TailChecks
from migration.positions import CopiedTopic
from tests.unit.migration.reconcile.test_comparison import GROUP, QUEUE, BothSides, engine  # noqa: F401


@pytest.fixture
def both(engine):  # noqa: F811
    made = BothSides(engine)
    yield made
    made.link.close()


def coming(both, is_moved=False):
    topic = CopiedTopic(both.name, 0, 1)
    copy = ComingCopy(topic, both.topic, both.engine.copied([topic])[both.name], is_moved)
    return TailChecks(lambda: both.admin, both.open_reader, both.engine).coming([copy])


def rolled_back(both, cut):
    """As `coming`, of a topic that was rolled back at this place, in Kafka and in the engine."""
    topic, record = (
        CopiedTopic(both.name, 0, 1),
        CutRecord("shop", 2, 0, "main", str(both.topic.id), *((at,) for at in cut)),
    )
    place, rows = EngineTopic(both.link.hello.log_id, both.topic_id), both.engine.copied([topic])[both.name]
    copy = ComingCopy(topic, both.topic, rows, rolled_back=record, places={QUEUE: place})
    return TailChecks(lambda: both.admin, both.open_reader, both.engine).coming([copy])


def returning(both, cut=(0, 0)):
    """Args: cut: its place, in Kafka and in the engine."""
    place, topic = EngineTopic(both.link.hello.log_id, both.topic_id), CopiedTopic(both.name, 0, 1)
    committed = both.cluster.committed.get(GROUP, {})
    copy = ReturningCopy(
        topic, both.topic, {QUEUE: place}, {each.number: at.offset for each, at in committed.items()}, committed,
        CutRecord("shop", 1, 0, "main", str(both.topic.id), *((at,) for at in cut)), both.engine.copied([topic])[both.name],
    )  # fmt: skip
    return TailChecks(lambda: both.admin, both.open_reader, both.engine).returning([copy])


def test_records_in_the_place_of_lost_ones_are_told_although_all_ends_fit(both):
    both.add(20)
    both.copy()
    both.send(b"own")
    assert coming(both) == {}
    del both.cluster.partitions[both.name][QUEUE][12:]
    both.add(30, 50)
    told = coming(both)[both.name]
    assert "partition 0 offset 19: it has not the record that was copied from there" in told
    assert f"`penstock kafka accept {both.name} --partition 0 --start OFFSET --reason TEXT`" in told
    state = copied.states(both.link, [(both.name, QUEUE)])[0]
    copied.accept(
        both.link, both.name, QUEUE, both.source, start=12, replaces=state.number, reason="an operator's word"
    )
    assert coming(both) == {}


@pytest.mark.parametrize("body", [b"v19", b"another"])
def test_a_record_with_the_same_body_and_another_time_is_another_one(both, body):
    both.add(20)
    both.copy()
    run = both.cluster.partitions[both.name][QUEUE]
    run[19] = run[19]._replace(value=body, timestamp=run[19].timestamp + 1)
    assert coming(both)


def test_what_retention_has_deleted_in_kafka_is_not_asked_for(both):
    both.add(20)
    both.copy()
    both.cluster.starts[Partition(both.name, QUEUE)] = 20
    assert coming(both) == {}


def test_messages_in_the_place_of_copied_ones_are_told_with_the_first_of_them(both):
    both.send(*(b"own%d" % number for number in range(9)))
    for number in range(6):
        both.copy_back(number, b"own%d" % number, 60_000)
    assert returning(both) == {}
    for number in range(6, 9):
        both.copy_back(number, b"lost%d" % number, 60_000)
    assert "queue 0: from offset 6 on the engine has not the messages" in returning(both)[both.name]
    both.copy_back(9, b"beyond the end", 60_000)
    assert "queue 0: from offset 6 on the engine has not the messages" in returning(both)[both.name]


def test_what_was_copied_last_is_compared_after_the_cut_too(both):
    both.add(20)
    both.copy()
    both.send(b"own")
    assert coming(both, is_moved=True) == {}
    del both.cluster.partitions[both.name][QUEUE][12:]
    both.add(30, 50)
    told = coming(both, is_moved=True)[both.name]
    assert "partition 0 offset 19: it has not the record that was copied from there" in told
    assert told.endswith("what Kafka lacks is written by `penstock migrate verify PLAN --all --repair`")


@pytest.mark.parametrize("others", [0, 8, 90])
def test_an_engine_without_what_was_copied_before_its_cut_is_told_although_nothing_was_copied_back(both, others):
    both.add(12)
    both.copy()  # the engine is put back to this
    both.add(8, 12)
    both.send(*(b"other%d" % number for number in range(others)))
    told = returning(both, cut=(20, 20))[both.name]
    assert (
        "queue 0: from offset 12 on the engine has not the records that were copied from Kafka before the cut" in told
    )
    assert f"setting the position of group {GROUP} in partition 0 to 12, by Kafka's own tool" in told
    both.cluster.committed[GROUP] = {Partition(both.name, QUEUE): CommittedPosition(12, "")}
    assert returning(both, cut=(20, 20)) == {}, "an operator's word"


def test_an_engine_with_all_that_was_copied_before_its_cut_is_not_told(both):
    both.add(20)
    both.copy()
    both.send(b"own")
    assert returning(both, cut=(20, 20)) == {}


def test_an_engine_without_what_was_copied_back_before_a_second_cut_is_told(both):
    both.add(5)
    both.copy()
    both.send(b"own5", b"own6")
    for number in (5, 6):
        both.copy_back(number, b"own%d" % number, 60_000)
    both.cluster.committed.clear()
    assert returning(both, cut=(7, 7)) == {}
    both.copy_back(7, b"lost7", 60_000)
    both.cluster.committed.clear()
    both.send(b"other7")
    assert "queue 0: from offset 7 on the engine has not the messages" in returning(both, cut=(8, 8))[both.name]


def test_a_word_about_the_source_since_the_cut_counts(both):
    both.add(12)
    both.copy()
    both.add(8, 12)
    both.send(*(b"other%d" % number for number in range(8)))
    state = copied.states(both.link, [(both.name, QUEUE)])[0]
    copied.accept(both.link, both.name, QUEUE, both.source, start=16, replaces=state.number, reason="a word")
    assert returning(both, cut=(20, 20)) == {}


def test_what_retention_has_deleted_in_kafka_below_the_cut_is_not_asked_for(both):
    both.add(20)
    both.send(b"own")
    both.cluster.starts[Partition(both.name, QUEUE)] = 20
    assert returning(both, cut=(20, 20)) == {}


def soak(both, copied, own, back):
    """Records that were copied before a cut, the engine's own messages since, and as many of these copied back."""
    both.add(copied)
    both.copy()
    both.send(*(b"own%d" % number for number in range(own)))
    for number in range(back):
        both.copy_back(copied + number, b"own%d" % number, 60_000)


@pytest.mark.parametrize("kept", [20, 26, 90])
@pytest.mark.parametrize("deleted", [0, 15])
@pytest.mark.parametrize("others", [0, 300])
def test_a_kafka_without_what_was_copied_back_before_a_rollback_is_told(both, kept, deleted, others):
    soak(both, 20, 80, 80)
    assert rolled_back(both, (100, 100)) == {}
    both.cluster.starts[Partition(both.name, QUEUE)] = deleted
    del both.cluster.partitions[both.name][QUEUE][kept:]
    both.add(100 - kept + others, kept)
    for _ in range(2):
        told = rolled_back(both, (100, 100))[both.name]
        assert (
            f"queue 0: from offset {kept} on Kafka has not the engine's messages that were copied back before" in told
        )
        assert told.endswith("what Kafka lacks is written by `penstock migrate verify PLAN --all --repair`")
        both.copy()  # a bridge goes on
    both.repair(both.compare())
    assert rolled_back(both, (100, 100)) == {}, "repaired"


def test_what_an_open_transaction_hides_is_not_lacked(both, monkeypatch):
    soak(both, 20, 10, 10)
    run = both.cluster.partitions[both.name][QUEUE]
    hidden, offsets = run[25:], both.admin.offsets
    del run[25:]
    monkeypatch.setattr(
        both.admin,
        "offsets",
        lambda asked, at: {each: found + len(hidden) * (at == END) for each, found in offsets(asked, at).items()},
    )
    assert returning(both, cut=(20, 20)) == {} == rolled_back(both, (30, 30))


def test_what_retention_has_deleted_since_a_rollback_is_not_asked_for(both):
    soak(both, 20, 80, 80)
    both.add(50, 100)
    both.cluster.starts[Partition(both.name, QUEUE)] = 100
    assert rolled_back(both, (100, 100)) == {}
    both.cluster.starts[Partition(both.name, QUEUE)] = 130
    assert rolled_back(both, (120, 100)) == {}


def test_a_late_record_of_a_writer_beside_the_proxies_before_a_rollback_is_no_loss(both):
    soak(both, 20, 30, 30)
    both.add(3, 50)
    assert rolled_back(both, (53, 50)) == {}, "not copied yet"
    both.copy()
    assert rolled_back(both, (53, 50)) == {} == rolled_back(both, (53, 53))


def test_an_engine_without_what_was_copied_back_before_a_rollback_is_told(both):
    soak(both, 20, 5, 5)
    both.copy_back(25, b"lost25", 60_000)
    assert (
        "queue 0: the engine has not, below its offset 26, what both sides had"
        in rolled_back(both, (26, 26))[both.name]
    )
    both.add(9, 26)
    both.copy()
    told = rolled_back(both, (26, 26))[both.name]
    assert "queue 0: the engine has not, below its offset 26, what both sides had" in told
    assert f"`penstock kafka accept {both.name} --partition 0 --start 35 --reason TEXT`" in told
    state = copied.states(both.link, [(both.name, QUEUE)])[0]
    copied.accept(both.link, both.name, QUEUE, both.source, start=35, replaces=state.number, reason="a word")
    assert rolled_back(both, (26, 26)) == {}


def test_an_engine_that_was_put_back_before_its_cut_and_filled_beyond_it_is_told_although_a_bridge_goes_on(both):
    both.add(12)
    both.copy()  # the engine is put back to this
    both.send(*(b"other%d" % number for number in range(30)))
    both.add(8, 12)
    both.copy()
    told = returning(both, cut=(20, 20))[both.name]
    assert "queue 0: from offset 12 on Kafka has not the engine's messages" in told
    assert f"setting the position of group {GROUP} in partition 0 to 12, by Kafka's own tool" in told
    both.cluster.committed[GROUP] = {Partition(both.name, QUEUE): CommittedPosition(12, "")}
    assert returning(both, cut=(20, 20)) == {}, "an operator's word"


@pytest.mark.parametrize("others", [0, 4, 60])
def test_a_kafka_that_has_lost_the_newest_of_what_was_copied_back_is_told_although_the_position_is_beyond(both, others):
    soak(both, 20, 10, 10)
    assert returning(both, cut=(20, 20)) == {}
    del both.cluster.partitions[both.name][QUEUE][26:]
    both.add(others, 26)
    told = returning(both, cut=(20, 20))[both.name]
    assert "queue 0: from offset 26 on Kafka has not the engine's messages" in told
    both.cluster.committed[GROUP] = {Partition(both.name, QUEUE): CommittedPosition(26, "")}
    assert returning(both, cut=(20, 20)) == {}, "an operator's word"

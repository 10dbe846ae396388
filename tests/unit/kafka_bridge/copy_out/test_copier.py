"""A turn of a copy to Kafka that gets no answer is told while it waits, and the next one goes on where Kafka is. The first
turn after a cut copies nothing where one side has not what was copied before.
"""

import threading
from types import SimpleNamespace

import pytest

from common.config.definitions import CutRecord
from common.config.definitions.copies import CopyOutDefinition
from common.kafka.copy_mark import COPY_HEADER
from common.kafka.errors import TransactionAborted
from common.kafka.group_admin import CommittedPosition
from common.kafka.records import Partition
from engine.client import copied
from engine.client.admin import AdminClient
from kafka_bridge import heartbeat
from kafka_bridge.copy_out.copier import OutCopier
from kafka_bridge.copy_out.engine_reads import EngineReads, QueueLink
from kafka_bridge.copy_out.metrics import CopyOutMetrics
from tests.e2e.test_engine_process import ADMIN_SECRET
from tests.unit.kafka_bridge.copy_out.test_tails import CommittingProducer, Desk, desk
from tests.unit.migration.reconcile.test_comparison import GROUP, QUEUE, BothSides, engine
from tests.waiting import until

__all__ = ["desk", "engine"]


class SilentProducer(CommittingProducer):
    """Gives no answer to a commit until it is let go, and none in good order then."""

    def __init__(self, kafka, goes_on) -> None:
        super().__init__(kafka)
        self.goes_on = goes_on

    def produce(self, records, on_results):
        """They are not committed."""

    def commit(self, positions, group, notes):
        assert self.goes_on.wait(30)
        raise TransactionAborted("no answer within 40 s")


def standing_shown(copier) -> list[float]:
    metrics = CopyOutMetrics(SimpleNamespace(copiers={"orders": copier}))
    return [each.value for family in metrics.collect() for each in family.samples][-1:]


def test_a_commit_without_an_answer_is_told_and_the_next_turn_copies_all(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(heartbeat.Heartbeat.beat, "__defaults__", ("an answer of Kafka or of the engine", 0.05))
    goes_on, made = threading.Event(), desk.clients.driver.producer
    desk.clients.driver.producer = lambda *_: SilentProducer(desk.kafka, goes_on)
    desk.send("a", "b")
    turn = threading.Thread(target=desk.turn, daemon=True)
    turn.start()
    until(lambda: desk.copier.standing, "the standstill")
    assert desk.copier.standing.startswith("copy_out=orders: nothing has moved for ")
    assert standing_shown(desk.copier) == [1.0] and desk.copier.fault == ""
    goes_on.set()
    turn.join(30)
    assert desk.copier.standing == "copy_out=orders: no answer within 40 s"
    assert desk.copier.next is None, "another turn is due"
    desk.clients.driver.producer = made
    assert desk.turn() == "" == desk.copier.standing and desk.ids() == ["a", "b"]
    assert standing_shown(desk.copier) == [0.0]


class AfterCut(BothSides):
    """A topic that was cut at the same offset on both sides, and its copy back. Args: cut: that offset."""

    def __init__(self, engine, cut) -> None:
        super().__init__(engine)
        self._engine_process, self._cut = engine, cut
        self.clients = SimpleNamespace(
            refresh=lambda: SimpleNamespace(opened=None, is_outdated=lambda: False), close=lambda: None,
            admin=lambda: self.admin,
            driver=SimpleNamespace(
                producer=lambda *_: CommittingProducer(self.cluster), reader=lambda *_: self.open_reader()
            ),
        )  # fmt: skip
        self.copier = OutCopier(CopyOutDefinition(self.name, cluster="main", plan="shop"), self.open)

    def open(self):
        link = AdminClient(self._engine_process.address, ADMIN_SECRET)
        cut = CutRecord("shop", 1, 0, "main", str(self.topic.id), (self._cut,), (self._cut,))
        reads = QueueLink(link, link.hello.log_id, [QUEUE], link.hello.epoch)
        return EngineReads(self.name, [reads], cut=cut)

    def turn(self):
        self.copier.take_turn(self.clients, lambda: True)
        return self.copier.fault

    def copied_back(self):
        """Bodies."""
        run = self.cluster.partitions[self.name][QUEUE]
        return [each.value for each in run if COPY_HEADER in dict(each.headers)]


def test_the_first_turn_copies_nothing_of_an_engine_that_was_put_back_before_its_cut(engine):
    both = AfterCut(engine, cut=20)
    both.add(12)
    both.copy()  # the engine is put back to this
    both.add(8, 12)
    others = [b"other%d" % number for number in range(11)]
    both.send(*others)
    for _ in range(2):
        assert "queue 0: from offset 12 on the engine has not the records that were copied from Kafka" in both.turn()
    assert both.copied_back() == []
    both.cluster.committed[GROUP] = {Partition(both.name, QUEUE): CommittedPosition(12, "")}
    assert both.turn() == "" and both.copied_back() == others
    both.send(b"later")
    assert both.turn() == "" and both.copied_back() == [*others, b"later"]


def test_the_first_turn_copies_nothing_to_a_kafka_that_was_put_back_before_the_cut(engine):
    both = AfterCut(engine, cut=20)
    both.add(20)
    both.copy()
    del both.cluster.partitions[both.name][QUEUE][12:]
    both.add(30, 50)
    both.send(b"own")
    assert "partition 0 offset 19: it has not the record that was copied from there" in both.turn()
    assert both.copied_back() == []
    state = copied.states(both.link, [(both.name, QUEUE)])[0]
    copied.accept(both.link, both.name, QUEUE, both.source, start=12, replaces=state.number, reason="a word")
    assert both.turn() == "" and both.copied_back() == [b"own"]


def test_the_first_turn_after_a_cut_copies_what_the_engine_has_since(engine):
    both = AfterCut(engine, cut=20)
    both.add(20)
    both.copy()
    both.send(b"own")
    assert both.turn() == "" and both.copied_back() == [b"own"]


def test_the_first_turn_copies_nothing_of_an_engine_that_was_filled_beyond_its_cut_while_no_bridge_ran(engine):
    both = AfterCut(engine, cut=20)
    both.add(12)
    both.copy()  # the engine is put back to this
    others = [b"other%d" % number for number in range(30)]
    both.send(*others)
    both.add(8, 12)
    both.copy()  # of the bridge that is started again, the copy from Kafka is first
    for _ in range(2):
        assert "queue 0: from offset 12 on Kafka has not the engine's messages" in both.turn()
    assert both.copied_back() == []
    both.cluster.committed[GROUP] = {Partition(both.name, QUEUE): CommittedPosition(12, "")}
    assert both.turn() == "" and both.copied_back() == others


@pytest.mark.parametrize("others", [0, 3, 60])
def test_a_kafka_that_loses_the_newest_copies_beneath_a_copy_back_stops_it_until_an_operators_word(engine, others):
    both = AfterCut(engine, cut=20)
    both.add(20)
    both.copy()
    own = [b"own%d" % number for number in range(9)]
    both.send(*own)
    assert both.turn() == "" and both.copied_back() == own
    del both.cluster.partitions[both.name][QUEUE][26:]
    both.add(others, 26)
    both.cluster.leader_epoch += 1
    both.send(b"later")
    for _ in range(2):
        assert "queue 0: from offset 26 on Kafka has not the engine's messages" in both.turn()
    both.cluster.committed[GROUP] = {Partition(both.name, QUEUE): CommittedPosition(26, "")}
    assert both.turn() == "" and both.copied_back() == [*own, b"later"]

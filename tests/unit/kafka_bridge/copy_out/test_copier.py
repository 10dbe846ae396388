"""A turn of a copy to Kafka that gets no answer is told while it waits, and the next one goes on where Kafka is."""

import threading

import pytest

from common.kafka.errors import TransactionAborted
from kafka_bridge import heartbeat
from kafka_bridge.copy_out.metrics import CopyOutMetrics
from tests.unit.kafka_bridge.copy_out.test_tails import CommittingProducer, Desk, desk
from tests.waiting import until

__all__ = ["desk"]


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
    class Copies:
        copiers = {"orders": copier}

    return [each.value for family in CopyOutMetrics(Copies()).collect() for each in family.samples][-1:]


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

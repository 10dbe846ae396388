"""`kill -9` of an engine while two copiers copy the same source: each of its records is stored once, in order."""

import os
import random
import signal
import threading

import pytest

from engine.client import copied
from engine.client.admin import AdminClient, AdminError
from engine.link.append import FSYNC, MEMORY
from engine.link.batch import encode_copied_batch
from engine.link.codes import OK, SOURCE_MOVED
from engine.link.copy import CopyPart, ForeignSource
from engine.link.errors import LinkError
from engine.link.operations import READ, TOPIC
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion
from engine.link.record import encode_copied_record, read_record
from engine.link.topic import encode_topics
from tests.e2e.test_engine_process import ADMIN_SECRET, EngineProcess
from tests.waiting import until

KILLS = int(os.environ.get("PENSTOCK_KILLS", "5"))
SOURCE = ForeignSource(b"cluster/topic", 0)
RECORDS_BETWEEN_KILLS = 400


class Copier(threading.Thread):
    """Copies the source until it is told to stop. It asks for the state after each error, as copiers have to."""

    def __init__(self, engine: EngineProcess, seed: int) -> None:
        super().__init__(daemon=True)
        self.engine, self.random = engine, random.Random(seed)
        self.confirmed = self.refused = 0
        self.fault: BaseException | None = None
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                with AdminClient(self.engine.address, ADMIN_SECRET) as link:
                    self._copy(link)
            except (OSError, LinkError, AdminError):
                continue  # the engine was killed, or is not back yet
            except BaseException as fault:
                self.fault = fault
                raise

    def _copy(self, link: AdminClient) -> None:
        while not self.stopping.is_set():
            (state,) = copied.states(link, [("orders", 0)])
            following = state.next
            while not self.stopping.is_set():
                offsets = range(following, following + self.random.randint(1, 40))
                records = [encode_copied_record(b"m%d\0" % each, each) for each in offsets]
                part = CopyPart(SOURCE, following, encode_copied_batch(state.topic_id, 0, state.number, records))
                (result,) = copied.copy(link, self.random.choice((MEMORY, FSYNC)), [part])
                if result.code != OK:
                    assert result.code == SOURCE_MOVED
                    self.refused += 1
                    break
                assert result.next == offsets[-1] + 1
                self.confirmed = following = result.next


@pytest.fixture
def engine(tmp_path):
    made = EngineProcess(tmp_path / "engine")
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.wait(10)


def stored(link: AdminClient) -> list[int | None]:
    """Source offsets of the queue's messages."""
    found: list[int | None] = []
    while True:
        question = ReadQuestion([ReadPosition("orders", 0, offset=len(found))], 1000, 1 << 20)
        code, payload = link.call(READ, question.encode())
        assert code == OK, payload
        answer, before = ReadAnswer.decode(payload), len(found)
        for piece in answer.pieces():
            at = 0
            while at < len(piece.records):
                record, at = read_record(piece.records, at)
                assert record.message == b"m%d\0" % record.source_offset
                found.append(record.source_offset)
        if len(found) == before:
            return found


def test_two_copiers_store_each_record_once_over_kills_of_the_engine(engine):
    with AdminClient(engine.address, ADMIN_SECRET) as link:
        assert link.call(TOPIC, encode_topics([("orders", 1)]))[0] == OK
        copied.accept(link, "orders", 0, SOURCE, start=0, replaces=0, reason="a test")
    copiers = [Copier(engine, seed) for seed in range(2)]
    for each in copiers:
        each.start()
    try:
        for _ in range(KILLS):
            before = max(each.confirmed for each in copiers)
            until(
                lambda before=before: max(each.confirmed for each in copiers) > before + RECORDS_BETWEEN_KILLS, "copies"
            )
            engine.end(signal.SIGKILL)
            engine.start()
    finally:
        for each in copiers:
            each.stopping.set()
        for each in copiers:
            each.join(20)
    assert [each.fault for each in copiers] == [None, None]
    assert sum(each.refused for each in copiers) > 0, "the two never met"
    with AdminClient(engine.address, ADMIN_SECRET) as link:
        (state,) = copied.states(link, [("orders", 0)])
        assert state.next >= max(each.confirmed for each in copiers)
        assert stored(link) == list(range(state.next))
        assert copied.engine_offset_of(link, "orders", 0, state.next // 2).offset == state.next // 2

"""What a master does in each turn, with each STORED, and when it cannot read its log for a slave: both forms."""

import errno
from collections import deque
from types import SimpleNamespace

import pytest

from common.cluster.group_record import GroupRecord, GroupState
from engine.broker import broker_turn as reference
from engine.broker import native
from engine.link import layout
from engine.link.errors import PayloadError
from engine.ops.output_hold import OutputHold
from engine.replication.frames import BytesFrame, SyncFrame
from engine.replication.native import Confirmation, Shipment

EPOCH = 2
RECORD = GroupRecord(EPOCH, GroupState.SYNC_REPLICATION, "a", {"a": 1, "b": 5})
FORMS = {"reference": reference.BrokerTurn} | ({"native": native.BrokerTurn} if native.NATIVE else {})


class FakePeer:
    """The link of a slave, or of a client whose output is held."""

    def __init__(self) -> None:
        self.closed, self.sent, self.released = [], [], []

    def send_frame(self, op, request_id, code, parts):
        self.sent.append((op, code, b"".join(parts)))

    def close(self, reason):
        self.closed.append(reason)

    def release(self, position):
        self.released.append(position)

    @property
    def shipped(self) -> list[tuple[int, int, int]]:
        """(position, confirmed, number of bytes) of each BYTES."""
        frames = [BytesFrame.decode(payload) for op, _, payload in self.sent if op == layout.BYTES]
        return [(frame.position, frame.confirmed, len(frame.data)) for frame in frames]


class ZeroLog:
    """A log of zero bytes; also its own appender, syncer and bytes for slaves."""

    def __init__(self) -> None:
        self.end_position, self.durable_position, self.fault = 64, 64, None

    def read(self, position, bytes_max):
        if self.fault:
            raise self.fault
        return bytes(min(bytes_max, self.end_position - position))


class FakeGroup:
    """A master's group with one slave."""

    is_master, is_alone = True, False

    def __init__(self, log: ZeroLog) -> None:
        self._log = log
        self.confirmation = Confirmation("a")
        self.confirmation.advance(64, 64)
        self.confirmation.adopt(RECORD)
        self.shipments = {"b": Shipment(log, 5, EPOCH, 64, 0)}
        self.confirmation.stored("b", 5, 64, 0)

    def stored(self, slave, epoch, end, synced, now_ms):
        self.shipments[slave].told(epoch, end, synced, now_ms)
        return self.confirmation.stored(slave, 5, end, synced)

    def frames(self, slave, now_ms):
        while (frame := self.shipments[slave].next_frame(self.confirmation.confirmed.memory, now_ms, True)) is not None:
            yield frame

    def is_in_sync(self, slave):
        return slave in RECORD.in_sync

    def sync_frame(self):
        return SyncFrame(EPOCH, self._log.end_position)


class FakeLife:
    lead_at, node, can_serve = 64, object(), True

    def __init__(self) -> None:
        self.appender = self.syncer = ZeroLog()
        self.group = FakeGroup(self.appender)
        self.hold = OutputHold(lambda: self.appender.end_position)
        self.unconfirmed, self.not_everywhere = deque(), deque()
        self.calls = 0

    def call_confirmed(self):
        self.calls += 1


class Master:
    """The broker, its slave's link and a client's."""

    def __init__(self, form: type) -> None:
        self.life, self.peer, self.client, self.ended, self.serves = FakeLife(), FakePeer(), FakePeer(), [], 0
        self.log = self.life.appender
        self.standby = SimpleNamespace(reads=None, confirm=self._confirm_reads)
        self.confirmed_reads = 0
        self.turns = form(self, {"b": self.peer}, lambda: 0, native._send_no_tail, self._serve)

    def _serve(self):
        self.serves += 1

    def _confirm_reads(self):
        self.confirmed_reads += 1

    def end(self, reason):
        self.ended.append(reason)

    def stored(self, end, synced=0, epoch=EPOCH):
        self.turns.stored("b", self.peer, epoch, end, synced)


@pytest.fixture(params=FORMS)
def master(request) -> Master:
    return Master(FORMS[request.param])


def test_a_turn_ships_what_it_wrote_once(master):
    master.log.end_position = 168
    master.turns.run()
    master.turns.run()
    assert master.peer.shipped == [(64, 64, 104)]


def test_a_stored_lets_out_what_it_confirms_before_the_turn_ends(master):
    master.log.end_position = 168
    master.turns.run()
    assert not master.life.hold.note(master.client, 10)
    master.stored(167)
    assert master.client.released == []
    master.stored(168)
    assert master.client.released == [10] and master.life.calls == 0


def test_what_waits_for_a_confirmation_is_called_at_the_next_one(master):
    master.life.unconfirmed.append((168, None))
    master.log.end_position = 168
    master.turns.run()
    master.stored(168)
    assert master.life.calls == 1


def test_a_stored_makes_room_for_what_the_window_held_back(master, monkeypatch):
    window = master.life.group.shipments["b"].room
    master.log.end_position = 64 + window + 1000
    master.turns.run()
    assert sum(size for _, _, size in master.peer.shipped) == window
    master.stored(64 + window)
    master.turns.run()
    assert master.peer.shipped[-1] == (64 + window, 64 + window, 1000)


def test_a_stored_that_cannot_be_is_raised_for_and_one_of_an_earlier_link_is_not_taken(master):
    master.log.end_position = 168
    master.turns.run()
    with pytest.raises(PayloadError, match="epoch"):
        master.stored(168, epoch=EPOCH - 1)
    master.turns.stored("b", FakePeer(), EPOCH, 168, 0)
    assert master.life.group.confirmation.confirmed.memory == 64


def test_slaves_are_asked_to_sync_once_for_each_end_that_an_answer_waits_for(master):
    master.life.not_everywhere.append((168, None))
    master.log.end_position = 168
    master.turns.run()
    master.turns.again()
    assert [op for op, _, _ in master.peer.sent] == [layout.BYTES, layout.SYNC]
    master.turns.follows("b")
    assert [op for op, _, _ in master.peer.sent][2:] == [layout.SYNC]


def test_a_master_without_slaves_lets_nothing_out_without_contact(master):
    master.life.group.is_alone = True
    master.turns.confirm()
    assert master.life.hold.confirmed == 0
    master.turns.has_contact = True
    master.turns.again()
    assert master.life.hold.confirmed == 64


def test_a_broker_serves_once_what_it_had_is_confirmed(master):
    master.life.node, master.life.can_serve = None, False
    master.turns.confirm()
    assert master.serves == 0
    master.life.can_serve = True
    master.turns.confirm()
    assert master.serves == 1


def test_a_broker_that_does_not_lead_only_lets_out_reads_that_wait(master):
    master.life.lead_at, master.log.end_position = None, 168
    master.turns.run()
    master.standby.reads = SimpleNamespace(answers=deque())
    master.turns.run()
    assert master.confirmed_reads == 0
    master.standby.reads.answers.append("an answer")
    master.turns.run()
    assert master.confirmed_reads == 1 and not master.peer.sent


@pytest.mark.parametrize("in_sync", [True, False])
def test_a_master_that_cannot_read_its_log_ends_while_another_has_it_and_does_not_blame_the_slave(
    master, in_sync, monkeypatch
):
    monkeypatch.setattr(FakeGroup, "is_in_sync", lambda self, slave: in_sync)
    master.log.end_position, master.log.fault = 168, OSError(errno.EIO, "Input/output error")
    master.turns.run()
    assert (bool(master.ended), bool(master.peer.closed)) == (in_sync, not in_sync)
    assert [(op, code) for op, code, _ in master.peer.sent] == ([] if in_sync else [(layout.BYTES, layout.UNAVAILABLE)])

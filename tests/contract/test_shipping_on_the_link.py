"""What a master ships is its log, whatever was written last, and a STORED that is not taken is an operation: real sockets."""

import shutil

import pytest

from engine.broker.native import NATIVE as TAIL_IS_NATIVE
from engine.broker.native import send_tail
from engine.config import LogConfig
from engine.env.real import RealEnv
from engine.link import layout
from engine.link.errors import PayloadError
from engine.link.proof import REPLICA_ROLE
from engine.log import open_log
from engine.replication.frames import BytesFrame, StoredFrame
from engine.server.native import NATIVE
from tests import link_bytes as raw
from tests.contract.link_engine import FORMS, Engine, turn_until

EPOCH, CONFIRMED = 7, 64
FRAME_BYTES = 1 << 20


class ShippingEngine(Engine):
    """An engine with one link, of which the test has both ends."""

    def __init__(self, directory, kind: str) -> None:
        super().__init__(directory, kind)
        self.is_native = kind == "native"
        self.topic_id = self.topic()
        self.link = self.raw(role=REPLICA_ROLE)
        name = "{}:{}".format(*self.link.sock.getsockname())
        self.peer = next(each for each in self.node.peers if each.peer == name)

    def ship(self, position: int) -> BytesFrame:
        """Send the log's end as a master does; returns what has come."""
        end = send_tail(self.peer, self.log.appender, EPOCH, position, CONFIRMED, FRAME_BYTES)
        assert end == self.log.end_position
        op, code, request_id, payload = self.link.receive()
        assert (op, code, request_id) == (layout.BYTES, layout.OK, layout.UNASKED)
        return BytesFrame.decode(payload)

    def written(self, position: int) -> BytesFrame:
        """What has to come: the bytes of the file."""
        return BytesFrame(EPOCH, position, CONFIRMED, self.log.raw.read(position, FRAME_BYTES))

    def append(self, *batches: bytes, staged: bool = False) -> list[tuple[int, int]]:
        padded = b"".join(each + bytes(-len(each) % 8) for each in batches)
        return self.log.appender.append(padded, len(batches), self.log.appender.stored_ms_min, False, staged)


@pytest.fixture
def master(tmp_path):
    if not TAIL_IS_NATIVE:
        pytest.skip("the native form is not built, and the reference ships another way")
    made = ShippingEngine(tmp_path / "engine", "native")
    yield made
    made.close()


def a_batch(master: ShippingEngine, count: int, size: int = 100) -> bytes:
    return raw.batch(master.topic_id, 0, [bytes([number]) * size for number in range(1, count + 1)])


def test_the_last_write_and_those_before_it_are_shipped_as_they_are_in_the_file(master):
    ends = []
    for count in (3, 1, 2):
        ends.append(master.log.end_position)
        assert master.append(a_batch(master, count), a_batch(master, count))[0][0] == 0
    for position in reversed(ends):
        assert master.ship(position) == master.written(position)


def test_a_part_of_the_last_write_is_shipped_from_where_the_slave_ends(master):
    first = a_batch(master, 2)
    position = master.log.end_position + len(first) + -len(first) % 8
    master.append(first, a_batch(master, 5))
    assert master.ship(position) == master.written(position)


def test_large_messages_which_are_not_copied_before_the_write_are_shipped(master):
    position = master.log.end_position
    master.append(a_batch(master, 2), a_batch(master, 1, size=100_000), a_batch(master, 1))
    assert master.ship(position) == master.written(position)


def test_what_is_staged_is_not_shipped_and_changes_nothing_that_is(master):
    position = master.log.end_position
    master.append(a_batch(master, 3))
    master.append(a_batch(master, 1), staged=True)
    assert master.ship(position) == master.written(position)
    master.log.appender.commit_staged()
    assert master.ship(position) == master.written(position)


def test_a_batch_that_was_refused_leaves_nothing_of_itself_in_what_is_shipped(master):
    position = master.log.end_position
    master.append(a_batch(master, 3))
    unknown = raw.batch(master.topic_id + 1000, 0, [b"lost" * 50])
    assert master.append(unknown)[0][0] != 0
    assert master.ship(position) == master.written(position)


def test_bytes_of_an_earlier_master_are_shipped_after_a_write_of_its_own(master, tmp_path):
    master.append(a_batch(master, 3))
    shutil.copytree(tmp_path / "engine", tmp_path / "other", ignore=shutil.ignore_patterns("state", "lock"))
    other = open_log(RealEnv(), str(tmp_path / "other"), LogConfig(segment_bytes=4 << 20).checked())
    position = other.end_position
    assert other.appender.append(a_batch(master, 3), 1, other.appender.stored_ms_min)[0][0] == 0
    master.log.follower.apply(position, other.raw.read(position, FRAME_BYTES))
    other.close()
    assert master.ship(position) == master.written(position)


@pytest.fixture(params=FORMS)
def engine(request, tmp_path):
    if request.param == "native" and not NATIVE:
        pytest.skip("the native form is not built")
    made = ShippingEngine(tmp_path / "engine", request.param)
    yield made
    made.close()


def test_a_stored_is_taken_as_it_comes_by_the_native_form_and_is_an_operation_of_the_reference(engine):
    taken = []
    engine.peer.peer_state.on_stored = lambda *told: taken.append(told)
    engine.link.send(layout.STORED, StoredFrame(EPOCH, 900, 800).encode(), layout.UNASKED)
    if engine.is_native:
        turn_until(lambda: taken)
        assert taken == [(EPOCH, 900, 800)]
    else:
        assert engine.link.receive()[:2] == (layout.STORED, layout.INVALID) and not taken


@pytest.mark.parametrize(
    "payload",
    [StoredFrame(EPOCH, 800, 900).encode(), StoredFrame(EPOCH, 800, 700).encode() + b"\0", b"", bytes(19)],
)
def test_a_stored_that_cannot_be_is_an_operation_which_says_what_is_wrong(engine, payload):
    engine.peer.peer_state.on_stored = lambda *told: pytest.fail("it was taken")
    assert engine.link.ask(layout.STORED, payload)[0] == layout.INVALID


def test_a_stored_for_which_its_taker_raises_is_an_operation_and_one_of_a_link_without_a_taker(engine):
    def refuse(epoch: int, end: int, synced: int) -> None:
        raise PayloadError("STORED: not now")

    for taker in (None, refuse):
        engine.peer.peer_state.on_stored = taker
        assert engine.link.ask(layout.STORED, StoredFrame(EPOCH, 800, 700).encode())[0] == layout.INVALID

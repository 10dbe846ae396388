"""A master that cannot read its log for a slave."""

import errno

import pytest

from engine.broker.group_ops import GroupOps
from engine.link import layout


class UnreadableGroup:
    """A master's group whose disk gives no byte of the log."""

    shipments = (("b", None),)

    def __init__(self, in_sync: bool) -> None:
        self._in_sync = in_sync

    @property
    def raw(self):
        raise OSError(errno.EIO, "Input/output error")

    def frames(self, slave, now_ms):
        raise OSError(errno.EIO, "Input/output error")

    def is_in_sync(self, slave):
        return self._in_sync


class FakeMaster:
    waits_everywhere = False

    def __init__(self, in_sync: bool) -> None:
        self.group, self.ended = UnreadableGroup(in_sync), []

    def end(self, reason):
        self.ended.append(reason)


class FakePeer:
    def __init__(self) -> None:
        self.closed, self.sent = [], []

    def send_frame(self, op, request_id, code, parts):
        self.sent.append((op, code, b"".join(parts)))

    def close(self, reason):
        self.closed.append(reason)


@pytest.mark.parametrize("in_sync", [True, False])
def test_a_master_that_cannot_read_its_log_ends_while_another_has_it_and_does_not_blame_the_slave(in_sync):
    master, peer = FakeMaster(in_sync), FakePeer()
    ops = GroupOps(master, lambda: 0)
    ops._slaves["b"] = peer
    ops.send_frames()
    assert (bool(master.ended), bool(peer.closed)) == (in_sync, not in_sync)
    assert [(op, code) for op, code, _ in peer.sent] == ([] if in_sync else [(layout.BYTES, layout.UNAVAILABLE)])

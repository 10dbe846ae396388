"""Group commit of the disk buffer."""

import gevent
import pytest

from producer_proxy.buffer.disk.commit import GroupCommit


def fail(*_: object) -> None:
    raise RuntimeError("a fault of the program")


def test_an_error_of_one_writers_callback_reaches_that_writer_alone():
    commit, done = GroupCommit(lambda files: None), []
    first = gevent.spawn(commit.wait, "file", fail)
    second = gevent.spawn(commit.wait, "file", lambda: done.append("second"))
    gevent.joinall([first, second], timeout=5)
    assert isinstance(first.exception, RuntimeError)
    assert done == ["second"] and second.successful()
    assert commit.idle


@pytest.mark.parametrize("error", [OSError("no room"), RuntimeError("a fault of the program")])
def test_after_a_failed_sync_the_next_writer_is_served(error):
    errors = [error]

    def sync(files: set) -> None:
        if errors:
            raise errors.pop()

    commit, done = GroupCommit(sync), []
    with pytest.raises(type(error)), gevent.Timeout(5):
        commit.wait("file", lambda: done.append("first"))
    with gevent.Timeout(5):
        commit.wait("file", lambda: done.append("second"))
    assert done == ["second"]

"""Work in pieces lets sockets in after each piece."""

import os

import gevent
import pytest

from common.net.turns import next_turn

PIECES = 50


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_a_socket_that_becomes_ready_during_the_work_is_served_before_the_next_piece_but_one(pipe):
    done: list[int] = []
    served_after: list[int] = []
    watcher = gevent.get_hub().loop.io(pipe[0], 1)

    def serve():
        watcher.stop()
        served_after.append(len(done))

    watcher.start(serve)
    gevent.sleep(0.001)

    def work():
        os.write(pipe[1], b"x")
        for piece in range(PIECES):
            done.append(piece)
            next_turn()

    gevent.spawn(work).join()
    watcher.close()
    assert served_after[0] <= 2

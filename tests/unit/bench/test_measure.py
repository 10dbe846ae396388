"""Steps of one benchmark: where generator and servers run."""

import os
import subprocess
import sys

import pytest

from bench.measure import on_one_core


@pytest.fixture
def server():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.communicate(b"\n")


def test_the_generator_has_one_core_and_a_server_apart_the_others(server):
    allowed = os.sched_getaffinity(0)
    with on_one_core([server]):
        assert os.sched_getaffinity(0) == {max(allowed)}
        assert os.sched_getaffinity(server) == (allowed - {max(allowed)} or allowed)
    assert os.sched_getaffinity(0) == os.sched_getaffinity(server) == allowed


def test_another_server_stays_on_any_core(server):
    with on_one_core():
        assert os.sched_getaffinity(server) > os.sched_getaffinity(0) or os.cpu_count() == 1

"""The thread beside the loop."""

import threading

from engine.env import background
from engine.env.background import ThreadBackground
from tests.waiting import until


def test_tasks_run_in_their_order_and_the_thread_waits_for_more_for_a_while(monkeypatch):
    ran, threads = [], set()
    worker = ThreadBackground(lambda reason: None)

    def task(number):
        ran.append(number)
        threads.add(threading.get_native_id())

    for number in range(100):
        worker.submit(lambda number=number: task(number))
        if number % 3 == 0:
            worker.drain()
    worker.drain()
    assert ran == list(range(100))
    assert len(threads) == 1


def test_a_thread_without_tasks_ends_and_the_next_task_has_a_new_one(monkeypatch):
    monkeypatch.setattr(background, "LINGER_S", 0.01)
    worker = ThreadBackground(lambda reason: None)
    ran = []
    for number in range(5):
        worker.submit(lambda number=number: ran.append(number))
        worker.drain()
        until(lambda: not worker._running, "the thread to end")
    assert ran == list(range(5))


def test_no_task_is_lost_between_the_end_of_a_wait_and_the_next(monkeypatch):
    monkeypatch.setattr(background, "LINGER_S", 0.0)
    worker = ThreadBackground(lambda reason: None)
    ran = []
    for number in range(5000):
        worker.submit(lambda number=number: ran.append(number))
    worker.drain()
    assert ran == list(range(5000))


def test_a_task_that_fails_ends_the_process_with_its_traceback():
    said = []
    worker = ThreadBackground(said.append)
    worker.submit(lambda: 1 / 0)
    worker.drain()
    assert "ZeroDivisionError" in said[0]


def test_without_a_thread_tasks_run_in_the_caller_in_their_order_until_one_can_be_started():
    worker, ran = ThreadBackground(lambda reason: None), []
    start = worker._start

    def refuse(*_):
        raise RuntimeError("can't start new thread")

    worker._start = refuse
    worker.submit(lambda: (ran.append(1), worker.submit(lambda: ran.append(2))))
    worker.drain()
    assert ran == [1, 2]
    worker._start = start
    worker.submit(lambda: ran.append(threading.get_native_id()))
    worker.drain()
    assert ran[2] != threading.get_native_id()

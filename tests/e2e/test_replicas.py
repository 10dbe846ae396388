"""A broker group with replicas on one machine, as an operator and applications see it."""

import pytest

from common.contract import Ack, Code
from tests.e2e.running import RunningPenstock
from tests.fault.stock_clients import Puller, Sender, retry_until_served
from tests.waiting import until

SYNC = "SYNC_REPLICATION"


@pytest.fixture
def penstock(tmp_path):
    made = RunningPenstock(tmp_path / "data", "--replicas", "2")
    yield made
    made.end()


def rows(penstock):
    """Rows of `broker list` by the broker's name."""
    return {row["broker"]: row for row in penstock.run("broker", "list")}


def master(penstock):
    return next((name for name, row in rows(penstock).items() if row["role"] == "master"), None)


def wait_in_sync(penstock):
    until(lambda: {row["state"] for row in rows(penstock).values()} == {SYNC}, f"both brokers are in {SYNC}", 20)


def send(penstock, shop, *bodies):
    with Sender(penstock.producer, shop) as sender:
        for body in bodies:
            retry_until_served(lambda body=body: sender.one("orders", body).code == Code.OK, "it is stored")


def pull(penstock, shop, count):
    """Bodies that a group gets, acknowledged."""
    found, acks = [], []

    def step():
        nonlocal acks
        with Puller(penstock.consumer, shop) as puller:
            response = puller.pull("readers", "orders", max_messages=100, acks=acks, wait_ms=100)
        acks = [Ack(each.receipt) for each in response.deliveries or []]
        found.extend(each.message.body for each in response.deliveries or [])
        return len(found) >= count and not acks

    until(step, f"{count} messages are pulled", 20)
    return found


def prepared(penstock):
    penstock.start()
    shop = penstock.application("shop", send=["*"], pull=["*"])
    penstock.run("topic", "create", "orders", "--queues", "4")
    return shop


def test_the_other_broker_goes_on_with_everything_when_the_master_is_killed(penstock):
    shop = prepared(penstock)
    wait_in_sync(penstock)
    first = master(penstock)
    send(penstock, shop, b"one", b"two")
    assert sorted(pull(penstock, shop, 2)) == [b"one", b"two"]
    send(penstock, shop, b"three")
    pid = penstock.kill(first)
    send(penstock, shop, b"four")
    assert master(penstock) not in (first, None)
    assert {b"three", b"four"} <= set(pull(penstock, shop, 2)) <= {b"one", b"two", b"three", b"four"}
    penstock.wait_replaced(first, pid)
    wait_in_sync(penstock)
    assert rows(penstock)[first]["role"] == "in sync"
    state = penstock.run("status")
    assert state["engine"]["topics"] == 1 and state["replicas"]["main"]["state"] == SYNC
    assert sorted(row["role"] for row in state["replicas"]["main"]["brokers"]) == ["in sync", "master"]


def test_a_planned_switch_and_restarts_one_by_one_and_of_all_keep_everything(penstock):
    shop = prepared(penstock)
    wait_in_sync(penstock)
    first = master(penstock)
    send(penstock, shop, b"before")
    penstock.run("broker", "switch", "main")
    until(lambda: master(penstock) not in (first, None), "the other broker is master")
    send(penstock, shop, b"after")
    pids = dict(penstock.refresh()["pids"])
    rolled = penstock.call("rolling-restart")
    assert rolled.returncode == 0, rolled.stdout + rolled.stderr
    assert [name for name, pid in penstock.refresh()["pids"].items() if pid == pids[name]] == ["up"]
    send(penstock, shop, b"rolled")
    penstock.restart()
    assert sorted(pull(penstock, shop, 3)) == [b"after", b"before", b"rolled"]
    wait_in_sync(penstock)


def test_an_existing_directory_becomes_the_first_replica(tmp_path):
    alone = RunningPenstock(tmp_path / "data")
    shop = prepared(alone)
    send(alone, shop, *(b"%d" % number for number in range(50)))
    assert alone.stop() == 0
    both = RunningPenstock(tmp_path / "data", "--replicas", "2")
    try:
        both.start()
        wait_in_sync(both)
        both.kill(master(both))
        assert sorted(pull(both, shop, 50), key=int) == [b"%d" % number for number in range(50)]
        assert both.stop() == 0
        fewer = RunningPenstock(tmp_path / "data", "--replicas", "1")
        with pytest.raises(AssertionError, match="has 2 replicas per group"):
            fewer.start()
        again = RunningPenstock(tmp_path / "data").start()
        wait_in_sync(again)
        again.end()
    finally:
        both.end()

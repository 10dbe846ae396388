"""Readers far behind the end are served by the slave, by real processes, also while it is lost; and look-ups."""

import os
import signal
import urllib.request

import pytest

from common.contract import Ack, Code, Message, Position
from engine.env.real import cached_pages
from tests.fault.replicated_group import ReplicatedGroup
from tests.fault.stock_clients import Puller, Sender, retry_until_served
from tests.waiting import until

MESSAGES, BODY = 60, 80_000
READS, REDIRECTED = "penstock_broker_slave_reads_total", "penstock_broker_redirected_reads_total"
LENT, BORROWED = "penstock_broker_lent_bytes_total", "penstock_engine_borrowed_read_bytes_total"
COLD = "penstock_engine_cold_read_bytes_total"


@pytest.fixture
def group(tmp_path):
    # Nothing reads old segments again, so that what a test drops from the page cache stays out of it.
    options = ("--segment-mib", "1", "--slave-read-mib", "2", "--scrub-mib-s", "0", "--look-up", "none")
    with ReplicatedGroup(tmp_path / "group", f"file://{tmp_path}/config", engine_options=options) as made:
        made.shop = made.application("shop", send=["*"], pull=["*"])
        made.run("topic", "create", "orders", "--queues", "1")
        yield made
        print(made.logs())  # shown if the test has failed


def counted(group, name, metric):
    ops = f"http://127.0.0.1:{group.processes[name].facts['ops_port']}/metrics"
    lines = urllib.request.urlopen(ops, timeout=10).read().decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"{metric} ")), 0.0)


def send(group, topic="orders"):
    bodies = [b"%d " % number + bytes(BODY) for number in range(MESSAGES)]
    with Sender(group.producer, group.shop) as sender:
        for body in bodies:
            message = Message(topic=topic, body=body)
            retry_until_served(lambda message=message: sender.send(message)[0].code == Code.OK, "it is stored")
    return bodies


def read(puller, offset):
    """Some messages from an offset on, and the next offset."""
    place = Position("orders", 0, offset=offset)
    response = puller.pull("readers", positions=[place], max_messages=5)
    (report,) = response.positions
    assert report.code == Code.OK, report
    return [each.message.body for each in response.deliveries], report.next_offset


def test_a_reader_from_the_beginning_is_served_by_the_slave_and_by_the_master_while_there_is_none(group):
    sent, found, offset = send(group), [], 0
    slave, master = group.slave, group.master
    with Puller(group.consumer, group.shop) as puller:
        while offset < MESSAGES:
            if offset == 10:
                assert counted(group, slave, READS) >= 2
                group.kill(slave)
            if offset == 20:
                until(lambda: group.record.in_sync.keys() == {master}, "the slave left the set")
                group.restart(slave)
                group.wait_in_sync()
            bodies, offset = read(puller, offset)
            found += bodies
        assert found == sent
        until(lambda: read(puller, 0)[0] and counted(group, slave, READS) >= 1, "the slave serves reads again")
        redirected = counted(group, master, REDIRECTED)
        assert redirected >= 2
        assert read(puller, MESSAGES - 1)[0] == sent[-1:]
    assert counted(group, master, REDIRECTED) == redirected, "the master serves what lies near the end"


def cached_after_drop(path):
    """Pages of the file that stay in the page cache after all were dropped."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return cached_pages(fd, os.fstat(fd).st_size, 0)
    finally:
        os.close(fd)


def drop_from_page_cache(group, *names):
    for path in (path.with_suffix(".seg") for name in names for path in (group.data[name] / "log").glob("*.idx")):
        until(lambda path=path: cached_after_drop(path) == 0, f"{path} is out of the page cache")


def pull_all(group, topic, after=None):
    """Pull all messages as a new group; their bodies. `after` is called after each pull, with the number of bodies so far."""
    found, acks = [], []
    with Puller(group.consumer, group.shop) as puller:

        def step():
            nonlocal acks
            response = puller.pull("leasing", topic, max_messages=5, acks=acks, wait_ms=200)
            acks = [Ack(each.receipt) for each in response.deliveries or []]
            found.extend(each.message.body for each in response.deliveries or [])
            if after is not None:
                after(len(found))
            return len(found) >= MESSAGES and not acks

        until(step, f"{MESSAGES} messages are pulled", 30)
    return found


def test_a_group_from_the_beginning_gets_bytes_of_the_slave_and_of_the_master_while_there_is_none(group):
    if cached_after_drop(group.key) != 0:
        pytest.skip("cachestat needs Linux 6.5 and a file system on a disk")
    sent = send(group)
    slave, master = group.slave, group.master
    drop_from_page_cache(group, master, slave)
    assert pull_all(group, "orders") == sent
    lent, borrowed, own = counted(group, slave, LENT), counted(group, master, BORROWED), counted(group, master, COLD)
    assert lent >= borrowed >= 1 << 20
    assert own < borrowed, "0 unless the slave was slow"

    group.run("topic", "create", "bills", "--queues", "1")
    sent = send(group, "bills")
    drop_from_page_cache(group, master, slave)

    def lose_slave(count):
        if count == 5:
            assert counted(group, slave, LENT) > lent
            group.kill(slave)

    assert pull_all(group, "bills", lose_slave) == sent
    assert counted(group, master, COLD) >= 1 << 20


def test_a_slave_that_hangs_delays_one_read_and_a_new_master_serves_reads_at_once(group):
    sent = send(group)
    slave = group.slave
    with Puller(group.consumer, group.shop) as puller:
        assert read(puller, 0)[0] == sent[:5]
        group.kill(slave, signal.SIGSTOP)
        assert read(puller, 0)[0] == sent[:5]
        group.kill(slave, signal.SIGCONT)
        group.wait_in_sync()
        group.switch()
        until(lambda: group.master == slave, "the slave is the master")
        assert read(puller, 0)[0] == sent[:5]


def test_an_operator_finds_messages_on_a_slave(group):
    sent = send(group)
    slave = group.slave
    found = group.run("message", "browse", "--topic", "orders", "--queue", "0", "--offset", "3", "--limit", "2",
                      "--engine", group.addresses[slave])  # fmt: skip
    assert [each["offset"] for each in found] == [3, 4]
    by_id = group.run("message", "show", found[0]["id"], "--topic", "orders", "--engine", group.addresses[slave])
    assert [each["offset"] for each in by_id] == [3] and len(sent) == MESSAGES
    refused = group.call("lag", "readers", "--engine", group.addresses[slave])
    assert refused.returncode != 0 and b"Traceback" not in refused.stderr

"""Damage of one broker's directory is repaired from the other one, by real processes: both logs are equal in the end."""

import shutil
from random import Random

import pytest

from common.contract import Ack, Code, Message
from tests.fault.replicated_group import ReplicatedGroup
from tests.fault.stock_clients import Puller, Sender, retry_until_served
from tests.waiting import until

MESSAGES, BODY = 60, 80_000
MAGIC = b"\x42\x50"


@pytest.fixture
def group(tmp_path):
    options = ("--segment-mib", "1", "--scrub-mib-s", "64")
    with ReplicatedGroup(tmp_path / "group", f"file://{tmp_path}/config", engine_options=options) as made:
        made.shop = made.application("shop", send=["*"], pull=["*"])
        made.run("topic", "create", "orders", "--queues", "2")
        yield made
        print(made.logs())  # shown if the test has failed


def send(group, first=0):
    random = Random(first)
    bodies = [b"%d " % number + random.randbytes(BODY) for number in range(first, first + MESSAGES)]
    with Sender(group.producer, group.shop) as sender:
        for body in bodies:
            message = Message(topic="orders", body=body)
            retry_until_served(lambda message=message: sender.send(message)[0].code == Code.OK, "it is stored")
    return bodies


def pull(group, readers, count):
    """Bodies that a new group gets from the first message on."""
    found, acks = [], []

    def step():
        nonlocal acks
        with Puller(group.consumer, group.shop) as puller:
            response = puller.pull(readers, "orders", max_messages=20, acks=acks, wait_ms=100)
        acks = [Ack(each.receipt) for each in response.deliveries or []]
        found.extend(each.message.body for each in response.deliveries or [])
        return len(set(found)) >= count and not acks

    until(step, f"{count} messages are pulled", 30)
    return set(found)


def segments(group, name):
    """Contents of the segment files with batches, by file name."""
    found = {path.name: path.read_bytes() for path in (group.data[name] / "log").glob("*.seg")}
    return {name: data for name, data in found.items() if data[72:74] == MAGIC}


def sealed(group, name):
    """Paths of the sealed segments, oldest first."""
    return sorted(path.with_suffix(".seg") for path in (group.data[name] / "log").glob("*.idx"))


def wait_equal(group):
    def is_equal():
        try:
            return segments(group, "a") == segments(group, "b")
        except FileNotFoundError:
            return False

    until(is_equal, "both logs are equal byte for byte", 40)


def flip(path, at):
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


def shown(group, name):
    found = group.run("broker", "show", "main", "--cluster-key", str(group.key))
    return next(each for each in found["brokers"] if each["broker"] == name)


def test_a_slave_gets_damaged_and_missing_bytes_from_its_master(group):
    sent = send(group)
    slave = group.slave
    until(lambda: len(sealed(group, slave)) >= 4, "segments are sealed")
    group.processes[slave].end()
    first, second, third, fourth = sealed(group, slave)[:4]
    for at in (3, 1000, 200_000, 700_001):
        flip(second, at)
    first.unlink()
    third.unlink()
    third.with_suffix(".idx").unlink()
    flip(fourth.with_suffix(".idx"), 90)
    flip(max((group.data[slave] / "log").glob("*.seg"), key=lambda path: path.read_bytes()[72:74] == MAGIC), 66)
    group.processes[slave].start()
    wait_equal(group)
    group.wait_in_sync()
    until(lambda: shown(group, slave)["damaged"] == 0, "nothing is damaged")
    switch = ("broker", "switch", "main", "--cluster-key", str(group.key))
    until(lambda: group.call(*switch).returncode == 0, "it has opened its log again, and can be the master", 30)
    group.wait_master_other_than(next(name for name in group.brokers if name != slave))
    assert pull(group, "later", MESSAGES) == set(sent)


def test_a_master_gets_damaged_bytes_from_its_slave_while_it_serves(group):
    sent = send(group)
    master = group.master
    until(lambda: len(sealed(group, master)) >= 3, "segments are sealed")
    for path, at in zip(sealed(group, master), (100_000, 500_000, 300_000), strict=False):
        flip(path, at)
    assert pull(group, "readers", MESSAGES) == set(sent), "no group steps over what can be repaired"
    wait_equal(group)
    assert group.master == master and shown(group, master)["repaired_bytes"] > 0


def test_a_lost_disk_and_a_log_that_cannot_be_opened_are_copied_anew(group):
    send(group)
    slave = group.slave
    group.processes[slave].end()
    shutil.rmtree(group.data[slave])
    group.processes[slave].start()
    group.wait_in_sync()
    wait_equal(group)
    slave = group.slave
    group.processes[slave].end()
    for path in (group.data[slave] / "log").glob("*.seg"):
        flip(path, 5)
    group.processes[slave].start()
    wait_equal(group)
    group.wait_in_sync()


def test_a_slave_behind_its_masters_oldest_segment_puts_its_log_aside_and_copies_anew(group, tmp_path):
    master, slave = group.master, group.slave
    group.processes[slave].end()
    shutil.copytree(group.data[slave], tmp_path / "old")
    group.processes[slave].start()
    group.wait_in_sync()
    send(group)
    for name in (slave, master):
        group.processes[name].end()
    shutil.rmtree(group.data[slave])
    shutil.copytree(tmp_path / "old", group.data[slave])
    for path in sealed(group, master)[:2]:
        path.unlink()
        path.with_suffix(".idx").unlink()
    group.processes[master].start()
    until(lambda: group.record.in_sync.keys() == {master}, "the master leads alone", 20)
    group.processes[slave].start()
    group.wait_in_sync()
    assert list((group.data[slave] / "diverged").glob("renewed-1/log/*.seg"))
    wait_equal(group)

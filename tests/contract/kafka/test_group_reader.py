"""Both drivers' members of consumer groups against a real broker, and beside Java's."""

import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager

import pytest

from common.kafka.base import END, CommitOutcome, GroupListener
from common.kafka.errors import KafkaRefusal, PositionOutOfRange
from common.kafka.records import Partition
from tests.contract.kafka.exchange import NOW, rows_of
from tests.contract.kafka.group_member import SESSION_S
from tests.waiting import until

SETTLE_S_MAX = 60.0
COMMITTED, FENCED = CommitOutcome.COMMITTED, CommitOutcome.FENCED


@pytest.fixture
def group():
    return f"g-{uuid.uuid4().hex[:12]}"


class Notes(GroupListener):
    """Notes what its reader is told, and does something in on_revoked."""

    def __init__(self, on_revoked=None) -> None:
        self.events: list[tuple[str, list[int]]] = []
        self.threads: set[int] = set()
        self.deadlines: list[float] = []
        self._on_revoked = on_revoked

    def on_assigned(self, partitions):
        self._note("assigned", partitions)

    def on_revoked(self, partitions, deadline_s):
        self._note("revoked", partitions)
        self.deadlines.append(deadline_s)
        if self._on_revoked is not None:
            self._on_revoked(partitions)

    def on_lost(self, partitions):
        self._note("lost", partitions)

    def _note(self, what, partitions):
        self.events.append((what, sorted(each.number for each in partitions)))
        self.threads.add(threading.get_ident())


def fill(exchange, topic, count, partitions=1):
    rows = [(number % partitions, NOW, b"k", b"%d" % number) for number in range(count)]
    assert exchange.send(topic, *rows).all_stored


def numbers(reader):
    """The partitions that a reader has."""
    return sorted(each.number for each in reader.positions())


def values_of(polled):
    return [row[3] for records in polled for row in rows_of(records)]


def read(reader, count):
    """Poll until there are so many values."""
    found = []

    def poll():
        found.extend(values_of(reader.poll(0.2)))
        return len(found) >= count

    until(poll, f"{count} values", SETTLE_S_MAX)
    return found


def settled(*readers):
    """Poll all readers until each has as many partitions as the others, and return what they read."""
    found = []

    def settle():
        for each in readers:
            found.extend(values_of(each.poll(0.1)))
        return len({len(each.positions()) for each in readers}) == 1 and readers[0].positions()

    until(settle, "partitions for all", SETTLE_S_MAX)
    return found


def test_a_reader_begins_at_the_start_and_a_later_one_where_the_group_has_committed(exchange, new_topic, group):
    topic = new_topic()
    fill(exchange, topic, 10)
    first = exchange.group_reader(group, topic, listener=(notes := Notes()))
    assert read(first, 10) == [b"%d" % each for each in range(10)]
    assert first.commit({Partition(topic, 0): 7}).outcome is COMMITTED
    assert exchange.admin().group_offsets(group) == {Partition(topic, 0): 7}
    first.close()
    assert notes.events == [("assigned", [0]), ("revoked", [0])]
    assert notes.threads == {threading.get_ident()} and notes.deadlines == [30.0]
    second = exchange.group_reader(group, topic)
    assert read(second, 3) == [b"7", b"8", b"9"]
    assert second.positions() == {Partition(topic, 0): 10}


def test_a_group_without_a_position_may_begin_at_the_end(exchange, new_topic, group):
    topic = new_topic()
    fill(exchange, topic, 5)
    reader = exchange.group_reader(group, topic, start=END)
    until(lambda: reader.poll(0.2) == [] and reader.positions(), "the partition", SETTLE_S_MAX)
    assert reader.positions() == {Partition(topic, 0): 5} == exchange.admin().group_offsets(group)
    fill(exchange, topic, 1)
    assert read(reader, 1) == [b"0"]


def test_two_readers_share_the_partitions_and_one_has_them_all_when_the_other_leaves(exchange, new_topic, group):
    topic = new_topic(4)
    first, second = exchange.group_reader(group, topic), exchange.group_reader(group, topic)
    settled(first)
    settled(first, second)
    assert sorted(numbers(first) + numbers(second)) == [0, 1, 2, 3] and len(numbers(first)) == 2
    fill(exchange, topic, 40, partitions=4)
    found = []
    until(lambda: found.extend(values_of(first.poll(0.1) + second.poll(0.1))) or len(found) >= 40, "all", SETTLE_S_MAX)
    assert sorted(found, key=int) == [b"%d" % each for each in range(40)]
    second.close()
    until(lambda: (first.poll(0.1), numbers(first))[1] == [0, 1, 2, 3], "all partitions", SETTLE_S_MAX)


def test_a_paused_partition_gives_nothing_until_it_is_resumed(exchange, new_topic, group):
    topic = new_topic(2)
    reader = exchange.group_reader(group, topic)
    settled(reader)
    reader.pause([Partition(topic, 0)])
    fill(exchange, topic, 6, partitions=2)
    assert read(reader, 3) == [b"1", b"3", b"5"]
    assert values_of(reader.poll(0.5)) == []
    reader.resume([Partition(topic, 0)])
    assert read(reader, 3) == [b"0", b"2", b"4"]


def test_a_partition_that_is_rewound_is_read_again_from_there_alone(exchange, new_topic, group):
    topic = new_topic(2)
    reader = exchange.group_reader(group, topic)
    settled(reader)
    fill(exchange, topic, 12, partitions=2)
    assert len(read(reader, 12)) == 12
    fill(exchange, topic, 12, partitions=2)
    reader.pause([Partition(topic, 0)])
    reader.rewind({Partition(topic, 0): 8, Partition(topic, 1): 10})
    assert reader.positions() == {Partition(topic, 0): 8, Partition(topic, 1): 10}
    assert read(reader, 2) == [b"9", b"11"]
    reader.resume([Partition(topic, 0)])
    assert read(reader, 4) == [b"4", b"6", b"8", b"10"]


class Polling(threading.Thread):
    """A reader in a thread of its own, which polls until it is stopped."""

    def __init__(self, exchange, group, topic, on_revoked, **options) -> None:
        super().__init__(daemon=True)
        self.notes = Notes(on_revoked)
        self.reader = exchange.group_reader(group, topic, listener=self.notes, **options)
        self._stopping = threading.Event()
        self.start()
        until(self.reader.positions, "the partition", SETTLE_S_MAX)

    def run(self):
        while not self._stopping.is_set():
            self.reader.poll(0.1)

    def stop(self):
        self._stopping.set()
        self.join(SETTLE_S_MAX)


def test_a_revoke_waits_for_its_callback_and_a_commit_in_it_counts(exchange, new_topic, group):
    topic = new_topic()
    fill(exchange, topic, 10)
    entered, release, outcomes = threading.Event(), threading.Event(), []

    def on_revoked(partitions):
        entered.set()
        release.wait(SETTLE_S_MAX)
        outcomes.append(old.reader.commit({Partition(topic, 0): 6}).outcome)

    old = Polling(exchange, group, topic, on_revoked)
    new = exchange.group_reader(group, topic)
    until(lambda: new.poll(0.1) == [] and entered.is_set(), "the revoke", SETTLE_S_MAX)
    for _ in range(10):
        assert new.poll(0.1) == [] and new.positions() == {}
    release.set()
    until(lambda: (new.poll(0.1), outcomes)[1], "the end of the callback", SETTLE_S_MAX)
    old.stop()
    assert outcomes[0] is COMMITTED and old.notes.deadlines[0] == 30.0
    old.reader.close()
    assert read(new, 4)[:4] == [b"6", b"7", b"8", b"9"]


def test_a_revoke_that_takes_longer_than_its_deadline_is_over_and_commits_in_it_are_fenced(exchange, new_topic, group):
    topic = new_topic(2)
    release, outcomes = threading.Event(), []

    def on_revoked(partitions):
        if not outcomes:
            release.wait(SETTLE_S_MAX)
            outcomes.append(old.reader.commit(dict.fromkeys(partitions, 5)).outcome)

    old = Polling(exchange, group, topic, on_revoked, revoke_s=1.0)
    new = exchange.group_reader(group, topic)
    until(lambda: (new.poll(0.1), new.positions())[1], "a partition of the new reader", SETTLE_S_MAX)
    assert outcomes == [] and old.notes.deadlines == [1.0]
    release.set()
    until(lambda: (new.poll(0.1), outcomes)[1] and old.reader.positions(), "the end of the callback", SETTLE_S_MAX)
    assert outcomes == [FENCED] and exchange.admin().group_offsets(group) == {}
    assert sorted(numbers(old.reader) + numbers(new)) == [0, 1], "the old reader is a member again"
    old.stop()


@contextmanager
def member_process(driver, brokers, group, topic):
    """A reader in another process: a function that sends it a line and returns its answer, and the process."""
    line = [sys.executable, "-m", "tests.contract.kafka.group_member", driver.name, brokers.bootstrap, group, topic]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(text):
        process.stdin.write(text + "\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    try:
        yield ask, process
    finally:
        process.kill()
        process.wait()


def test_a_reader_that_was_paused_past_its_session_is_fenced(exchange, driver, brokers, new_topic, group):
    topic = new_topic()
    fill(exchange, topic, 10)
    with member_process(driver, brokers, group, topic) as (ask, process):
        assert ask("own") == "[0]" and ask("commit 2") == "committed"
        process.send_signal(signal.SIGSTOP)
        paused_at = time.monotonic()
        heir = exchange.group_reader(group, topic, session_s=SESSION_S)
        assert read(heir, 8)[0] == b"2" and time.monotonic() - paused_at >= SESSION_S / 2
        assert heir.commit({Partition(topic, 0): 8}).outcome is COMMITTED
        process.send_signal(signal.SIGCONT)
        assert ask("commit 3") == "fenced"
        assert exchange.admin().group_offsets(group) == {Partition(topic, 0): 8}
        until(lambda: (heir.poll(0.1), ask("poll"))[1] in ("[]", "[0]"), "the paused one joins again", SETTLE_S_MAX)


def test_a_reader_that_does_not_poll_leaves_the_group_and_is_told_that_its_partitions_are_lost(
    exchange, new_topic, group
):
    topic = new_topic()
    fill(exchange, topic, 3)
    slow = exchange.group_reader(
        group, topic, listener=(notes := Notes()), session_s=1.0, rebalance_s=1.5, revoke_s=1.0
    )
    assert len(read(slow, 3)) == 3
    other = exchange.group_reader(group, topic)
    read(other, 3)
    assert slow.commit({Partition(topic, 0): 3}).outcome is FENCED
    until(lambda: (slow.poll(0.1), other.poll(0.1), notes.events[1:])[2], "news of the loss", SETTLE_S_MAX)
    assert notes.events[1] == ("lost", [0])


def test_only_partitions_of_the_reader_can_be_committed(exchange, new_topic, group):
    topic = new_topic(2)
    reader = exchange.group_reader(group, topic)
    before = reader.commit({Partition(topic, 0): 1})
    assert before.outcome is FENCED and f"{topic} 0: not this reader's" in before.sentence
    settled(reader)
    result = reader.commit({Partition(topic, 0): 1, Partition(topic, 5): 1})
    assert result.outcome is FENCED and f"{topic} 5" in result.sentence
    assert exchange.admin().group_offsets(group) == {}


def test_a_committed_position_that_does_not_exist_is_out_of_range_and_nothing_is_skipped(exchange, new_topic, group):
    topic = new_topic()
    fill(exchange, topic, 3)
    exchange.admin().set_group_offsets(group, {Partition(topic, 0): 500})
    reader = exchange.group_reader(group, topic)
    with pytest.raises(PositionOutOfRange, match="500"):
        for _ in range(100):
            assert reader.poll(0.2) == []


def test_what_a_listener_raises_comes_out_of_poll_and_no_record_is_lost(exchange, new_topic, group):
    topic = new_topic()
    fill(exchange, topic, 5)

    class Failing(Notes):
        def on_assigned(self, partitions):
            raise ValueError("a fault of the listener")

    reader, found = exchange.group_reader(group, topic, listener=Failing()), []
    with pytest.raises(ValueError, match="a fault of the listener"):
        for _ in range(300):
            found += values_of(reader.poll(0.2))
    assert found + read(reader, 5 - len(found)) == [b"%d" % each for each in range(5)]


def test_a_topic_that_does_not_exist_cannot_be_subscribed(exchange, group):
    with pytest.raises(KafkaRefusal) as refusal:
        exchange.group_reader(group, "no-such-topic")
    assert refusal.value.number == 3 and "no-such-topic" in str(refusal.value)
    assert not [each for each in threading.enumerate() if each.name.endswith("-group")], "no thread is left"


def test_a_java_consumer_of_the_group_shares_the_partitions(exchange, brokers, new_topic, group):
    topic = new_topic(2)
    reader = exchange.group_reader(group, topic)
    settled(reader)
    arguments = ("--bootstrap-server", brokers.bootstrap, "--topic", topic, "--group", group)
    with brokers.program("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments) as java:
        until(lambda: (reader.poll(0.1), len(numbers(reader)))[1] == 1, "a partition of Java's", 120.0)
        fill(exchange, topic, 20, partitions=2)
        own = read(reader, 10)
        assert len(set(own)) == 10 and len({int(each) % 2 for each in own}) == 1
        wanted = {str(each) for each in range(20)} - {each.decode() for each in own}
        until(lambda: (reader.poll(0.1), wanted <= set(java.lines()))[1], "Java's records", SETTLE_S_MAX)
        assert not {each.decode() for each in own} & set(java.lines())
    until(lambda: (reader.poll(0.1), numbers(reader))[1] == [0, 1], "both partitions", SETTLE_S_MAX)


def test_a_driver_without_the_newer_group_protocol_refuses_it_by_name(exchange, new_topic, group):
    if "consumer" in exchange.driver.group_protocols:
        pytest.skip("the driver has it")
    with pytest.raises(KafkaRefusal, match='does not have the group protocol "consumer": use classic'):
        exchange.group_reader(group, new_topic(), protocol="consumer")


def test_members_of_both_group_protocols_share_the_partitions(exchange, new_topic, group):
    if "consumer" not in exchange.driver.group_protocols:
        pytest.skip("the driver has the classic protocol only")
    topic = new_topic(2)
    newer = exchange.group_reader(group, topic, protocol="consumer", listener=(notes := Notes()))
    settled(newer)
    assert newer.commit({Partition(topic, 0): 0}).outcome is COMMITTED
    classic = exchange.group_reader(group, topic)
    settled(newer, classic)
    assert sorted(numbers(newer) + numbers(classic)) == [0, 1]
    assert notes.events[0] == ("assigned", [0, 1]) and [len(each) for what, each in notes.events[1:]] == [1]
    fill(exchange, topic, 20, partitions=2)
    found = []
    until(lambda: found.extend(values_of(newer.poll(0.1) + classic.poll(0.1))) or len(found) >= 20, "all", SETTLE_S_MAX)
    assert sorted(found, key=int) == [b"%d" % each for each in range(20)]

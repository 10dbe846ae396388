"""Intents in the mapped file: what a killed process leaves there, when they go to a segment, and a file that fails."""

import os
import random
import shutil
import signal
import subprocess
import sys

import gevent
import pytest

from common.clock import SystemClock
from common.contract import Code, Message
from producer_proxy.buffer.entry import decode
from producer_proxy.journal import copying, mapped
from producer_proxy.journal import journal as journal_module
from producer_proxy.journal.contents import shown_id
from producer_proxy.journal.divergence import divergence
from producer_proxy.journal.journal import RepairJournal
from producer_proxy.journal.last_run import MARGIN_MS, LastRun
from producer_proxy.journal.native import HAS_TAP
from producer_proxy.journal.segment import JournalSegment
from tests.services.fake_broker import wait_until
from tests.unit.producer_proxy.journal.conftest import TAPPED_TOPICS
from tests.unit.producer_proxy.send.desk import codes

pytestmark = pytest.mark.skipif(not HAS_TAP, reason="only a tap uses the mapped file, and it is native code")


def ids_left(directory):
    return [shown_id(decode(each)) for each in mapped.left(directory)]


def is_even(desk):
    return divergence(desk.journal, underway_ms=0).is_empty


def segments(desk):
    return sorted(desk.journal.glob("*.buf"))


def opened_copy(desk, tmp_path):
    """A journal over what a process that is killed now would leave."""
    shutil.copytree(desk.journal, tmp_path / "copy")
    return RepairJournal(tmp_path / "copy", SystemClock().now_ms)


def hold_kafka(desk):
    desk.kafka.is_holding = True


def let_go(desk):
    desk.kafka.is_holding = False
    desk.kafka.release()


def test_a_dual_write_that_succeeds_writes_nothing_to_a_segment(tap_desk):
    for number in range(20):
        assert codes(tap_desk.send(Message(topic="out", key="k", body=b"%d" % number))) == [Code.OK]
    wait_until(lambda: is_even(tap_desk) and len(tap_desk.kafka.records("out")) == 21)
    assert not segments(tap_desk)


def test_a_journal_that_opens_finds_what_a_killed_process_had_in_its_mapped_file(tap_desk, tmp_path):
    hold_kafka(tap_desk)
    sent = [Message(topic="out", id=f"m{number}", key="k") for number in range(3)]
    assert codes(tap_desk.send(*sent)) == [Code.OK] * 3
    assert ids_left(tap_desk.journal) == ["m0", "m1", "m2"]
    journal = opened_copy(tap_desk, tmp_path)
    assert [shown_id(each) for each in journal.read([each.position for each in journal.found])] == ["m0", "m1", "m2"]
    assert all(each.queue is None and each.position < journal.began for each in journal.found)
    assert not (tmp_path / "copy" / mapped.NAME).exists() and not journal.missed.all
    let_go(tap_desk)
    journal.close()


def test_an_area_that_is_used_again_holds_nothing_of_its_earlier_use(tap_desk):
    for number in range(40):
        body = bytes(1000 * (number % 3))
        hold_kafka(tap_desk)
        names = [f"a{number}-{each}" for each in range(number + 1)]
        tap_desk.send(*[Message(topic="out", id=name, key="k", body=body) for name in names])
        assert ids_left(tap_desk.journal) == names
        let_go(tap_desk)
        wait_until(lambda: is_even(tap_desk))


def test_intents_that_stay_longer_than_a_moment_go_to_a_segment(tap_desk, monkeypatch):
    monkeypatch.setattr(mapped, "MOMENT_S", 0.0)
    hold_kafka(tap_desk)
    assert codes(tap_desk.send(Message(topic="out", id="slow", key="k"))) == [Code.OK]
    wait_until(lambda: not ids_left(tap_desk.journal))
    (waiting,) = divergence(tap_desk.journal, underway_ms=0).queues
    assert waiting.ids == ("slow",)
    let_go(tap_desk)
    wait_until(lambda: is_even(tap_desk))
    assert len(tap_desk.kafka.records("out")) == 2, "copied once"


def test_an_append_that_no_area_takes_is_written_to_a_segment_behind_what_was_sent_before(tap_desk):
    hold_kafka(tap_desk)
    assert codes(tap_desk.send(Message(topic="out", id="small", key="k"))) == [Code.OK]
    assert codes(tap_desk.send(Message(topic="out", id="large", key="k", body=bytes(300_000)))) == [Code.OK]
    assert not ids_left(tap_desk.journal)
    (waiting,) = divergence(tap_desk.journal, underway_ms=0).queues
    assert waiting.ids == ("small", "large")
    let_go(tap_desk)
    wait_until(lambda: is_even(tap_desk))
    ids = [dict(each.headers)["penstock-id"] for each in tap_desk.kafka.records("out")]
    assert ids[1:] == [b"small", b"large"]


def test_a_file_that_is_cut_under_the_proxy_costs_it_nothing_but_the_speed(tap_desk):
    hold_kafka(tap_desk)
    assert codes(tap_desk.send(Message(topic="out", id="before", key="k"))) == [Code.OK]
    os.truncate(tap_desk.journal / mapped.NAME, 0)
    for name in ("cut", "after"):
        assert codes(tap_desk.send(Message(topic="out", id=name, key="k"))) == [Code.OK]
    (waiting,) = divergence(tap_desk.journal, underway_ms=0).queues
    assert waiting.ids == ("before", "cut", "after"), "all are in segments"
    let_go(tap_desk)
    wait_until(lambda: is_even(tap_desk))
    assert len(tap_desk.kafka.records("out")) == 4 and not tap_desk.proxy.journaling.intents.ranges.all


def test_a_bus_error_elsewhere_still_ends_the_process(tmp_path):
    program = (
        "import mmap, os, sys\n"
        "from producer_proxy.journal.native import AreaMap\n"
        "from producer_proxy.journal.mapped import AREA_BYTES\n"
        "file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "os.posix_fallocate(file, 0, AREA_BYTES)\n"
        "areas, other = AreaMap(file, 1), mmap.mmap(file, AREA_BYTES)\n"
        "os.ftruncate(file, 0)\n"
        "assert areas.take() is None and areas.is_broken\n"
        "print('no area', flush=True)\n"
        "other[0] = 1\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path / "file")], capture_output=True, timeout=60)
    assert (ended.stdout, ended.returncode) == (b"no area\n", -signal.SIGBUS), ended.stderr


@pytest.mark.parametrize("fault", ["no room", "no descriptor"])
def test_without_a_mapped_file_each_append_is_written_and_copied(tap_desk, monkeypatch, fault):
    def fail(*_):
        raise OSError(28 if fault == "no room" else 24, fault)

    intents = tap_desk.proxy.journaling.journal._mapped
    intents._map.close()
    intents._map = None
    monkeypatch.setattr(mapped.os, "posix_fallocate", fail)
    for number in range(3):
        assert codes(tap_desk.send(Message(topic="out", key="k", body=b"%d" % number))) == [Code.OK]
    wait_until(lambda: is_even(tap_desk) and len(tap_desk.kafka.records("out")) == 4)
    assert not (tap_desk.journal / mapped.NAME).exists()
    monkeypatch.undo()
    intents._retry_at = 0.0
    assert codes(tap_desk.send(Message(topic="out", id="again"))) == [Code.OK]
    wait_until(lambda: (tap_desk.journal / mapped.NAME).exists() and is_even(tap_desk))


def test_left_intents_that_no_segment_takes_are_a_range_to_compare(tap_desk, tmp_path, monkeypatch):
    def fail(self, data):
        raise OSError(28, "the disk is full")

    hold_kafka(tap_desk)
    assert codes(tap_desk.send(Message(topic="out", id="m"))) == [Code.OK]
    with monkeypatch.context() as patch:
        patch.setattr(JournalSegment, "append", fail)
        journal = opened_copy(tap_desk, tmp_path)
    (lost,) = divergence(tmp_path / "copy", underway_ms=0).ranges
    assert lost.from_ms < SystemClock().now_ms() <= lost.to_ms + 60_000 and not journal.found
    let_go(tap_desk)
    journal.close()


def test_an_orderly_end_removes_the_file_and_a_power_cut_leaves_a_short_range(tap_desk, monkeypatch):
    monkeypatch.setattr(journal_module, "SYNC_S", 0.0)
    directory, started_ms = tap_desk.journal, SystemClock().now_ms()
    run = directory / "run"
    assert codes(tap_desk.send(Message(topic="out"))) == [Code.OK]
    wait_until(lambda: int(run.read_text().split()[1]) >= started_ms, 10.0)
    noted_ms = int(run.read_text().split()[1])
    lost = LastRun(directory, SystemClock().now_ms, boot_id="another").lost_span(last_ms=5)
    assert lost is not None and lost[0] >= noted_ms - MARGIN_MS
    wait_until(lambda: is_even(tap_desk))
    tap_desk.close()
    tap_desk.close = lambda: None
    assert not (directory / mapped.NAME).exists() and run.read_text().strip() == "closed"


def test_an_end_that_cannot_write_a_segment_keeps_the_file_and_is_no_orderly_one(tap_desk, monkeypatch):
    def fail(self, data):
        raise OSError(28, "the disk is full")

    hold_kafka(tap_desk)
    assert codes(tap_desk.send(Message(topic="out", id="m"))) == [Code.OK]
    monkeypatch.setattr(copying, "STOP_S", 0.0)
    monkeypatch.setattr(copying.SecondaryCopies, "_divert_tapped", lambda *_: None)  # it would record a range
    monkeypatch.setattr(JournalSegment, "append", fail)
    tap_desk.proxy.journaling.stop()
    monkeypatch.setattr(tap_desk.proxy.journaling, "stop", lambda: None)  # the desk stops its proxy, too
    assert ids_left(tap_desk.journal) == ["m"]
    assert (tap_desk.journal / "run").read_text().strip() != "closed"


def test_the_primary_may_take_long_and_later_messages_wait_for_their_turn(tap_desk):
    tap_desk.engine.go.clear()
    calls = []
    for number in range(3):
        calls.append(gevent.spawn(tap_desk.send, Message(topic="out", id=f"m{number}", key="k")))
        wait_until(lambda: len(ids_left(tap_desk.journal)) >= 1)
    assert tap_desk.proxy.journaling.held() == {"out"}
    tap_desk.engine.go.set()
    gevent.joinall(calls)
    wait_until(lambda: is_even(tap_desk) and len(tap_desk.kafka.records("out")) == 4)
    assert not tap_desk.proxy.journaling.held()


@pytest.mark.parametrize("seed", range(8))
def test_at_any_moment_what_kafka_lacks_is_in_the_journal_and_each_key_keeps_its_order(
    tap_desk, tmp_path, monkeypatch, seed
):
    """Areas run out, batches are too large, memory is full, intents grow old, Kafka hangs and goes on, all by chance."""
    chance = random.Random(seed)
    monkeypatch.setattr(mapped, "MOMENT_S", 0.05)
    monkeypatch.setattr(copying, "GATHER_S", 0.01)
    monkeypatch.setattr(copying, "WAITING_BYTES_MAX", 400_000)
    journal = tap_desk.proxy.journaling.journal
    begin = journal.begin
    monkeypatch.setattr(journal, "begin", lambda batch: chance.random() < 0.8 and begin(batch))
    sent: dict[tuple[str, str], list[str]] = {}
    for turn in range(60):
        if chance.random() < 0.2:
            (hold_kafka if chance.random() < 0.5 else let_go)(tap_desk)
        messages = []
        for number in range(chance.randint(1, 5)):
            topic, key, size = (
                chance.choice(TAPPED_TOPICS),
                chance.choice("abc"),
                chance.choice((0, 99, 9_999, 300_000)),
            )
            messages.append(Message(topic=topic, key=key, id=f"{turn}-{number}", body=bytes(size)))
            sent.setdefault((topic, key), []).append(f"{turn}-{number}")
        assert codes(tap_desk.send(*messages)) == [Code.OK] * len(messages)
        gevent.sleep(chance.choice((0, 0.01, 0.03)))
        if chance.random() < 0.3:
            lacking = {name for names in sent.values() for name in names}.difference(*copied_ids(tap_desk).values())
            assert lacking <= kept_ids(tap_desk, tmp_path / f"turn-{turn}")
    let_go(tap_desk)
    wait_until(lambda: is_even(tap_desk), 30.0)
    assert copied_ids(tap_desk) == sent, "once each"


def copied_ids(desk):
    """Ids in Kafka by topic and key, in their order, without what the fixture has sent."""
    found: dict[tuple[str, str], list[str]] = {}
    for topic in TAPPED_TOPICS:
        for record in desk.kafka.records(topic):
            if record.key is not None:
                shown = dict(record.headers)["penstock-id"].decode()
                found.setdefault((topic, record.key.decode()), []).append(shown)
    return found


def kept_ids(desk, directory):
    """Ids in a journal over what a process that is killed now would leave."""
    shutil.copytree(desk.journal, directory)
    journal = RepairJournal(directory, SystemClock().now_ms)
    try:
        return {shown_id(each) for each in journal.read([each.position for each in journal.found]) if each is not None}
    finally:
        journal.close()

"""A real engine whose disk becomes full: it says so, refuses sends by their own code, administers, and goes on."""

import contextlib
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest

from common.contract import Code, Message
from engine.client import admin
from engine.link.codes import DISK_FULL
from tests import link_bytes as raw
from tests.e2e.running import RunningPenstock
from tests.e2e.test_engine_process import ADMIN_SECRET, EngineProcess, pull, store, topic, whole
from tests.fault.stock_clients import Sender
from tests.services.small_disk import mounted
from tests.waiting import until

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, of 96 MiB."""
    with mounted(tmp_path / "disk", "96m") as folder:
        yield folder


@pytest.fixture
def penstock(small_disk):
    """Everything on that disk. Its engine wants more free space than there is, so it refuses sends from its start."""
    subprocess.run(["mount", "-o", "remount,size=512m", str(small_disk)], check=True)
    running = RunningPenstock(small_disk / "penstock" / "data")
    (small_disk / "penstock").mkdir()
    running.start()
    yield running
    running.end()


@pytest.fixture
def engine(small_disk):
    process = EngineProcess(small_disk / "engine", "--disk-reserve-mib", "16", "--disk-percents", "97,98,99")
    yield process
    process.end()


def readiness(engine: EngineProcess) -> tuple[int, dict]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{engine.facts['ops_port']}/readyz", timeout=5) as page:
            return page.status, json.loads(page.read())["faults"]
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["faults"]


def test_an_engine_on_a_full_disk_says_so_administers_and_accepts_sends_again_when_there_is_room(engine, small_disk):
    link = engine.link()
    orders = topic(link)
    store(link, orders, [b"one\0"])
    assert readiness(engine) == (200, {})
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    (small_disk / "ballast").write_bytes(bytes(free - 2 * MIB))
    until(lambda: readiness(engine)[0] == 503, "a readiness that knows the disk", 10)
    assert "disk full: sends are refused" in readiness(engine)[1]["disk"]
    for _ in range(1000):
        code, sentence = link.ask(raw.APPEND, raw.append(raw.FSYNC, raw.batch(orders, 0, [b"refused\0"])))
        assert code == DISK_FULL and sentence.startswith(b"disk full: the disk of ")
    assert admin.status(engine.address, ADMIN_SECRET)["disk"]["level"] == "refuse"
    # What operators and consumers need goes on: pulls, acknowledgements, topics, resets.
    _, (piece,) = pull(link)
    assert pull(link, max_messages=0, acks=[whole(piece)])[0] == [0]
    assert topic(link, "made-on-a-full-disk") > orders
    (small_disk / "ballast").unlink()
    until(lambda: readiness(engine)[0] == 200, "room again", 10)
    assert store(link, orders, [b"two\0"]) == 1


@pytest.mark.parametrize("change", ["moved", "replaced"])
def test_an_engine_whose_directory_goes_away_refuses_sends_until_it_is_put_back(tmp_path, change):
    engine = EngineProcess(tmp_path / "engine")
    try:
        link = engine.link()
        orders = topic(link)
        store(link, orders, [b"one\0"])
        (tmp_path / "engine").rename(tmp_path / "elsewhere")
        if change == "replaced":
            shutil.copytree(tmp_path / "elsewhere", tmp_path / "engine", ignore=shutil.ignore_patterns("*.sock"))
        until(lambda: readiness(engine)[0] == 503, "a readiness that knows", 10)
        assert "was removed, moved or replaced" in readiness(engine)[1]["disk"]
        code, sentence = link.ask(raw.APPEND, raw.append(raw.FSYNC, raw.batch(orders, 0, [b"refused\0"])))
        assert (
            code == DISK_FULL
            and b"was removed, moved or replaced: put it back" in sentence
            and b"nothing was stored" in sentence
        )
        if change == "replaced":
            shutil.rmtree(tmp_path / "engine")
        (tmp_path / "elsewhere").rename(tmp_path / "engine")
        until(lambda: readiness(engine)[0] == 200, "the directory again", 10)
        assert store(link, orders, [b"two\0"]) == 1
    finally:
        engine.end()


def fill(folder) -> None:
    """Leave not one free page."""
    with open(folder / "ballast", "wb", buffering=0) as file:
        for size in (MIB, 4096):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass


def configuration(penstock) -> dict[str, bytes]:
    """The store's files; what its processes report at any time is left out."""
    root = penstock.data / "config"
    kinds = ("topic", "application", "group", "setting")
    return {str(each): each.read_bytes() for kind in kinds for each in (root / kind).iterdir()}


def test_commands_on_a_disk_without_a_free_byte_work_or_say_so_and_leave_nothing_half_written(penstock, small_disk):
    shop = penstock.application("shop", send=["*"], pull=["*"])
    penstock.run("topic", "create", "orders")
    with Sender(penstock.producer, shop) as sender:
        (refused,) = sender.send(Message(topic="orders", body=b"1"))
        assert refused.code == Code.DISK_FULL and refused.error.startswith("disk full: ") and refused.retry_after_ms
        fill(small_disk)
        before = configuration(penstock)
        for change in (
            ("topic", "create", "more"), ("topic", "set", "orders", "--queues", "9"), ("group", "create", "g"),
            ("app", "create", "other", "--send", "*"),
        ):  # fmt: skip
            made = penstock.call(*change)
            assert made.returncode and b"disk full: nothing was changed: free some space" in made.stderr, made
            assert made.stderr.count(b"\n") <= 2 and b"Traceback" not in made.stderr
        assert configuration(penstock) == before
        for question in (("topic", "list"), ("app", "list"), ("retention", "show"), ("topic", "show", "orders")):
            assert penstock.run(*question)
        for check in ("status", "doctor"):
            told = penstock.call(check)
            assert b"disk" in told.stdout and not told.stderr, told
        subprocess.run(["mount", "-o", "remount,size=4g", str(small_disk)], check=True)
        penstock.run("topic", "create", "more")
        until(lambda: sender.send(Message(topic="orders", body=b"2"))[0].code == Code.OK, "sends come back", 15)

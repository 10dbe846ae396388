"""`penstock buffer`: what it prints and how it ends."""

import base64
import json

import pytest
from click.testing import CliRunner

from common.contract import Message, SendRequest, encode_call
from common.wire import walk_send
from penstock.commands.buffer import command
from producer_proxy.buffer.disk.store import DiskStore
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.room import RoomLimits
from tests.unit.producer_proxy.send.desk import credential

NOW_MS = 1_700_000_000_000


def encoded(**fields) -> bytes:
    frame = encode_call("send", 1, SendRequest(credential(), [Message(**fields)]))
    return walk_send(frame, messages_max=10, body_bytes_max=1 << 20).messages[0].encoded


def entry(number: int, topic: str, key: str | None) -> BufferEntry:
    message = encoded(topic=topic, body=b"%03d" % number, key=key, properties={"n": str(number)})
    return BufferEntry(
        topic, None if key is None else key.encode(), number.to_bytes(16, "big"), message, NOW_MS + number
    )


@pytest.fixture
def directory(tmp_path):
    store = DiskStore(tmp_path / "buffer", RoomLimits(), lambda: NOW_MS, 2048)
    store.put([entry(n, "orders" if n % 3 else "pay", f"k{n % 4}" if n % 2 else None) for n in range(30)])
    store.dead_letter(store.take((), 1, 1 << 20), "the engine refused it with code 101")
    store.remove(store.take((), 5, 1 << 20))
    store.close()
    return tmp_path / "buffer"


def run(*arguments):
    return CliRunner().invoke(command, list(map(str, arguments)))


def test_status_counts_what_waits_by_topic_and_the_dead(directory):
    value = json.loads(run("status", directory, "-o", "json").output)
    assert (value["entries"], value["topics"], value["dead"], value["in_use"]) == (24, 2, 1, False)
    assert value["largest_topics"] == ["orders (16)", "pay (8)"] and value["oldest_s"] > 0
    assert value["damage"] == [] and run("status", directory).exit_code == 0


def test_status_says_when_a_proxy_holds_the_directory_and_reads_all_the_same(directory):
    store = DiskStore(directory, RoomLimits(), lambda: NOW_MS)
    value = json.loads(run("status", directory, "-o", "json").output)
    assert (value["entries"], value["in_use"]) == (24, True)
    done = run("drain", directory, "--engine", "127.0.0.1:1", "--data", directory)
    assert (done.exit_code, done.output.count("\n")) == (5, 1)  # no Penstock there to be told the key by
    store.close()


def test_damage_is_named_and_ends_with_1(directory):
    path = next(path for path in directory.glob("*.buf") if b"013" in path.read_bytes())
    data = bytearray(path.read_bytes())
    data[data.index(b"013")] ^= 1
    path.write_bytes(data)
    done = run("status", directory, "-o", "json")
    assert done.exit_code == 1
    value = json.loads(done.output)
    assert value["entries"] == 23 and value["damage"][0].startswith(f"{path.name} at ")


def test_inspect_lists_oldest_first_and_export_gives_back_the_stored_bytes(directory):
    lines = run("inspect", directory, "--topic", "pay", "--limit", 2).output.splitlines()
    assert len(lines) == 3 and lines[1].split()[1:] == ["pay", "-", f"{6:032x}", "3"]
    values = [json.loads(line) for line in run("export", directory, "--topic", "orders").output.splitlines()]
    assert len(values) == 16
    assert base64.b64decode(values[0]["message"]) == entry(7, "orders", "k3").message
    assert (values[0]["properties"], values[0]["key"], values[0]["id"]) == ({"n": "7"}, "k3", f"{7:032x}")


def test_the_dead_are_listed_with_their_reason(directory):
    (value,) = [json.loads(line) for line in run("export", directory, "--dead").output.splitlines()]
    assert (value["id"], value["reason"]) == (f"{0:032x}", "the engine refused it with code 101")
    assert "the engine refused it" in run("inspect", directory, "--dead").output


def test_a_directory_that_is_not_there_is_wrong_usage(tmp_path):
    assert run("status", tmp_path / "none").exit_code == 2


@pytest.mark.parametrize("verb", ["status", "inspect", "export", "drain"])
def test_a_directory_that_holds_no_buffer_is_refused_and_the_one_below_it_is_named(directory, verb):
    done = run(verb, directory.parent)
    assert done.exit_code == 2 and "holds no buffer; its directory buffer does" in done.output
    assert not (directory.parent / "lock").exists()
    assert "/dev/null is not a directory" in run(verb, "/dev/null").output


def test_a_copy_of_a_buffer_without_its_lock_is_read(directory):
    (directory / "lock").unlink()
    assert run("status", directory).exit_code == 0

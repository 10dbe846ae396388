"""`penstock log`: what it prints and how it ends."""

import json

import pytest
from click.testing import CliRunner

from engine.config import LogConfig
from engine.env.real import RealEnv
from engine.log import open_log
from engine.log.format import pack_batch, pack_record
from penstock.commands.log import command


@pytest.fixture
def data(tmp_path):
    log = open_log(RealEnv(), str(tmp_path / "engine"), LogConfig(segment_bytes=8192))
    log.create_topics([("orders", 1)])
    for number in range(100):
        log.append(pack_batch(0, 1, 0, [pack_record(b"%03d" % number * 50)]), 1, 1)
    log.checkpoint()
    log.close()
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(command, list(map(str, arguments)))


def test_a_good_directory_ends_with_0_and_one_line(data):
    done = run("verify", data)
    assert done.exit_code == 0 and done.output.startswith("good: ") and done.output.count("\n") == 1


def test_damage_ends_with_1_and_names_file_position_and_records(data):
    path = data / "engine" / "log" / f"{8192:020d}.seg"
    with path.open("r+b") as file:
        file.seek(200)
        file.write(b"\0\1\2\3")
    done = run("verify", data)
    assert done.exit_code == 1, done.output
    assert f"file={path} position=8256 bytes=208: 1 record lost" in done.output
    found = json.loads(run("verify", data, "-o", "json").output)
    assert not found["ok"] and found["damage"] == 1
    assert found["findings"][0] | {"file": ""} == found["findings"][0] | {"file": "", "position": 8256, "records": 1}


def test_a_directory_in_use_ends_with_4_and_one_without_a_log_with_3(data, tmp_path_factory):
    unlock = RealEnv().lock(str(data / "engine" / "lock"))
    for name in ("verify", "dump", "stats", "repair"):
        done = run(name, data)
        assert (done.exit_code, done.output.count("\n")) == (4, 1), done.output
    unlock()
    assert run("verify", tmp_path_factory.mktemp("empty")).exit_code == 3


def test_dump_prints_a_line_each_and_json_lines(data):
    lines = run("dump", data, "--topic", "orders", "--records", "--limit", 3).output.splitlines()
    assert len(lines) == 4 and lines[1].split("  ")[:3] == ["orders", "0", "0"]
    values = [json.loads(line) for line in run("dump", data, "-o", "json").output.splitlines()]
    assert len(values) == 101


def test_stats_name_the_largest_topics(data):
    assert "orders" in run("stats", data).output
    assert json.loads(run("stats", data, "-o", "json", "--top", 1).output)["top"][0]["records"] == 100


def test_repair_says_what_it_would_do_and_does_it_with_yes(data):
    index = data / "engine" / "log" / f"{0:020d}.idx"
    index.unlink()
    assert "would do: " in (done := run("repair", data)).output and done.exit_code == 0 and not index.exists()
    assert "done: " in run("repair", data, "--yes").output and index.exists()
    assert run("verify", data).exit_code == 0
    assert run("repair", data, "--yes").output == "There was nothing to repair.\n"

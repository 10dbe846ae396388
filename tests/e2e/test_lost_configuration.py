"""A running `up` whose configuration or engine's directory is lost: nothing is refused or buried, and it comes back."""

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from common.config.store import KINDS
from tests.e2e.running import RunningPenstock
from tests.waiting import until


@pytest.fixture
def penstock(tmp_path):
    made = RunningPenstock(tmp_path / "data").start()
    made.run("topic", "create", "orders", "--buffer", "disk")
    made.run("send", "orders", "first")
    yield made
    made.end()


def readyz(penstock, name="producer_proxy") -> dict:
    url = f"http://127.0.0.1:{penstock.facts['ops'][name]}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refusal:
        return json.load(refusal)


def test_a_configuration_that_is_deleted_is_in_force_until_it_is_restored_from_a_snapshot(penstock, tmp_path):
    saved = penstock.data / "producer_proxy.snapshot"
    until(lambda: saved.exists() and b'"topic"' in saved.read_bytes(), "a snapshot")
    shutil.rmtree(penstock.data / "config")
    (penstock.data / "config").mkdir()
    for kind in (*KINDS, "applied", "claims"):
        (penstock.data / "config" / kind).mkdir()
    until(lambda: "cluster id" in readyz(penstock)["notes"].get("configuration", ""), "the proxy to notice")
    assert readyz(penstock)["ready"]
    key = json.loads((penstock.data / "operator.key").read_text())
    (tmp_path / "secret").write_text(key["secret"])
    act_as = ("--app", key["app"], "--key-id", key["key_id"], "--secret-file", str(tmp_path / "secret"))
    penstock.run("send", "orders", "second", *act_as)
    assert penstock.call("config", "export", "--snapshot", str(saved), "--to", str(tmp_path / "export")).returncode == 0
    penstock.run("config", "apply", str(tmp_path / "export"))
    restored = readyz(penstock)
    until(lambda: "configuration" not in readyz(penstock)["notes"], f"the restored configuration: {restored}", 20.0)
    assert [each["name"] for each in penstock.run("topic", "list")] == ["orders"]
    (penstock.data / "operator.key").unlink()
    penstock.run("send", "orders", "third")  # by a new key: the command waits until the restored proxies know it


def test_an_engine_with_an_empty_directory_is_refused_and_its_messages_are_buffered_until_it_is_accepted(penstock):
    penstock.stop()
    (penstock.data / "engine").rename(penstock.data / "engine.lost")
    penstock.start()
    until(lambda: "broker-group accept main" in readyz(penstock)["faults"].get("engine", ""), "the refusal")
    assert "broker-group accept main" in readyz(penstock, "consumer_proxy")["faults"]["engine"]
    penstock.run("send", "orders", "kept")
    penstock.run("broker-group", "accept", "main")
    until(lambda: readyz(penstock)["ready"], "the accepted engine")
    until(lambda: b"kept" in penstock.call("pull", "orders", "-g", "readers", "--max", "1").stdout, "the message", 30.0)


def test_a_proxy_that_reaches_no_store_and_has_no_snapshot_ends_with_one_sentence_and_code_5(tmp_path):
    key = tmp_path / "cluster.key"
    key.touch(mode=0o600)
    key.write_bytes(bytes(range(32)))
    ended = {
        name: subprocess.Popen(
            [sys.executable, "-P", "-m", name, "--listen", "127.0.0.1:0", "--cluster-key", str(key),
             "--config", "zookeeper://127.0.0.1:1/away", "--snapshot", str(tmp_path / name)],
            stderr=subprocess.PIPE, text=True,
        )
        for name in ("producer_proxy", "consumer_proxy")
    }  # fmt: skip
    for process in ended.values():
        _, told = process.communicate(timeout=60)
        assert process.returncode == 5 and "Traceback" not in told
        assert told.splitlines()[-1].endswith("no connection within 5 s; there is no snapshot to start from")

"""Servers of a run with peers: up when they say so, gone when the block is left; and a cache that holds only what is complete."""

import json
import sys

import pytest

from bench.errors import InstanceError
from bench.peers import build, kafka, rocketmq
from bench.peers.processes import free_ports, is_free, started

SERVER = [sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(60)"]


def test_a_server_is_ended_also_when_the_block_fails(tmp_path):
    with pytest.raises(ZeroDivisionError), started("server", SERVER, tmp_path) as server:
        server.wait_for("ready")
        raise ZeroDivisionError
    assert server.process.returncode is not None


def test_a_server_that_ends_at_once_is_named_with_its_last_words(tmp_path):
    line = [sys.executable, "-c", "print('port is taken'); raise SystemExit(3)"]
    with (
        started("broker", line, tmp_path) as server,
        pytest.raises(InstanceError, match=r"broker ended with code 3: port is taken"),
    ):
        server.wait_for("ready")


def test_free_ports_differ_and_are_free():
    ports = free_ports(5)
    assert len(set(ports)) == 5 and all(map(is_free, ports))


def test_a_build_is_kept_until_what_it_is_made_of_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "ROOT", tmp_path)
    source = tmp_path / "pom.xml"
    source.write_text("1")
    made = []
    first = build._made("jars", [source], made.append)
    assert build._made("jars", [source], made.append) == first and len(made) == 1
    source.write_text("2")
    assert build._made("jars", [source], made.append) != first and len(made) == 2


def test_a_build_that_breaks_off_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def broken(into):
        (into / "half").touch()
        raise InstanceError("mvn ended with code 1")

    with pytest.raises(InstanceError):
        build._made("jars", [], broken)
    assert list((tmp_path / "penstock-bench").iterdir()) == []


def test_a_missing_tool_is_named(tmp_path):
    with pytest.raises(InstanceError, match=r"no-such-tool is not installed.*README"):
        build.run_tool(["no-such-tool"], tmp_path)


def test_a_single_kafka_node_needs_no_other_replica(tmp_path):
    text = kafka.properties(tmp_path, 1, 2)
    factors = [line for line in text.splitlines() if "replication.factor" in line or "min.isr" in line]
    assert len(factors) == 5 and all(line.endswith("=1") for line in factors)


def test_stock_and_tuned_rocketmq_differ_in_the_queue_of_sends_only(tmp_path):
    stock, tuned = (
        set(rocketmq.broker_settings(tmp_path, "127.0.0.1:1", 5, form).splitlines()) for form in (False, True)
    )
    assert stock < tuned and tuned - stock == set(rocketmq.TUNED.splitlines())
    assert {"flushDiskType=ASYNC_FLUSH", "brokerRole=ASYNC_MASTER"} <= stock


def test_rocketmqs_proxy_is_pointed_at_the_cluster_of_its_broker(tmp_path):
    said = json.loads(rocketmq.proxy_settings("127.0.0.1:1", 2, 3))
    assert f"brokerClusterName={said['rocketMQClusterName']}" in rocketmq.broker_settings(
        tmp_path, "127.0.0.1:1", 5, False
    )
    assert (said["namesrvAddr"], said["grpcServerPort"], said["remotingListenPort"]) == ("127.0.0.1:1", 2, 3)

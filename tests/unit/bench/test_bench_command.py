"""The command's options and its refusals; running it for real is an end-to-end test."""

import json
import os

import pytest
from click.testing import CliRunner

from bench import generator, instance
from bench.errors import BenchError, InstanceError
from bench.settings import LoadSettings
from bench.workloads import NAMES, SUITE
from common.config import open_store
from penstock.commands.bench import choose, command


def test_without_the_native_module_the_command_says_that_it_needs_a_compiler(monkeypatch):
    monkeypatch.setattr(generator, "native", None)
    done = CliRunner().invoke(command, ["send"])
    assert done.exit_code == 1
    assert "needs its native load generator" in done.output and "C compiler" in done.output


def test_options_change_a_named_workload_and_its_name_shows_it():
    name, settings = choose("single_fsync", {"seconds": 3.0, "warmup": 0.5, "rate": None})
    assert (name, settings.durability, settings.seconds, settings.warmup_s) == ("single_fsync*", "fsync", 3.0, 0.5)
    assert choose("single_fsync", {})[0] == "single_fsync"


def test_a_mode_takes_the_defaults_and_the_options_given():
    name, settings = choose("both", {"ack": False, "timeout": 3.0, "pattern": "t-%d"})
    assert (name, settings) == (
        "both",
        LoadSettings(mode="both", acknowledge=False, timeout_s=3.0, topic_pattern="t-%d"),
    )


def test_all_faults_of_the_settings_are_told_at_once():
    with pytest.raises(BenchError, match=r"batch is 0.*size is -1.*needs a %d"):
        LoadSettings(batch=0, size=-1, topic_pattern="one")


def test_topics_are_named_by_the_pattern():
    assert LoadSettings(topics=3).topic_names() == ["bench-0", "bench-1", "bench-2"]
    assert LoadSettings(topics=1, topic_pattern="only").topic_names() == ["only"]


def served_by(tmp_path) -> instance.BenchInstance:
    here = {"host": "127.0.0.1", "port": 1}
    return instance.BenchInstance(
        {"config": f"file://{tmp_path}/config", "producer_proxy": here, "consumer_proxy": here, "pids": {}}
    )


def test_a_group_with_an_order_is_made_for_the_run_and_one_that_exists_is_left_alone(tmp_path):
    store = open_store(f"file://{tmp_path}/config")
    settings = LoadSettings(mode="pull", topics=1, topic_pattern="t", group="readers", order="key")
    with served_by(tmp_path).prepared(settings):
        assert store.get("group", "readers").value["order"] == "key"
        with pytest.raises(InstanceError, match="readers"), served_by(tmp_path).prepared(settings):
            pass
        assert store.names("group") == ["readers"]
    assert store.names("group") == store.names("application") == []
    store.close()


def test_an_order_that_does_not_exist_is_refused():
    with pytest.raises(BenchError, match="order 'random' is none of none, key, queue"):
        LoadSettings(order="random")


def test_a_family_is_prepared_as_one_definition_and_deleted_with_the_application(tmp_path):
    store = open_store(f"file://{tmp_path}/config")
    served = served_by(tmp_path)
    settings = LoadSettings(topics=1_000_000, topic_pattern="m.%d", family=True, queues=3)
    with served.prepared(settings):
        assert store.get("family", "m.*").value["queues"] == 3
        assert store.names("topic") == []
        with served.prepared(settings):
            pass
        assert store.names("family") == ["m.*"], "who finds it there leaves it there"
    assert store.names("family") == store.names("application") == []
    store.close()


def test_a_family_needs_a_pattern_that_ends_with_the_number():
    with pytest.raises(BenchError, match="ends with %d"):
        LoadSettings(family=True, topic_pattern="m.%d.x")


def test_the_suite_leaves_out_what_takes_minutes():
    assert "million_topics" in NAMES
    assert "million_topics" not in SUITE


def test_a_directory_that_nobody_serves_is_refused(tmp_path):
    with pytest.raises(InstanceError, match="no penstock up is serving"):
        instance.running(tmp_path)


def test_a_running_instance_is_found_by_its_file(tmp_path):
    facts = {"producer_proxy": {"host": "127.0.0.1", "port": 1}, "pids": {"engine": os.getpid()}}
    (tmp_path / "up.json").write_text(json.dumps(facts))
    assert instance.running(tmp_path).pids == {"engine": os.getpid()}

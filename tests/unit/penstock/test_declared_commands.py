"""`penstock apply` and `penstock export` on a file store: declared entries, differences, deletions by name."""

import json

import pytest
import yaml

from common.admin import declared
from common.admin.administrator import Administrator
from common.config import open_store
from common.config.errors import InvalidEntry, VersionConflict
from common.config.memory_store import MemoryConfigStore

FILE = """
topics:
  orders: {queues: 16, retention_ms: 3600000, durability: fsync}
  plain:
families:
  "metrics.*": {queues: 4, durability: memory}
groups:
  billing: {topics: [orders], attempts_max: 5, order: key}
"""


def test_a_file_is_applied_and_applying_it_again_changes_nothing(run):
    dry = run("apply", "-f", "-", "--dry-run", input=FILE, code=1)
    assert "+ topic orders" in dry.stdout and "4 to create, 0 to change" in dry.stderr
    assert json.loads(run("topic", "list", "-o", "json").stdout) == []
    run("apply", "-f", "-", input=FILE)
    assert json.loads(run("topic", "show", "orders", "-o", "json").stdout)["queues"] == 16
    again = run("apply", "-f", "-", input=FILE)
    assert again.stdout == "" and "no change" in again.stderr
    assert "no change" in run("apply", "-f", "-", "--dry-run", input=FILE).stderr


def test_an_export_applied_elsewhere_declares_the_same(run, tmp_path):
    run("apply", "-f", "-", input=FILE)
    text = run("export").stdout
    assert "no change" in run("apply", "-f", "-", input=text).stderr
    other = MemoryConfigStore()
    admin = Administrator(other, "test")
    declared.apply(admin, declared.differences(admin, declared.parse(text, "x")))
    assert declared.to_text(declared.export(admin)) == text
    assert yaml.safe_load(run("export", "--prefix", "ord").stdout)["topics"].keys() == {"orders"}


def test_a_setting_that_the_file_does_not_have_gets_its_default_and_what_no_command_sets_stays(run):
    run("topic", "create", "orders", "--retention-hours", "5", "--grade", "high")
    run("group", "create", "billing", "--topic", "orders")
    run("group", "pause", "billing")
    made_ms = store_value(run, "topic", "orders")["made_ms"]
    done = run("apply", "-f", "-", input="topics: {orders: {queues: 16}}\ngroups: {billing: {topics: [orders]}}")
    assert "retention_ms: 18000000 → default" in done.stdout and "queues: 8 → 16" in done.stdout
    assert store_value(run, "topic", "orders")["made_ms"] == made_ms
    assert "billing" not in done.stdout and store_value(run, "group", "billing")["paused"] is True


def store_value(run, kind: str, name: str) -> dict:
    return json.loads(run("config", "export").stdout)["kinds"][kind][name]


def test_only_entries_that_are_named_are_deleted(run):
    run("apply", "-f", "-", input=FILE)
    small = "topics: {orders: {queues: 16, retention_ms: 3600000, durability: fsync}}"
    assert "no change" in run("apply", "-f", "-", input=small).stderr
    done = run(
        "apply", "-f", "-", "--prune", "topic/plain", "--prune", "group/billing", "--prune", "topic/gone", input=small
    )
    assert "- topic plain" in done.stdout and "- group billing" in done.stdout and "gone" not in done.stdout
    left = json.loads(run("topic", "list", "-o", "json").stdout)
    assert sorted(each["name"] for each in left) == ["metrics.*", "orders"]
    for wrong in ("topic/orders", "orders", "application/x", "family/metrics.*", "topic/", "/"):
        run("apply", "-f", "-", "--prune", wrong, input=small, code=2)
    assert "console" not in run("audit", "-o", "json").stdout


def test_settings_that_cannot_change_so_are_a_conflict_and_nothing_is_written(run):
    run("apply", "-f", "-", input=FILE)
    result = run("apply", "-f", "-", input="topics: {plain: {grade: high}, orders: {queues: 4}}", code=4)
    assert "queues cannot shrink: it is 16" in result.stderr
    assert "grade" not in store_value(run, "topic", "plain")
    run("apply", "-f", "-", input="topics: {other: {home: 'kafka:west', id_window_ms: 0}}", code=4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "sections"), ("[]", "sections"), ("applications: {a: {}}", "sections"), ("topics: [a]", "NAME"),
        ("topics: {a: {queue: 3}}", "no setting"), ("topics: {a: {queues: 0}}", "queues"),
        ("topics: {a: {made_ms: 3}}", "no setting"), ("groups: {g: {paused: true}}", "no setting"),
        ("topics: {1: {}}", "name as text"), ("topics: {a/b: {}}", "name"), ("topics: {a: 3}", "settings as"),
        ("topics: {a: {}, a: {}}", "given twice"), ("topics: {a: &x {queues: 3}, b: *x}", "aliases"),
        ("topics: " + "[" * 100_000, "nest"), ("topics: {a: {queues: !!python/object:os.system {}}}", "constructor"),
        ("topics: {a: {queues: 3", "expected"), ("\x00", "control characters"), ("topics: {a: {queues: 1e400}}", "queues"),
        ("families: {metrics: {}}", "metrics"), ("topics: {a: {durability: [x]}}", "durability"),
    ],
)  # fmt: skip
def test_a_file_that_declares_nothing_sensible_is_refused_with_its_reason(text, said):
    with pytest.raises(InvalidEntry, match=said):
        declared.parse(text, "topics.yaml")


def test_another_writer_between_comparison_and_change_is_a_conflict():
    admin = Administrator(MemoryConfigStore(), "test")
    declared.apply(admin, declared.differences(admin, declared.parse(FILE, "x")))
    changes = declared.differences(admin, declared.parse("topics: {orders: {queues: 32}}", "x"))
    other = declared.differences(admin, declared.parse("topics: {orders: {queues: 64}}", "x"))
    declared.apply(admin, other)
    with pytest.raises(VersionConflict, match="changed meanwhile"):
        declared.apply(admin, changes)


def test_5_000_topics_are_compared_and_created(tmp_path):
    store = open_store((tmp_path / "config").as_uri())
    admin = Administrator(store, "test")
    text = "topics:\n" + "".join(f"  t{number}: {{queues: 2}}\n" for number in range(5_000))
    declared.apply(admin, declared.differences(admin, declared.parse(text, "x")))
    assert store.count("topic") == 5_000 and declared.differences(admin, declared.parse(text, "x")) == []
    store.close()

"""`penstock config` on a file store: backup, restore, difference, check and repair."""

import json
import os
import shutil
import stat
from contextlib import closing

import pytest

from common.config import open_store
from common.config.view import ConfigView


@pytest.fixture
def filled(run, tmp_path):
    run("topic", "create", "a", "b", "--queues", "3")
    run("app", "create", "shop", "--send", "a")
    run("config", "export", "--to", str(tmp_path / "backup.json"))
    return tmp_path / "backup.json"


def rows(result) -> list:
    return [(each["kind"], each["name"], each["change"]) for each in json.loads(result.stdout)]


def test_an_export_has_everything_and_is_for_its_owner_only(run, filled):
    backup = json.loads(filled.read_text())
    assert backup["kinds"]["topic"]["a"]["queues"] == 3 and backup["kinds"]["application"]["shop"]["keys"][0]["secret"]
    assert stat.S_IMODE(filled.stat().st_mode) == 0o600
    assert json.loads(run("config", "export").stdout)["kinds"] == backup["kinds"]


def test_differences_are_shown_without_secrets_and_nothing_is_written(run, filled):
    secret = json.loads(filled.read_text())["kinds"]["application"]["shop"]["keys"][0]["secret"]
    run("topic", "set", "a", "--durability", "memory")
    run("topic", "create", "c")
    run("app", "rotate", "shop")
    run("topic", "delete", "b")
    shown = run("config", "apply", str(filled), "--diff", "--delete", "-o", "json", code=1)
    assert rows(shown) == [
        ("topic", "a", "change"), ("topic", "b", "create"), ("topic", "c", "delete"), ("application", "shop", "change"),
    ]  # fmt: skip
    assert secret not in shown.output
    assert len(json.loads(run("topic", "list", "-o", "json").stdout)) == 2


def test_an_export_replaces_an_earlier_one_and_no_other_file(run, filled, tmp_path):
    run("config", "export", "--to", str(tmp_path / "backup.json"))
    (tmp_path / "users").write_text("root:x:0:0:root:/root:/bin/bash\n")
    os.mkfifo(tmp_path / "pipe")
    for name in ("users", "pipe"):
        assert "is no export" in run("config", "export", "--to", str(tmp_path / name), code=4).stderr
    assert (tmp_path / "users").read_text().startswith("root:x") and (tmp_path / "pipe").is_fifo()


def test_an_export_is_applied_and_then_there_is_no_difference(run, filled):
    run("topic", "delete", "b")
    run("topic", "create", "c")
    assert rows(run("config", "apply", str(filled), "-o", "json")) == [("topic", "b", "create")]
    run("config", "apply", str(filled), "--diff")
    assert rows(run("config", "apply", str(filled), "--delete", "-o", "json")) == [("topic", "c", "delete")]
    assert [each["name"] for each in json.loads(run("topic", "list", "-o", "json").stdout)] == ["a", "b"]
    audited = json.loads(run("audit", "-o", "json").stdout)
    assert [(each["action"], each["names"]) for each in audited[:2]] == [("apply", ["c"]), ("apply", ["b"])]


def test_an_export_with_fewer_queues_than_a_topic_has_now_does_not_take_queues_away(run, filled):
    run("topic", "set", "a", "--queues", "8", "--durability", "memory")
    run("topic", "delete", "b")
    run("topic", "create", "b", "--queues", "5")
    shown = json.loads(run("config", "apply", str(filled), "-o", "json").stdout)
    assert [(each["name"], each["change"]) for each in shown] == [("a", "change"), ("b", "change")]
    rows = {each["name"]: each for each in json.loads(run("topic", "list", "-o", "json").stdout)}
    assert (rows["a"]["queues"], rows["a"]["durability"]) == (8, "replicated")
    assert rows["b"]["queues"] == 3  # another topic of that name


def test_a_store_that_was_lost_is_restored_from_the_snapshot_of_a_process_which_follows_it_again(run, filled, tmp_path):
    store = open_store(f"file://{tmp_path}/config")
    ConfigView(store, tmp_path / "producer_proxy.snapshot").close()
    store.close()
    shutil.rmtree(tmp_path / "config")
    store = open_store(f"file://{tmp_path}/config")
    view = ConfigView(store, tmp_path / "producer_proxy.snapshot")
    assert view.topic("a").queues == 3 and view.damage
    run("config", "export", "--snapshot", str(tmp_path / "producer_proxy.snapshot"), "--to", str(tmp_path / "saved"))
    assert "follow it again" in run("config", "apply", str(tmp_path / "saved")).stderr
    view.close()
    view = ConfigView(store, tmp_path / "producer_proxy.snapshot")
    assert view.topic("a").queues == 3 and view.damage is None
    view.close()
    store.close()


def test_an_emptied_store_is_followed_once_it_is_accepted(run, filled, tmp_path):
    store = open_store(f"file://{tmp_path}/config")
    ConfigView(store, tmp_path / "consumer_proxy.snapshot").close()
    identity = store.identity()
    store.close()
    shutil.rmtree(tmp_path / "config")
    (tmp_path / "config").mkdir()
    accepted = run("config", "repair", "--accept-empty")
    assert identity.cluster in accepted.stdout
    store = open_store(f"file://{tmp_path}/config")
    view = ConfigView(store, tmp_path / "consumer_proxy.snapshot")
    assert view.topic("a") is None and view.damage is None
    view.close()
    store.close()


def test_a_sound_store_verifies_and_a_lost_index_is_named_and_repaired(run, filled, tmp_path):
    run("config", "verify")
    (tmp_path / "config" / "topic" / "index").unlink()
    assert "penstock config repair" in run("topic", "create", "c", code=1).stderr
    assert "index is missing" in run("config", "verify", code=1).stdout
    assert "made the index again" in run("config", "repair").stdout
    run("config", "verify")
    assert [each["name"] for each in json.loads(run("topic", "list", "-o", "json").stdout)] == ["a", "b"]


def test_a_lost_bucket_is_named_left_out_of_the_index_and_restored_from_an_export(run, filled, tmp_path):
    saved = tmp_path / "saved.json"
    run("config", "export", "--to", str(saved))
    (bucket,) = (tmp_path / "config" / "application").glob("0*")
    bucket.unlink()
    assert "is missing" in run("app", "list", code=1).stderr
    (found,) = json.loads(run("config", "verify", "-o", "json", code=1).stdout)
    assert "missing" in found["problem"] and "penstock config apply" in found["repair"]
    assert "penstock config apply" in run("config", "repair").stdout
    run("config", "verify")
    assert json.loads(run("app", "list", "-o", "json").stdout) == []
    run("config", "apply", str(saved))
    assert "shop" in run("app", "list", "-o", "json").stdout


def test_a_damaged_bucket_and_an_entry_of_a_later_version_are_named(run, filled, tmp_path):
    store = open_store(f"file://{tmp_path}/config")
    store.put("topic", "later", {"durability": "of a later version"}, 0)
    store.close()
    (bucket,) = (tmp_path / "config" / "application").glob("0*")
    data = bucket.read_bytes()
    bucket.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    found = json.loads(run("config", "verify", "-o", "json", code=1).stdout)
    assert [each["subject"].split()[0] for each in found] == ["topic", "application"]
    assert "cannot read it" in found[0]["problem"] and "checksum" in found[1]["problem"]


def test_what_was_deleted_since_an_older_copy_of_the_store_comes_back_by_the_operators_word_only(run, filled, tmp_path):
    run("app", "create", "thief")
    shutil.copytree(tmp_path / "config", tmp_path / "older")
    run("app", "delete", "thief", "--yes")
    run("topic", "create", "later")
    run("config", "export", "--to", str(filled))
    shutil.rmtree(tmp_path / "config")
    shutil.copytree(tmp_path / "older", tmp_path / "config")
    assert "say --delete or --keep" in run("config", "apply", str(filled), "--diff", code=1).stderr
    assert "application thief" in run("config", "apply", str(filled), code=4).stderr
    assert "later" not in run("topic", "list", "-o", "json").stdout
    run("config", "apply", str(filled), "--delete")
    assert "thief" not in run("app", "list", "-o", "json").stdout


def test_an_export_does_not_change_what_a_plan_at_work_has_set(run, filled, tmp_path):
    with closing(open_store(f"file://{tmp_path / 'config'}")) as store:
        store.put("migration_topic", "a", {"plan": "shop"}, 0)
        store.put("copy_out", "a", {"cluster": "main", "plan": "shop"}, 0)
    run("topic", "set", "a", "--retention-hours", "1")
    run("config", "apply", str(filled))
    given = json.loads(filled.read_text())
    assert "migration plan shop" in run("config", "apply", "--delete", str(filled), code=4).stderr
    given["kinds"]["topic"]["a"] |= {"secondary": "kafka:main"}
    refused = run("config", "apply", "-", input=json.dumps(given), code=4).stderr
    assert 'topic "a"' in refused and "migration plan shop" in refused
    assert "secondary" not in json.loads(run("topic", "show", "a", "-o", "json").stdout)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format":"other"}', '{"format":"penstock configuration 1","kinds":{"x":{}}}']
)
def test_a_file_that_is_no_export_is_refused(run, text):
    assert "not an export" in run("config", "apply", "-", input=text, code=2).stderr


def test_an_export_with_faults_changes_nothing(run, filled):
    backup = json.loads(filled.read_text())
    backup["kinds"]["topic"]["c"] = {"queues": 0}
    backup["kinds"]["topic"]["d"] = 7
    error = run("config", "apply", "-", input=json.dumps(backup), code=2).stderr
    assert "queues: 0 is out of range" in error and 'topic "d": not a JSON object' in error

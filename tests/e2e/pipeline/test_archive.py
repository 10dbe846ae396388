"""Archives of a real topic: complete by the manifest, continued after an interruption, and damage is found."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from penstock_client import Message

from penstock.commands.pipeline.group import command
from pipeline.archive.archive import plan_archive, run_archive, verify_archive
from pipeline.archive.manifest import RangeEntry, write_entry
from pipeline.archive.place import ArchivePlace
from pipeline.json_rows import json_rows
from pipeline.replay import archived_rows, replay, rows_to_replay

MESSAGES = 600
RANGE = 100


@pytest.fixture(scope="module")
def stored(penstock_up, producer):
    penstock_up.run("topic", "create", "payments", "--queues", "2")
    sent = [
        Message(topic="payments", id=f"p-{number}", key=str(number % 9), body=b"%d" % number, tag="odd" if number % 2 else None,
                properties={"n": str(number)} if number % 3 else None)
        for number in range(MESSAGES)
    ]  # fmt: skip
    assert all(result.ok for result in producer.send_all(sent))
    return {message.id: message for message in sent}


@pytest.fixture
def archive(spark, options, stored, tmp_path):
    """Archive what is missing; returns the directory and the plan."""

    def run():
        url, chosen = str(tmp_path / "archive"), options(topics="payments")
        plan = plan_archive(chosen, url, RANGE)
        run_archive(spark, chosen, url, plan)
        return Path(url), plan

    return run


def test_an_archive_has_every_message_and_a_second_run_adds_only_what_is_new(archive, spark, producer, stored):
    url, plan = archive()
    assert plan.messages == MESSAGES
    assert max(each.count for each in plan.ranges) == RANGE
    rows = spark.read.parquet(str(url)).collect()
    assert {row.id: (row.topic, row.key, bytes(row.body), row.tag, row.properties) for row in rows} == {
        each: ("payments", message.key, message.body, message.tag, message.properties)
        for each, message in stored.items()
    }
    assert len(rows) == MESSAGES
    more = [Message(topic="payments", id=f"p-{number}", body=b"more") for number in range(MESSAGES, MESSAGES + 30)]
    assert all(result.ok for result in producer.send_all(more))
    stored.update({message.id: message for message in more})
    assert archive()[1].messages == 30
    assert verify_archive(spark, str(url))[1:] == (MESSAGES + 30, [], 0)


def test_a_run_that_died_is_continued_and_its_leftovers_are_removed(archive, spark, stored):
    url, _ = archive()
    entries = sorted((url / "_manifest" / "payments").iterdir())
    lost = json.loads(entries[1].read_text())
    entries[1].unlink()
    assert any("no entry names this file" in fault for fault in verify_archive(spark, str(url)).faults)
    assert any("gap" in fault for fault in verify_archive(spark, str(url)).faults)
    _, plan = archive()
    assert [(each.queue, each.start, each.end) for each in plan.ranges] == [(lost["queue"], lost["start"], lost["end"])]
    assert set(lost["files"]) <= set(plan.orphans)
    assert verify_archive(spark, str(url))[1:] == (len(stored), [], 0)


def test_a_file_that_was_changed_or_lost_is_found(archive, spark):
    url, _ = archive()
    first, second, *_ = sorted((url / "topic=payments").rglob("*.parquet"))
    second.write_bytes(first.read_bytes())
    third = sorted((url / "topic=payments").rglob("*.parquet"))[2]
    third.unlink()
    faults = verify_archive(spark, str(url)).faults
    assert len(faults) == 2
    assert any("No such file" in fault or "does not exist" in fault or "Failed to open" in fault for fault in faults)


def test_an_archive_is_replayed_twice_into_a_topic_and_each_message_is_there_once(
    archive, spark, options, penstock_up, credential, stored
):
    url, _ = archive()
    penstock_up.run("topic", "create", "again", "--queues", "3")
    host, port = penstock_up.producer
    target = {"endpoint": f"{host}:{port}", "credential": str(credential), "topic": "again"}
    for _ in range(2):
        rows = rows_to_replay(archived_rows(spark, str(url), "payments"), "tag = 'odd'", keep_ids=True)
        replay(rows, target, keep_ids=True)
    replayed = spark.read.format("penstock").options(**options(topics="again")).load().collect()
    assert sorted((row.id, row.key, bytes(row.body)) for row in replayed) == sorted(
        (each, message.key, message.body) for each, message in stored.items() if message.tag == "odd"
    )


def test_the_commands_archive_verify_and_replay_with_a_summary_each(
    spark, penstock_up, options, credential, stored, tmp_path
):
    url, where = str(tmp_path / "a"), options(topics="payments")
    proxies = ("--endpoint", where["endpoint"], "--credential", where["credential"])
    planned = run("archive", "run", url, "payments", *proxies, "--dry-run")
    assert (planned["dry_run"], planned["offsets"]) == (True, len(stored))
    assert not (tmp_path / "a").exists()
    assert run("archive", "run", url, "payments", *proxies)["messages"] == len(stored)
    assert run("archive", "verify", url) == {"ranges": 2, "messages": len(stored), "pruned": 0, "faults": 0}
    penstock_up.run("topic", "create", "by-command", "--queues", "1")
    producers = ("--endpoint", "{}:{}".format(*penstock_up.producer), "--credential", str(credential))
    changed = ("--set", "body=concat('<', CAST(body AS STRING), '>')", "--set", "tag='replayed'", "--rate", "800")
    assert run("replay", url, "payments", "by-command", *changed, *producers)["rows"] == len(stored)
    rows = spark.read.format("penstock").options(**options(topics="by-command")).load().collect()
    assert sorted(bytes(row.body) for row in rows) == sorted(b"<%b>" % each.body for each in stored.values())
    assert {row.tag for row in rows} == {"replayed"}
    times = [row.stored_at for row in rows]
    assert (max(times) - min(times)).total_seconds() > 0.8 * (len(stored) / 800) - 0.2  # two tasks end together at best
    wrong = CliRunner().invoke(command, ["replay", url, "payments", "by-command", "--set", "colour='red'", *producers])
    assert (wrong.exit_code, "use FIELD=SQL with one of key, tag, body, properties" in wrong.stderr) == (2, True)


def test_an_archive_is_compacted_and_pruned_by_command_and_stays_complete_by_its_manifest(
    spark, options, archive, producer, stored
):
    url, plan = archive()
    last = json.loads(max((url / "_manifest" / "payments").iterdir()).read_text())
    (path,) = last["files"]
    later = path.replace("hour=2", "hour=3")  # as if the clock had been set back since
    (url / later).parent.mkdir()
    (url / path).rename(url / later)
    write_entry(ArchivePlace(str(url)), RangeEntry(**{**last, "files": (later,), "late": ()}))
    where = options()
    proxies = ("--endpoint", where["endpoint"], "--credential", where["credential"])
    stored["late"] = Message(topic="payments", id="late", key="late", body=b"late")
    assert producer.send(stored["late"]).ok
    (late,) = run("archive", "run", str(url), "payments", *proxies)["late_hours"]
    assert late == f"payments {path.partition('hour=')[2].partition('/')[0]}"
    hours = run("archive", "hours", str(url))
    assert [each["is_late"] for each in hours] == [True, False]
    ranges = len(plan.ranges) + 1
    planned = run("archive", "compact", str(url), "--dry-run")
    done = run("archive", "compact", str(url))
    assert (planned["ranges"], done["ranges"], done["new_ranges"], done["messages"]) == (ranges, ranges, 2, len(stored))
    assert done["new_files"] < done["files"] == len(plan.ranges) + 1
    assert run("archive", "compact", str(url))["ranges"] == 0
    hours = run("archive", "hours", str(url))
    assert [(each["messages"], each["is_late"]) for each in hours] == [(len(stored), True)]
    size = sum(each["size_bytes"] for each in hours)
    half = ("--max-gib", str((size - 1) / 2**30))
    assert run("archive", "prune", str(url), *half, "--dry-run")["ranges"] == 1
    assert run("archive", "verify", str(url))["pruned"] == 0
    pruned = run("archive", "prune", str(url), *half)
    assert pruned["bytes"] + pruned["kept_bytes"] == size
    verdict = run("archive", "verify", str(url))
    assert (verdict["messages"] + verdict["pruned"], verdict["faults"]) == (len(stored), 0)
    assert verdict["pruned"] == pruned["messages"] > 0
    assert archive()[1].ranges == []
    assert archived_rows(spark, str(url), "payments").count() == verdict["messages"]


def test_the_schema_of_json_bodies_is_inferred_by_command_and_rows_are_read_with_it(
    spark, options, penstock_up, producer, tmp_path
):
    penstock_up.run("topic", "create", "documents", "--queues", "2")
    bodies = [json.dumps({"number": number, "item": {"sku": f"s{number}"}}).encode() for number in range(40)]
    bodies += [b'{"number": "x"}', b"text", b"", b'{"item": {"sku": "\xff"}}', b"[1]"]
    assert all(each.ok for each in producer.send_all([Message(topic="documents", body=body) for body in bodies]))
    url, where = str(tmp_path / "a"), options()
    run("archive", "run", url, "documents", "--endpoint", where["endpoint"], "--credential", where["credential"])
    fields = run("archive", "schema", url)
    assert {row["field"]: (row["type"], row["count"], row["conflicts"]) for row in fields} == {
        "number": ("bigint", 41, "string: 1"), "item": ("struct", 40, ""), "item.sku": ("string", 40, ""),
    }  # fmt: skip
    rows = json_rows(spark, url, "documents")
    assert rows.where("body.item.sku = 's7'").select("body.number").collect() == [(7,)]
    assert rows.where("body IS NOT NULL").count() == 40
    kept = [bytes(row.malformed) for row in rows.where("malformed IS NOT NULL").collect()]
    assert sorted(kept) == sorted(bodies[-5:])


def test_a_verification_that_finds_a_fault_ends_with_code_1_and_names_it(spark, archive):
    url, _ = archive()
    next((url / "topic=payments").rglob("*.parquet")).unlink()
    done = CliRunner().invoke(command, ["archive", "verify", str(url)])
    assert done.exit_code == 1
    assert "topic payments queue" in done.output


def run(*arguments):
    """The summary of `penstock pipeline`, in this process, so that it shares the session of Spark."""
    done = CliRunner().invoke(command, [*arguments, "-o", "json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)

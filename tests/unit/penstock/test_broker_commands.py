"""`penstock broker`: what is shown, and switches, with brokers that the test plays and no controller."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from common.cluster.coordination import VersionedRecord
from common.cluster.file_coordination import FileCoordination
from common.cluster.group_record import GroupRecord, GroupState, LogPoint
from penstock.__main__ import cli
from penstock.commands import replicas
from penstock.doctor import replication
from tests.services.fake_replica import KEY, LOG, FakeReplica
from tests.waiting import until

SYNC = GroupRecord(
    3, GroupState.SYNC_REPLICATION, "a", {"a": 1, "b": 2}, {}, {"d": 9}, LOG, LogPoint(3, 50), "the test says so", 1795255200123
)  # fmt: skip


class Group:
    """Brokers a, b and c of group g, of which a and b are in sync; the record has version 1."""

    def __init__(self, directory) -> None:
        self.coordination = FileCoordination(directory / "config" / "replication")
        self.coordination.write("g", SYNC, 0)
        self.coordination.remember("g", VersionedRecord(SYNC, 1))
        self.a, self.b, self.c = (
            FakeReplica(self.coordination, "g", name, number) for number, name in enumerate("abc", 1)
        )
        for each in (self.a, self.b, self.c):
            each.tell(version=1, log_id=LOG, log=LogPoint(3, 200))
        self.a.follow(self.b, self.c, gap=7, has_all=False, lacks_since_ms=1_000)
        until(lambda: len(self.coordination.brokers("g")) == 3, "the registrations")

    @property
    def record(self) -> GroupRecord:
        return self.coordination.record("g").record

    def close(self) -> None:
        for each in (self.a, self.b, self.c):
            each.stop()
        self.coordination.close()


@pytest.fixture
def group(tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "cluster.key").write_bytes(KEY)
    made = Group(tmp_path)
    yield made
    made.close()


@pytest.fixture
def run(tmp_path, group):
    def run_it(*arguments, code=0):
        options = ["--config", f"file://{tmp_path}/config", "--data", str(tmp_path)]
        result = CliRunner().invoke(cli, ["broker", *arguments, *options])
        assert result.exit_code == code, result.output
        return result

    return run_it


def test_brokers_are_listed_with_their_roles_without_asking_them(run, group):
    for each in (group.a, group.b, group.c):
        each.is_silent.set()
    rows = json.loads(run("list", "-o", "json").stdout)
    assert [(row["broker"], row["role"]) for row in rows] == [
        ("a", "master"), ("b", "in sync"), ("c", "following"), ("d", "away"),
    ]  # fmt: skip
    assert rows[1] == {
        "broker_group": "g", "broker": "b", "role": "in sync", "state": "SYNC_REPLICATION", "epoch": 3,
        "address": group.b.address,
    }  # fmt: skip
    assert run("list").stdout.splitlines()[0].split() == [
        "BROKER",
        "GROUP",
        "BROKER",
        "ROLE",
        "STATE",
        "EPOCH",
        "ADDRESS",
    ]


def test_a_broker_that_has_restarted_follows_and_one_that_joins_is_named_so(run, group):
    joining = replace(SYNC, in_sync={"a": 1, "b": 99}, joining={"c": 3})
    group.coordination.write("g", joining, 1)
    roles = {row["broker"]: row["role"] for row in json.loads(run("list", "-o", "json").stdout)}
    assert roles == {"a": "master", "b": "following", "c": "joining", "d": "away"}


def test_a_group_is_shown_with_what_its_brokers_report(run, group):
    group.coordination.stand("c1")
    until(group.coordination.is_controller, "the election")
    group.c.stop()
    shown = json.loads(run("show", "g", "-o", "json").stdout)
    assert (shown["state"], shown["epoch"], shown["version"], shown["master"]) == ("SYNC_REPLICATION", 3, 1, "a")
    assert (shown["in_sync"], shown["before"], shown["joining"]) == (["a", "b"], ["d"], [])
    assert shown["at"] == "2026-11-21T10:00:00.123Z" and shown["reason"] == "the test says so"
    assert shown["floor"] == "epoch 3, position 50" and shown["controller"] == "c1"
    rows = {row["broker"]: row for row in shown["brokers"]}
    assert (rows["b"]["gap_bytes"], rows["b"]["log_end"], rows["b"]["answer"]) == (7, 200, "yes")
    assert rows["b"]["lag_ms"] >= 3_600_000 and rows["a"]["lag_ms"] is None
    assert rows["d"]["answer"] == "not registered" and rows["d"]["address"] is None
    assert "the test says so" in run("show", "g").stdout


def test_a_broker_that_does_not_answer_is_shown_so(run, group, monkeypatch):
    monkeypatch.setattr("controller.reached_group.REACH_S", 0.2)
    group.b.is_silent.set()
    rows = {row["broker"]: row for row in json.loads(run("show", "g", "-o", "json").stdout)["brokers"]}
    assert rows["b"]["answer"].startswith("no answer") and rows["a"]["answer"] == "yes"


def test_the_history_is_shown_oldest_first(run, group):
    for number in range(2, 8):
        change = replace(SYNC, epoch=number + 2, reason=f"change {number}")
        group.coordination.remember("g", VersionedRecord(change, number))
    rows = json.loads(run("history", "g", "--limit", "3", "-o", "json").stdout)
    assert [(row["version"], row["reason"]) for row in rows] == [(5, "change 5"), (6, "change 6"), (7, "change 7")]
    assert rows[0]["at"].startswith("2026-11-21T") and rows[0]["in_sync"] == ["a", "b"]


def test_a_group_that_is_not_there_is_not_found(run):
    for arguments in (("show", "x"), ("history", "x"), ("switch", "x")):
        assert "groups with replicas: g" in run(*arguments, code=3).stderr


def test_a_switch_makes_the_other_member_master_and_tells_every_broker(run, group):
    shown = json.loads(run("switch", "g", "-o", "json").stdout)
    assert shown == {
        "broker_group": "g", "master": "b", "epoch": 4, "state": "SYNC_REPLICATION", "in_sync": ["a", "b"],
    }  # fmt: skip
    assert (group.record.master, group.record.in_sync, group.record.before) == ("b", SYNC.in_sync, SYNC.before)
    assert group.record.at_ms > SYNC.at_ms
    until(lambda: all(each.record == group.record for each in (group.a, group.b, group.c)), "all to have it")
    assert [each.version for each in group.coordination.history("g")] == [1, 2]


def test_the_master_hands_over_before_the_record_is_written(run, group):
    group.a.leads_on = "broker b does not get everything"
    assert "broker a leads on: broker b does not get everything" in run("switch", "g", code=4).stderr
    assert group.record == SYNC and group.a.handed_over == [1]
    group.a.leads_on = ""
    run("switch", "g")
    assert group.record.master == "b" and group.a.handed_over == [1, 1] and group.b.handed_over == []


def test_a_master_that_does_not_answer_is_replaced_as_it_is(run, group, monkeypatch):
    monkeypatch.setattr("controller.operator_switch.HAND_OVER_S_MAX", 0.2)
    monkeypatch.setattr("controller.reached_group.REACH_S", 0.2)
    group.a.is_silent.set()
    run("switch", "g")
    assert group.record.master == "b"


def test_a_forced_switch_asks_no_master_to_hand_over(run, group):
    run("switch", "g", "--to", "c", "--force")
    assert group.a.handed_over == []


def test_a_switch_is_audited(tmp_path, run, group):
    run("switch", "g", "--to", "b")
    shown = CliRunner().invoke(cli, ["audit", "-o", "json", "--config", f"file://{tmp_path}/config"])
    (found,) = json.loads(shown.stdout)
    assert (found["action"], found["kind"], found["names"]) == ("switch", "broker", ["g"])
    assert (found["old"], found["new"]) == ({"master": "a", "epoch": 3}, {"master": "b", "epoch": 4})


def test_a_switch_to_a_broker_that_may_lack_something_is_refused_and_says_how_to_force_it(run, group):
    assert "is not in sync (in sync: a, b)" in run("switch", "g", "--to", "c", code=4).stderr
    group.b.tell(version=0)
    assert "has not adopted the newest record" in run("switch", "g", "--to", "b", code=4).stderr
    assert group.record == SYNC


def test_a_forced_switch_says_what_is_lost_and_asks_nothing(run, group):
    assert "--force needs --to" in run("switch", "g", "--force", code=2).stderr
    group.a.tell(log=LogPoint(3, 1200))
    done = run("switch", "g", "--to", "c", "--force")
    assert "warning: broker a is left out: 1,000 bytes of its log that only it has are lost" in done.stderr
    assert "warning: broker d is left out and not reached" in done.stderr
    assert (group.record.master, group.record.in_sync, group.record.before) == ("c", {"c": 3}, {})
    assert group.record.state is GroupState.SINGLE_MASTER and group.record.epoch == 4


def test_a_switch_that_a_controller_forestalls_is_decided_anew(run, group, monkeypatch):
    write, calls = FileCoordination.write, []

    def forestalled(self, name, record, version):
        calls.append(version)
        if len(calls) == 1:
            write(self, name, replace(SYNC, reason="a controller was faster"), version)
            for each in (group.a, group.b, group.c):
                each.tell(version=2)
        return write(self, name, record, version)

    monkeypatch.setattr(FileCoordination, "write", forestalled)
    run("switch", "g", "--to", "b")
    assert calls == [1, 2] and group.record.master == "b"


def test_a_master_that_does_not_adopt_its_record_is_warned_of(run, group, monkeypatch):
    monkeypatch.setattr("controller.operator_switch.ADOPTED_S_MAX", 0.3)
    group.b.refusal = "the disk is full"
    assert "broker b has not adopted it yet" in run("switch", "g", "--to", "b").stderr


def test_the_key_of_controllers_is_used_where_there_is_one(tmp_path, run):
    (tmp_path / "cluster.key").rename(tmp_path / "controller.key")
    run("show", "g")
    (tmp_path / "cluster.key").write_bytes(b"x" * 32)
    run("show", "g")
    (tmp_path / "controller.key").chmod(0o600)
    run("show", "g", "--controller-key", str(tmp_path / "controller.key"))


def test_a_key_file_may_be_named_and_is_checked(tmp_path, run):
    (tmp_path / "cluster.key").rename(tmp_path / "other.key")
    (tmp_path / "other.key").chmod(0o600)
    run("show", "g", code=5)
    run("show", "g", "--cluster-key", str(tmp_path / "other.key"))
    (tmp_path / "other.key").chmod(0o644)
    assert "chmod 600" in run("show", "g", "--cluster-key", str(tmp_path / "other.key"), code=2).stderr


# -- in `penstock status` and `penstock doctor`


def states(tmp_path, **more):
    facts = {"config": f"file://{tmp_path}/config", "cluster_key": str(tmp_path / "cluster.key")}
    return replicas.states({**facts, "replicas": {"g": ["a", "b"]}, **more})


def found(states_):
    return [(each.subject, each.state, each.words) for each in replication.groups(states_)]


def test_status_has_a_line_per_group_with_the_role_and_the_gap_of_each_broker(tmp_path, group):
    line = replicas.words(states(tmp_path)["g"])
    assert line.startswith("SYNC_REPLICATION, epoch 3: a (master), b (in sync, 7 bytes behind), c (following, 7 bytes")
    assert line.endswith("d (away)")


def test_the_doctor_notes_the_broker_that_is_away_a_group_without_a_slave_in_sync_and_damage(tmp_path, group):
    assert found(states(tmp_path)) == [("replicas of g", "note", "SYNC_REPLICATION, epoch 3; away: d")]
    group.coordination.write("g", replace(SYNC, before={}), 1)
    assert found(states(tmp_path)) == [("replicas of g", "ok", "SYNC_REPLICATION, epoch 3")]
    alone = replace(SYNC, state=GroupState.SINGLE_MASTER, in_sync={"a": 1}, before={})
    group.coordination.write("g", alone, 2)
    group.a.tell(damaged=2)
    until(lambda: len(found(states(tmp_path))) == 2, "the report of the damage")
    shown = found(states(tmp_path))
    assert shown[0] == ("replicas of g", "note", "SINGLE_MASTER, epoch 3: no slave is in sync")
    assert shown[1][:2] == ("damaged log", "note") and "broker a: 2 segments" in shown[1][2]


def test_the_doctor_misses_a_master_that_does_not_answer(tmp_path, group):
    group.a.stop()
    until(lambda: "a" not in group.coordination.brokers("g"), "its registration has ended")
    assert found(states(tmp_path)) == [("replicas of g", "missing", "no master serves")]


def test_a_key_that_is_missing_and_a_store_that_is_gone_are_sentences(tmp_path, group):
    for more in ({"cluster_key": str(tmp_path / "none")}, {"config": "zookeeper:nowhere"}):
        state = states(tmp_path, **more)["g"]
        assert replicas.words(state) == state["error"] != ""
        assert found({"g": state})[0][1] == "missing"
    assert replicas.states({"config": "", "cluster_key": ""}) == {}, "no replicas run"


def test_the_doctor_says_whether_the_coordination_answers(tmp_path):
    assert list(replication.sessions("")) == []
    (found,) = replication.sessions(f"file://{tmp_path}/config")
    assert (found.subject, found.state, found.words) == ("coordination", "ok", "answers")
    (found,) = replication.sessions("zookeeper://127.0.0.1:1/penstock?connect_timeout_s=0.1")
    assert found.state == "missing" and "no connection within 0.1 s" in found.words

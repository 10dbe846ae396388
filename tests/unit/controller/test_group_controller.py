"""A controller's memory of a group: ages of reports and versions, slaves that rest, the last sentence."""

from dataclasses import replace
from types import SimpleNamespace

from common.cluster.coordination import Registration, VersionedRecord
from common.cluster.group_record import GroupRecord, GroupState, LogPoint
from common.cluster.memory_coordination import MemoryCoordination
from common.cluster.reports import FollowerReport
from controller.group_controller import REPORT_S_MAX, GroupController, Heard
from controller.group_turns import GroupTurns
from controller.join_rests import STEADY_S
from tests.unit.controller.test_decision import ASYNC, SEMI, SINGLE, SYNC, VERSION, following, report

BOTH = {"a": Registration(1, "a:1"), "b": Registration(1, "b:1")}


def group(record=SYNC, version: int = VERSION, now_s: float = 0.0) -> GroupController:
    made = GroupController(now_s)
    made.seen(VersionedRecord(record, version), now_s)
    return made


def heard(at_s: float, **reports) -> dict[str, Heard]:
    return {name: Heard(each, at_s) for name, each in reports.items()}


def test_a_step_names_the_version_that_it_replaces():
    step = group().decide(BOTH, heard(5.0, a=report(followers=following(is_lost=True)), b=report()), 5.0)
    assert step.version == VERSION and step.record.state is GroupState.SINGLE_MASTER


def test_a_report_counts_for_its_time_and_only_while_its_link_is_open():
    suspicion = report(hears_master=False)
    made = group()
    made.decide(BOTH, heard(1.0, a=report(followers=following()), b=suspicion), 1.0)
    old = {**heard(1.0, a=report(followers=following())), **heard(1.0 + REPORT_S_MAX, b=suspicion)}
    assert made.decide(BOTH, old, 1.0 + REPORT_S_MAX).record is None
    assert made.decide(BOTH, old, 1.01 + REPORT_S_MAX).record.master == "b"
    assert group().decide(BOTH, heard(1.0, b=suspicion), 1.0).record.master == "b", "its link is closed"


def test_nothing_is_decided_before_the_first_reports_had_time_to_come():
    made = group(now_s=10.0)
    only = heard(10.1, b=report(hears_master=False))
    assert made.decide(BOTH, only, 10.1).record is None
    assert made.decide(BOTH, heard(11.0, b=report(hears_master=False)), 11.0).record.master == "b"
    made = group(now_s=10.0)
    made.decide(BOTH, heard(10.1, a=report(followers=following()), b=report(hears_master=True)), 10.1)
    assert made.decide(BOTH, heard(10.2, b=report(hears_master=False)), 10.2).record.master == "b", "it had heard all"


def test_a_record_from_an_older_copy_of_the_store_decides_nothing_until_an_operator_has_written_another():
    """`b` went on alone and is away; the older record has `a` in the set, whose log is complete as far as that tells."""
    made = group(replace(SINGLE, epoch=5, master="b", in_sync={"b": 1}), VERSION + 4)
    for found in (VersionedRecord(SYNC, VERSION), None, VersionedRecord(SYNC, VERSION)):
        made.seen(found, 1.0)
    again = {"a": Registration(2, "a:1")}
    complete = heard(2.0, a=report(2, continues=frozenset((1, 2))))
    assert group().decide(again, complete, 2.0).record.master == "a", "by that record alone"
    step = made.decide(again, complete, 2.0)
    assert step.record is None and step.is_news and "broker switch --to b --force" in step.sentence
    made.seen(VersionedRecord(replace(SINGLE, epoch=4, in_sync={"a": 2}), VERSION + 1), 3.0)
    assert made.decide(again, heard(3.0, a=report(2, version=VERSION + 1)), 3.0).sentence == ""
    made = group(replace(SYNC, epoch=5), VERSION + 4)
    made.seen(VersionedRecord(SYNC, VERSION), 1.0)
    made.seen(VersionedRecord(replace(SYNC, epoch=5), VERSION + 4), 2.0)
    assert made.decide(again, heard(2.0, a=report(2, log=LogPoint(5, 300))), 2.0).sentence != step.sentence, (
        "the right copy"
    )


def test_the_time_to_join_begins_when_the_version_is_seen():
    made = group(ASYNC, VERSION - 1)
    made.seen(VersionedRecord(SEMI, VERSION), 100.0)
    made.seen(VersionedRecord(SEMI, VERSION), 100.4)
    near = {"a": report(followers=following(has_all=False)), "b": report()}
    assert made.decide(BOTH, heard(100.45, **near), 100.45).record is None
    assert made.decide(BOTH, heard(100.6, **near), 100.6).record.state is GroupState.ASYNC_REPLICATION


def test_a_slave_that_fails_to_join_rests_longer_each_time_until_it_restarts():
    made, version, now_s, rests = group(ASYNC, 1), 1, 0.0, []
    for _ in range(8):
        made.seen(VersionedRecord(SEMI, version + 1), now_s)
        made.seen(VersionedRecord(ASYNC, version + 2), now_s)
        version, failed_s = version + 2, now_s
        near = {"a": report(version=version, followers=following(has_all=False)), "b": report(version=version)}
        while made.decide(BOTH, heard(now_s, **near), now_s).record is None:
            now_s += 0.25
        rests.append(now_s - failed_s)
    assert rests == [1, 2, 4, 8, 16, 30, 30, 30]
    made.seen(VersionedRecord(SEMI, version + 1), now_s)
    made.seen(VersionedRecord(ASYNC, version + 2), now_s)
    again = {**BOTH, "b": Registration(2, "b:1")}
    near = {
        "a": report(version=version + 2, followers=following(has_all=False, incarnation=2)),
        "b": report(2, version=version + 2),
    }
    assert made.decide(again, heard(now_s, **near), now_s).record.joining == {"b": 2}


def test_another_slave_joins_while_one_rests():
    made = group(SEMI, 1)
    made.seen(VersionedRecord(ASYNC, 2), 0.0)
    three = {**BOTH, "c": Registration(1, "c:1")}
    near = {"b": FollowerReport(1, 0, False, False), "c": FollowerReport(1, 0, False, False)}
    reports = heard(0.0, a=report(version=2, followers=near), b=report(version=2), c=report(version=2))
    assert made.decide(three, reports, 0.0).record.joining == {"c": 1}


def test_a_slave_that_leaves_the_set_soon_after_it_came_rests_and_one_that_was_steady_does_not():
    alone = replace(ASYNC, epoch=4)
    for stayed_s, rests in ((STEADY_S - 1, True), (STEADY_S, False)):
        made = group(SEMI, 1)
        made.seen(VersionedRecord(SYNC, 2), 10.0)
        left_s = 10.0 + stayed_s
        made.seen(VersionedRecord(replace(SINGLE, epoch=4), 3), left_s)
        made.seen(VersionedRecord(alone, 4), left_s)
        near = heard(left_s, a=report(version=4, followers=following(has_all=False)), b=report(version=4))
        assert (made.decide(BOTH, near, left_s).record is None) == rests


def test_a_sentence_is_news_once():
    made = group(SINGLE, now_s=0.0)
    first = made.decide(BOTH, {}, 5.0)
    assert first.is_news and first.sentence == made.sentence == "broker a is not reached, and no other has everything"
    assert not made.decide(BOTH, {}, 5.1).is_news
    back = made.decide(BOTH, heard(5.2, a=report(log=LogPoint(3, 9)), b=report()), 5.2)
    assert back.is_news and back.sentence == ""


def test_a_group_without_a_record_gets_its_first_one():
    made = GroupController(0.0)
    made.seen(None, 0.0)
    empty = report(version=0, log_id="", log=LogPoint(0, 0))
    step = made.decide(BOTH, heard(0.1, a=empty, b=empty), 0.1)
    assert (step.version, step.record.epoch, step.record.master) == (0, 1, "a")


def test_the_brokers_of_a_machine_weigh_one_each_and_the_master_twice():
    coordination = MemoryCoordination()
    for name, address in {"a": "m1:1", "b": "m2:1", "c": "m2:2"}.items():
        coordination.peer().register("g", name, Registration(1, address))

    def link(name: str, address: str) -> SimpleNamespace:
        return SimpleNamespace(address=address, heard=None, push=lambda record: None, close=lambda: None)

    turns = GroupTurns("g", coordination, link, lambda: 0.0, lambda: 0)
    turns.turn()
    weights = [turns.weight(lambda address, machine=each: address.startswith(machine)) for each in ("m1", "m2", "m3")]
    assert weights == [1, 2, 0], "without a record there is no master"
    coordination.write("g", GroupRecord(1, GroupState.SINGLE_MASTER, "a", {"a": 1}), 0)
    turns.changed()
    turns.turn()
    assert turns.weight(lambda address: address.startswith("m1")) == 2

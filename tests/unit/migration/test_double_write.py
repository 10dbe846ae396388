"""Plans of the recipe double_write over a cluster in memory: both sides stay equal, whenever the operator's process dies."""

import itertools
import random

import pytest

from migration.errors import PlanRefused
from migration.recipes.course import PlanStep
from migration.recipes.double_write import COURSES
from tests.unit.migration.dual_world import DUAL_TEXT, DualWorld
from tests.unit.migration.test_courses import Dies, back_to_kafka, go, resumed
from tests.unit.migration.world import QUEUES, Crash

WAY = ("start", "verify", "cut", "soak")
SEEDS = 6


@pytest.fixture
def world():
    made = DualWorld()
    made.add_plan()
    return made


def homes(world):
    return {(each.home, each.secondary) for each in world.definitions().values()}


def test_after_verify_both_sides_have_every_message_of_before_and_since(world):
    go(world, "start")
    assert homes(world) == {("kafka:main", "")}
    go(world, "verify")
    assert homes(world) == {("kafka:main", "engine")}
    assert {each.cut.epoch for each in world.definitions().values()} == {1}
    for _ in range(30):
        world.turn()
    world.assert_even()
    assert world.own > 10


def test_topics_are_cut_rolled_back_cut_again_and_retired_without_a_difference(world):
    go(world, *WAY)
    assert homes(world) == {("engine", "kafka:main")}
    world.assert_even()
    go(world, "rollback")
    assert homes(world) == {("kafka:main", "engine")}
    world.assert_even()
    go(world, "verify", "cut", "soak")
    assert {each.cut.epoch for each in world.definitions().values()} == {4}
    go(world, "retire")
    assert (world.state.step, homes(world)) == (PlanStep.RETIRED, {("engine", "")})
    assert world.store.names("migration_topic") == []
    world.assert_even()


def test_an_aborted_plan_leaves_kafka_at_home_and_a_copy_in_the_engine_that_has_each_record_once(world):
    go(world, "start", "verify", "fence")
    for _ in range(20):
        world.turn()
    go(world, "abort")
    assert (world.state.step, homes(world)) == (PlanStep.ABORTED, {("kafka:main", "")})
    for _ in range(30):
        world.turn()
    world.assert_even()


def test_a_plan_without_records_or_senders_goes_all_the_way(world):
    world.is_busy = False
    world.kafka_side.messages = {name: [[], []] for name in world.plan.topic_names}
    go(world, *WAY, "retire")
    assert homes(world) == {("engine", "")}


def test_two_producer_proxies_are_refused_unless_the_plan_says_that_order_is_per_proxy():
    world = DualWorld(text=DUAL_TEXT.replace("order: per_proxy\n", ""))
    world.add_plan()
    with pytest.raises(PlanRefused, match="2 producer proxies write: the order of one key's messages may differ"):
        go(world, "start")
    world.proxies.pop().die()
    world.store.forget("producer_proxy@1/host")
    go(world, "start")


def test_a_proxy_without_a_journal_is_named_at_start_and_again_at_the_cut(world):
    world.proxies[1].has_journal = False
    world.proxies[1].report()
    with pytest.raises(PlanRefused, match="producer_proxy@1/host has no repair journal: start it with --journal DIR"):
        go(world, "start")
    go(world, "start", "verify", accepted=("journals",))
    with pytest.raises(PlanRefused, match="producer_proxy@1/host has no repair journal"):
        go(world, "cut")
    assert {each.fence for each in world.definitions().values()} == {None}


def test_the_journal_of_a_killed_proxy_holds_the_cut_although_its_report_is_gone(world):
    go(world, "start", "verify")
    for _ in range(20):
        world.turn()
    world.proxies[1].die()
    with pytest.raises(PlanRefused, match="the journal /journal of producer_proxy@1/host is not at work: start its"):
        go(world, "cut")
    world.proxies[1].is_alive = True
    world.proxies[1].apply()
    go(world, "cut")
    world.assert_even()


def test_the_journal_of_a_killed_proxy_holds_an_abort_which_leaves_the_copy_where_it_was_once_that_is_accepted(world):
    go(world, "start", "verify")
    for _ in range(20):
        world.turn()
    world.proxies[1].die()
    with pytest.raises(PlanRefused, match="the journal /journal of producer_proxy@1/host is not at work: start its"):
        go(world, "abort")
    go(world, "abort", accepted=("journals",))
    assert (world.state.step, world.rebased) == (PlanStep.ABORTED, 0)


def test_messages_that_wait_in_a_journal_hold_the_cut_and_are_told_with_number_topic_and_first_id(world):
    go(world, "start", "verify")
    world.proxies[0].repairs = False
    for _ in range(30):
        world.turn()
    assert world.proxies[0].journal
    world.proxies[0].tell()
    run = world.run()
    turns = itertools.count()

    def pause(_):
        world.turn()
        if next(turns) == 20:
            assert any(
                "wait in the journal of producer_proxy@0/host, the first of them" in each for each in world.progress
            )
            world.proxies[0].repairs = True

    run._pause = pause
    run.run("cut")
    world.assert_even()


def test_what_no_journal_can_repair_refuses_the_cut_until_it_is_accepted(world):
    go(world, "start", "verify")
    missed = {"topic": "*", "queue": -1, "reason": "the machine stopped"}
    value = {"process": "producer_proxy@0/host", "directory": "/journal", "ranges": [missed]}
    world.proxies[0].tell = lambda: None
    for name, found in world.store.entries("journal"):
        world.store.delete("journal", name, found.version)
    world.store.put("journal", "lost", value, 0)
    with pytest.raises(
        PlanRefused, match=r"misses a range of \*: the machine stopped: compare both sides, or use --acc"
    ):
        go(world, "cut")
    go(world, "verify")  # its comparison is the remedy
    go(world, "cut", accepted=("doubts",))
    with pytest.raises(PlanRefused, match=r"misses a range of \*"):
        go(world, "soak")
    go(world, "soak", accepted=("doubts",))


def test_partitions_that_are_added_in_kafka_hold_the_cut_until_the_queues_have_followed(world):
    go(world, "start", "verify")
    world.partitions = QUEUES + 1
    for each in (world.kafka_side, world.engine_side):
        each.messages = {name: [*queues, []] for name, queues in each.messages.items()}
    with pytest.raises(Waits, match="orders: 2 queues and 3 partitions in Kafka: a Kafka bridge adds the queues"):
        waiting(world).run("cut")
    assert {each.fence for each in world.definitions().values()} == {None}, "not behind the fence"
    world.engine_side.messages["pay"][2].append(world.next_message())
    for name in world.plan.topic_names:
        world.change(name, queues=QUEUES + 1)
    with pytest.raises(PlanRefused, match=r"pay queue 2: .* Kafka has got 0 records and the engine 1"):
        go(world, "cut")
    world.kafka_side.messages["pay"][2].append(world.own)
    go(world, "cut", "soak", "rollback")


def test_an_abort_leaves_no_record_of_an_added_partition_to_be_copied_again(world):
    go(world, "start", "verify")
    world.partitions = QUEUES + 1
    for each in (world.kafka_side, world.engine_side):
        each.messages = {name: [*queues, [7, 8]] for name, queues in each.messages.items()}
    for name in world.plan.topic_names:
        world.change(name, queues=QUEUES + 1)
    go(world, "abort")
    assert [each[QUEUES] for each in world.copied.values()] == [2, 2]


def test_an_abort_ends_although_a_partition_that_was_added_has_no_record_yet(world):
    go(world, "start", "verify")
    world.partitions = QUEUES + 2
    for each in (world.kafka_side, world.engine_side):
        each.messages = {name: [*queues, [], [7]] for name, queues in each.messages.items()}
    for name in world.plan.topic_names:
        world.change(name, queues=QUEUES + 2)
    go(world, "abort")
    assert (world.state.step, world.rebased) == (PlanStep.ABORTED, len(world.plan.topic_names))
    assert [each[QUEUES:] for each in world.copied.values()] == [[None, 1]] * 2, "a copier begins with the first record"


@pytest.mark.parametrize("is_busy", [True, False])
def test_work_that_changes_nothing_is_repeated_with_pauses_until_the_fences_time_is_over(world, is_busy):
    go(world, "start", "verify")
    for _ in range(20):
        world.turn()
    world.is_busy, world.rebase = is_busy, lambda *_: None
    told = "the fence of" if is_busy else r"rebase of orders, pay is not done 10 s behind the fence"
    with pytest.raises(PlanRefused, match=told):
        go(world, "abort")
    assert world.progress.count("rebase: 2 topics") <= 101, "one per 0.1 s"
    assert {each.fence for each in world.definitions().values()} == {None}


class Waits(Exception):
    """A course would wait, with this sentence."""


def waiting(world):
    """A run that ends where it would wait for long."""
    run = world.run()
    turn, run._pause, pauses = run._pause, lambda seconds: pause(seconds), itertools.count()

    def pause(seconds):
        turn(seconds)
        if next(pauses) > 50:
            raise Waits(run._told)

    return run


def test_a_writer_that_bypasses_the_proxies_at_any_time_is_found_behind_the_next_fence(world):
    go(world, "start", "verify")
    world.kafka_side.messages["pay"][1].append(-1)
    with pytest.raises(PlanRefused, match=r"pay queue 1: since .* Kafka has got [\d,]+ records and the engine [\d,]+"):
        go(world, "cut")
    assert {each.fence for each in world.definitions().values()} == {None}
    world.bypasses = True
    with pytest.raises(PlanRefused, match=r"partition 0 grew by [\d,]+ records behind the fence: a writer bypasses"):
        go(world, "cut", accepted=("counts",))
    world.bypasses = False
    go(world, "cut", accepted=("counts",))


def test_a_bridge_that_does_not_end_its_copies_holds_the_pairing_which_is_taken_back():
    world = DualWorld(text=DUAL_TEXT.replace("fence_s: 10", "fence_s: 60"))
    world.add_plan()
    go(world, "start")
    while len(world.bridge.running) < len(world.plan.topic_names):
        world.turn()
    adapt, world.bridge.adapt = world.bridge.adapt, lambda: None
    with pytest.raises(PlanRefused, match="a bridge still copies orders, pay from Kafka"):
        go(world, "verify")
    assert homes(world) == {("kafka:main", "")}
    assert {each.fence for each in world.definitions().values()} == {None}
    world.bridge.adapt = adapt
    go(world, "verify")
    world.assert_even()


def test_a_pairing_that_is_aborted_before_its_bridges_have_ended_leaves_the_copy_as_it_was(world):
    go(world, "start")
    while len(world.bridge.running) < len(world.plan.topic_names):
        world.turn()
    adapt, world.bridge.adapt = world.bridge.adapt, lambda: None
    run = world.run()

    def pause(_):
        if run.entry.state.sub_step == "paired_everywhere":
            raise Crash
        world.turn()

    run._pause = pause
    with pytest.raises(Crash):
        run.run("verify")
    assert homes(world) == {("kafka:main", "engine")}
    go(world, "abort")
    assert (world.state.step, homes(world)) == (PlanStep.ABORTED, {("kafka:main", "")})
    world.bridge.adapt = adapt
    world.assert_even()


@pytest.mark.parametrize("command", ["start", "verify", "cut", "soak", "rollback", "retire", "abort"])
def test_a_command_that_dies_around_any_of_its_writes_is_resumed_and_both_sides_stay_equal(command):
    before = {"rollback": WAY, "retire": WAY, "abort": ("start", "verify", "fence"), "soak": WAY[:3]}
    for at in itertools.count(step=2):  # before each write: that is after the one before, too
        dies = Dies(-1)
        world = DualWorld(at, dies)
        world.add_plan()
        go(world, *before.get(command, WAY[: WAY.index(command) if command in WAY else 0]))
        dies.at, dies.count = at, itertools.count()
        for _ in range(20):
            try:
                resumed(world, command)
                break
            except PlanRefused as refused:  # the fence may have ended meanwhile
                assert "the fence of" in str(refused)
        if command != "abort" or world.state.step is not PlanStep.ABORTED:
            assert world.state.step is COURSES[command].to
        world.assert_even()
        if next(dies.count) <= at + 1:
            return  # it has fewer writes than that


@pytest.mark.parametrize("seed", range(SEEDS))
def test_in_random_courses_with_crashes_both_sides_stay_equal_and_the_plan_can_always_go_back(seed):
    chance = random.Random(seed)

    def dies() -> None:
        if chance.random() < 0.04:
            raise Crash

    world = DualWorld(seed, dies)
    world.add_plan()
    for _ in range(12):
        command = chance.choice((*WAY, *WAY, "fence", "rollback", "abort"))
        try:
            resumed(world, command)
        except PlanRefused:
            pass
        if world.state.step is PlanStep.ABORTED:
            break
    chance.random = lambda: 1.0
    back_to_kafka(world)
    world.assert_even()

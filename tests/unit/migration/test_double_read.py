"""Plans of the recipe double read over a cluster in memory: courses end to end, their waits, and what they refuse."""

import itertools
from unittest.mock import Mock

import pytest

from common.config.definitions import GroupDefinition, SharedReadDefinition, TopicDefinition
from common.config.errors import InvalidDefinition
from common.kafka.base import EARLIEST
from common.kafka.errors import KafkaRefusal
from common.kafka.records import Partition
from common.shared_reads import hidden_topic
from migration.dual_read_fit import dual_read_faults
from migration.errors import PlanRefused
from migration.leftovers import LeftDeadLetters
from migration.plan import parse_plan
from migration.recipes.course import PlanStep
from migration.recipes.double_read import COURSES
from tests.unit.migration.test_courses import Crash, Dies
from tests.unit.migration.world import QUEUES, NoMarks, World

TEXT = """\
name: shop
recipe: double_read
cluster: main
topics: [orders, pay]
groups: [workers, plain]
gates: {lag_messages: 3}
limits: {fence_s: 10, soak_hours: 0}
"""
SMALL = TEXT.replace(", pay]", "]").replace(", plain]", "]")
WAY = ("start", "verify", "cut", "soak")


class DualWorld(World):
    """Groups that read Kafka's side in its order, and acknowledge later; the bridge's part of the drain rule.

    Attributes:
        is_reading: whether the groups go on.
    """

    def __init__(self, seed=0, dies=lambda: None, text=TEXT) -> None:
        super().__init__(seed, dies)
        self.plan = parse_plan(text, "plan")
        self.store.put("group", "workers", {"order": "key"}, 0)
        self.committed = {}
        self.hidden = dict.fromkeys(itertools.product(self.plan.groups, self.plan.topic_names), 0)
        self.engine_read = {key: [0] * QUEUES for key in self.hidden}
        self.is_reading = True

    def copy_in(self, name) -> None:
        """Of what a bridge does, a home in Kafka without dual reads is copied for all groups: this must never happen."""
        if self.home(name) == "kafka:main" and not self.entries(name):
            self.copied_for_all = name
        if self.is_reading:
            for group in self.plan.groups:
                self.read(group, name)

    copied_for_all = ""

    def entries(self, topic):
        found = [SharedReadDefinition.from_value(name, each.value) for name, each in self.store.entries("shared_read")]
        return {each.group: each for each in found if each.topic == topic}

    def read(self, group, name) -> None:
        entry = self.entries(name).get(group)
        for queue in range(QUEUES):
            at = self.committed.get((group, name, queue), 0)
            step = min(self.random.randrange(4), len(self.kafka_side.messages[name][queue]) - at)
            self.committed[group, name, queue] = at + step
            if entry is not None and not entry.is_ending:
                self.hidden[group, name] += step  # the other records are those of Java's consumers
        if entry is not None:
            self.hidden[group, name] = max(0, self.hidden[group, name] - self.random.randrange(6))
            self.settle_drain(group, name, entry)
        if entry is None or group == "plain" or entry.is_drained:
            for queue in range(QUEUES):
                end = len(self.engine_side.messages[name][queue])
                self.engine_read[group, name][queue] = min(end, self.engine_read[group, name][queue] + 2)

    def settle_drain(self, group, name, entry) -> None:
        definition = self.definitions().get(name)
        if definition is None or definition.home != "engine" or definition.cut is None or entry.is_drained:
            return
        ends = definition.cut.kafka_ends
        is_read = all(self.committed.get((group, name, queue), 0) >= ends[queue] for queue in range(QUEUES))
        if is_read and not self.hidden[group, name]:
            found = self.store.get("shared_read", entry.name)
            self.store.put("shared_read", entry.name, {**found.value, "is_drained": True}, found.version)

    def offsets(self, partitions, at):
        if at == EARLIEST:
            return {each: self.kafka_starts.get(each, 0) for each in partitions}
        return super().offsets(partitions, at)

    def group_offsets(self, group):
        return {Partition(name, queue): at for (of, name, queue), at in self.committed.items() if of == group}

    def backlog(self, topic, group) -> int:
        if topic.startswith("_kafka."):
            return self.hidden[group, topic.rpartition(".")[2]]
        return sum(self.engine_side.ends(topic)) - sum(self.engine_read[group, topic])


@pytest.fixture
def world():
    made = DualWorld()
    made.add_plan()
    return made


def go(world, *commands, **options):
    for command in commands:
        world.run(**options).run(command)


def shared(world):
    return [SharedReadDefinition.from_value(name, each.value) for name, each in world.store.entries("shared_read")]


def assert_cut_is_exact(world):
    """Nothing was sent to the side that was left."""
    for name, definition in world.definitions().items():
        for queue in range(QUEUES) if definition.cut else ():
            kafka, engine = len(world.kafka_side.messages[name][queue]), len(world.engine_side.messages[name][queue])
            if definition.home == "engine":
                assert kafka == definition.cut.kafka_ends[queue], "a proxy sent to Kafka after the cut"
            else:
                assert engine == definition.cut.engine_firsts[queue], "a proxy sent to the engine after the rollback"


def test_topics_move_to_the_engine_while_groups_read_both_sides(world):
    go(world, *WAY)
    assert world.state.step is PlanStep.SOAKING
    assert {world.home(name) for name in world.plan.topic_names} == {"engine"}
    assert [each.is_drained for each in shared(world) if each.group == "workers"] == [True, True]
    for _ in range(50):
        world.turn()
        assert_cut_is_exact(world)
    assert world.copied_for_all == ""
    go(world, "retire")
    assert [world.store.names(kind) for kind in ("shared_read", "migration_topic")] == [[], []]


def test_the_dual_reads_are_there_before_the_topics_and_have_as_many_queues_as_partitions(world):
    go(world, "start")
    found = {each.name: (each.queues, each.plan, each.cluster, each.is_drained) for each in shared(world)}
    assert found == {f"_kafka.{group}.{topic}": (QUEUES, "shop", "main", False) for group, topic in world.hidden}
    assert world.copied_for_all == ""


def test_a_group_that_lags_in_kafka_holds_the_cut_back_with_its_name_and_number(world):
    go(world, "start")
    world.is_reading = False
    for topic in world.plan.topic_names:
        world.kafka_side.messages[topic][0] += [world.next_message() for _ in range(9)]
    with pytest.raises(AssertionError, match="still waits"):
        waits(world, "verify")
    assert any("group workers has" in each and "at most 3 may be left" in each for each in world.progress)
    world.is_reading, world.is_busy = True, False
    world.run().resume()
    assert world.state.step is PlanStep.VERIFIED
    world.is_reading = False
    world.kafka_side.messages["pay"][0] += [world.next_message() for _ in range(9)]
    with pytest.raises(PlanRefused, match=r"group workers has \d+ records of pay to read in Kafka"):
        go(world, "cut")


@pytest.mark.parametrize("command", ["verify", "cut"])
def test_records_that_kafka_deleted_before_a_group_has_read_them_refuse_a_step_although_few_are_left(world, command):
    go(world, *WAY[: WAY.index(command)])
    world.is_reading = world.is_busy = False
    at = Partition("pay", 0)
    world.committed |= {("workers", *at): 5, ("plain", *at): 2}
    world.kafka_starts[at] = 4
    world.kafka_side.messages["pay"][0] = [world.next_message() for _ in range(5)]
    with pytest.raises(
        PlanRefused, match=r"group plain has read pay partition 0 up to offset 2.*before 4.*2 records are lost"
    ):
        go(world, command)
    assert world.definitions()["pay"].fence is None


@pytest.mark.parametrize("command", ["verify", "cut"])
def test_topics_that_may_not_be_read_refuse_a_step_although_nothing_is_left_to_read(world, command, monkeypatch):
    go(world, *WAY[: WAY.index(command)])
    refusal = KafkaRefusal(29, "TOPIC_AUTHORIZATION_FAILED", "pay")
    monkeypatch.setattr(NoMarks, "positions", lambda reader: {})
    monkeypatch.setattr(NoMarks, "poll", Mock(side_effect=refusal))
    with pytest.raises(KafkaRefusal, match="what the groups have to read is not known: TOPIC_AUTHORIZATION_FAILED"):
        go(world, command)
    assert world.definitions()["pay"].fence is None


@pytest.mark.parametrize("command", ["verify", "cut"])
def test_a_group_that_no_bridge_may_join_refuses_a_step_before_the_fence(world, command):
    go(world, *WAY[: WAY.index(command)])
    world.unreadable_groups = ("plain",)
    with pytest.raises(KafkaRefusal, match="group plain: GROUP_AUTHORIZATION_FAILED: Kafka's access lists do not let"):
        go(world, command)
    assert world.definitions()["pay"].fence is None
    world.unreadable_groups = ()
    go(world, command)


def waits(world, command):
    """Run a command that is expected to wait, and end it."""
    run = world.run()
    left = itertools.count()

    def pause(seconds):
        world.turn(seconds)
        assert next(left) < 100, "it still waits"

    run._pause = pause
    run.run(command)


def test_the_soak_waits_until_every_group_has_read_and_acknowledged_kafkas_side(world):
    go(world, "start", "verify", "cut")
    world.is_reading, world.is_busy = False, False
    world.hidden["plain", "pay"] = 7
    with pytest.raises(AssertionError, match="still waits"):
        waits(world, "soak")
    world.is_reading = True
    world.run().resume()
    assert world.state.step is PlanStep.SOAKING and sum(world.hidden.values()) == 0


def test_dead_letters_of_what_came_from_kafka_hold_the_end_back_because_their_hidden_topic_goes(world):
    go(world, *WAY)
    hidden = hidden_topic("workers", "orders")
    world.dead = {hidden: (LeftDeadLetters("workers", hidden, 2),)}
    with pytest.raises(PlanRefused, match=f"group workers has 2 dead letters of {hidden}: they came from Kafka"):
        go(world, "retire")
    assert world.state.step is PlanStep.SOAKING and world.entries("orders"), "nothing was ended"
    go(world, "retire", accepted=["dead-letters"])
    assert not world.entries("orders")


def test_a_rollback_waits_for_groups_with_an_order_and_the_next_cut_is_drained_anew(world):
    go(world, *WAY)
    for _ in range(20):
        world.turn()
    go(world, "rollback")
    assert (world.state.step, world.home("orders")) == (PlanStep.COPYING, "kafka:main")
    assert_cut_is_exact(world)
    assert world.backlog("orders", "workers") == 0, "what is sent to Kafka now would overtake it"
    assert not any(each.is_drained for each in shared(world))
    go(world, "verify", "cut", "soak")
    assert world.definitions()["orders"].cut.epoch == 3
    assert all(each.is_drained for each in shared(world) if each.group == "workers")


def test_an_abort_leaves_the_groups_waits_for_what_they_have_and_begins_the_copy_for_all_at_the_end(world):
    go(world, "start", "verify")
    world.is_busy = False
    world.hidden["plain", "orders"] = 9
    world.is_reading = False
    with pytest.raises(AssertionError, match="still waits"):
        waits(world, "abort")
    assert all(each.is_ending for each in shared(world))
    world.is_reading = True
    world.run().resume()
    assert world.state.step is PlanStep.ABORTED and shared(world) == []
    definition = world.definitions()["orders"]
    assert definition.home == "kafka:main" and definition.first_offsets == tuple(world.kafka_side.ends("orders"))


def test_an_operator_may_give_up_what_a_group_does_not_acknowledge(world):
    go(world, "start", "verify")
    world.is_reading = False
    world.hidden["plain", "orders"] = 9
    go(world, "abort", accepted=("unread",))
    assert shared(world) == []


def test_a_dual_read_of_an_operator_is_not_taken_over(world):
    entry = SharedReadDefinition("_kafka.plain.pay", group="plain", topic="pay", cluster="main")
    world.store.put("shared_read", entry.name, entry.to_value(), 0)
    with pytest.raises(PlanRefused, match="group plain reads pay on two sides already"):
        go(world, "start")
    assert world.store.get("shared_read", entry.name).value == entry.to_value()


@pytest.mark.parametrize("command", ["start", "cut", "rollback", "retire", "abort"])
def test_a_command_that_dies_around_any_of_its_writes_is_resumed_and_ends_alike(command):
    before = {"cut": WAY[:2], "rollback": WAY, "retire": WAY, "abort": WAY[:2]}
    for at in itertools.count():
        dies = Dies(-1)
        world = DualWorld(at, dies, SMALL)
        world.add_plan()
        go(world, *before.get(command, ()))
        dies.at, dies.count = at, itertools.count()
        begun = world.state.step
        for _ in range(200):
            try:
                run = world.run()
                if not run.entry.state.course and run.entry.state.step is not begun:
                    break
                run.resume() if run.entry.state.course else run.run(command)
            except Crash:
                world.turn()
            except PlanRefused as refused:
                assert "the fence of" in str(refused)
        assert world.state.step is COURSES[command].to
        assert_cut_is_exact(world)
        if next(dies.count) <= at:
            return


def test_a_plan_without_groups_is_refused():
    with pytest.raises(InvalidDefinition, match="groups: it is empty: double_read needs the groups"):
        parse_plan(TEXT.replace("groups: [workers, plain]\n", ""), "plan")


def test_what_would_deliver_twice_or_pass_messages_over_is_refused_by_field():
    plan = parse_plan(TEXT, "plan")
    groups = {
        "workers": GroupDefinition("workers", order="key", start="latest"),
        "plain": GroupDefinition("plain", start="latest"),
    }
    foreign = SharedReadDefinition("_kafka.g.pay", group="g", topic="pay", cluster="main")
    told = dual_read_faults(plan, ["orders"], ["pay"], groups, [foreign])
    for part in (
        'topics[0].name: "orders" is defined here already',
        'topics[1].name: group g reads "pay" on both sides',
        'topics[1].name: "pay" is copied',
        'groups[0]: "workers" has an order and starts at latest',
    ):
        assert [each for each in told if each.startswith(part)], (part, told)
    assert len(told) == 4
    mirror = parse_plan(TEXT.replace("double_read", "mirror"), "plan")
    assert len(dual_read_faults(mirror, ["orders"], ["pay"], groups, [foreign])) == 1
    assert dual_read_faults(plan, [], [], {}, []) == []
    assert TopicDefinition("orders").home == "engine"


def test_no_bridge_can_see_topics_in_kafka_without_their_dual_reads_or_without_the_place_of_the_copy_after_them():
    """It would copy them for all groups from their first records on; it sees the kinds of the configuration one by one."""
    start, abort = COURSES["start"].sub_steps, COURSES["abort"].sub_steps
    assert start.index("dual_reads") < start.index("dual_reads_applied") < start.index("entries")
    assert abort.index("copy_start") < abort.index("copy_start_applied") < abort.index("no_dual_reads")


@pytest.mark.parametrize(
    ("state", "position", "reads", "told"),
    [
        ("Empty", "pay", "", "group audit reads pay in Kafka (has positions, and no members now)"),
        ("Stable", "orders", "", "group audit reads orders in Kafka (is Stable)"),
        ("STABLE", "", "orders", "group audit reads orders in Kafka (is STABLE)"),
    ],
)
def test_a_group_that_nobody_has_named_stops_the_cut_before_its_fence(world, state, position, reads, told):
    go(world, "start", "verify")
    world.kafka_groups = {
        "audit": (state, position, reads), "workers": ("Stable", "orders", "orders"),
        "elsewhere": ("Stable", "other", "other"), "penstock.copy.shop": ("Empty", "orders", ""),
    }  # fmt: skip
    for command in ("fence", "cut"):
        with pytest.raises(PlanRefused) as refused:
            go(world, command)
        assert told in str(refused.value) and "--accept groups" in str(refused.value)
        assert "workers" not in str(refused.value) and "elsewhere" not in str(refused.value)
    assert "fence: 2 topics" not in world.progress
    go(world, "cut", accepted=("groups",))
    assert world.state.step is PlanStep.CUT


def test_more_groups_than_are_asked_stop_the_cut_by_their_number(world):
    go(world, "start", "verify")
    world.kafka_groups = {f"g{number:05d}": ("Empty", "other", "") for number in range(10_003)}
    with pytest.raises(PlanRefused, match="3 more groups than the 10,000 that are asked"):
        go(world, "cut")

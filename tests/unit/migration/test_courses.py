"""Whole plans over a cluster in memory: courses end to end, and the operator's process dying around any write."""

import itertools
import random

import pytest

from common.config.definitions import TopicDefinition
from common.kafka.base import END
from migration.errors import PlanConflict, PlanRefused
from migration.recipes.course import PlanStep
from migration.recipes.mirror import COURSES
from tests.unit.migration.world import QUEUES, TEXT, Crash, World

WAY = ("start", "verify", "cut", "soak")
SEEDS = 12


@pytest.fixture
def world():
    made = World()
    made.add_plan()
    return made


def go(world, *commands, **options):
    for command in commands:
        world.run(**options).run(command)


def own(messages):
    """EngineSide of the messages that a copier did not write."""
    return [at for at, message in enumerate(messages) if not isinstance(message, tuple)]


def assert_sides_agree(world):
    """The records of the cut are exact: nothing was sent to the side that was left, and all of it is on the other."""
    for name, definition in world.definitions().items():
        for queue in range(QUEUES) if definition.cut else ():
            kafka_end, engine_first = definition.cut.kafka_ends[queue], definition.cut.engine_firsts[queue]
            kafka, engine = world.kafka_side.messages[name][queue], world.engine_side.messages[name][queue]
            if definition.home == "engine":
                assert all(at < kafka_end for at in own(kafka)), "a proxy sent to Kafka after the cut"
                assert world.copied[name][queue] >= kafka_end, "the engine lacks records of before the cut"
            else:
                assert all(at < engine_first for at in own(engine)), "a proxy sent to the engine after the rollback"
                returned = {message[1] for message in kafka if isinstance(message, tuple)}
                assert {engine[at] for at in own(engine)} <= returned, "Kafka lacks messages of before the rollback"


def test_topics_move_to_the_engine_without_a_gap_while_they_are_sent_to(world):
    go(world, *WAY)
    assert world.state.step is PlanStep.SOAKING
    assert {world.home(name) for name in world.plan.topic_names} == {"engine"}
    for _ in range(50):
        world.turn()
        assert_sides_agree(world)
    assert sum(len(own(each)) for name in world.plan.topic_names for each in world.engine_side.messages[name]) > 5


def test_a_rollback_leads_back_to_kafka_and_the_next_cut_has_a_larger_epoch(world):
    go(world, *WAY, "rollback")
    assert (world.state.step, world.home("orders")) == (PlanStep.COPYING, "kafka:main")
    assert_sides_agree(world)
    go(world, "verify", "cut")
    assert world.definitions()["orders"].cut.epoch == 3
    assert_sides_agree(world)


def test_a_cut_after_a_rollback_copies_nothing_back_that_kafka_has_also_from_queues_without_a_record_since(world):
    go(world, *WAY)
    for _ in range(50):
        world.turn()
    world.is_busy = False
    go(world, "rollback", "verify", "cut")
    for name, definition in world.definitions().items():
        for queue, messages in enumerate(world.engine_side.messages[name]):
            assert all(at < definition.cut.engine_firsts[queue] for at in own(messages))


def test_a_copy_back_beyond_the_end_of_its_queue_refuses_the_rollback_with_both_offsets(world):
    go(world, *WAY)
    for _ in range(20):
        world.turn()
    end = len(world.engine_side.messages["pay"][1])
    world.returned["pay", 1] = end + 90
    with pytest.raises(
        PlanRefused, match=r"the copy of pay to Kafka is at [\d,]+ in queue 1, which ends at [\d,]+: the"
    ):
        go(world, "rollback")
    assert {each.fence for each in world.definitions().values()} == {None}


def test_a_retired_plan_leaves_the_topics_in_the_engine_and_no_copies_or_marks(world):
    go(world, *WAY, "retire")
    assert world.state.step is PlanStep.RETIRED
    for kind in ("copy_in", "copy_out", "migration_topic"):
        assert world.store.names(kind) == []


def test_an_aborted_plan_ends_its_copies_and_frees_its_topics(world):
    go(world, "start", "verify", "fence", "abort")
    assert world.state.step is PlanStep.ABORTED
    assert [world.store.names(kind) for kind in ("copy_in", "migration_topic")] == [[], []]
    assert {each.fence for each in world.definitions().values()} == {None}
    world.add_plan()
    go(world, *WAY)


def test_after_the_cut_abort_is_refused_and_before_it_rollback(world):
    go(world, "start", "verify")
    with pytest.raises(PlanRefused, match="nothing to roll back"):
        go(world, "rollback")
    go(world, "cut")
    with pytest.raises(PlanRefused, match="it is cut: abort is possible when it is planned"):
        go(world, "abort")


def test_a_writer_that_bypasses_the_proxies_stops_the_cut_and_the_fence_is_lifted(world):
    go(world, "start", "verify")
    world.bypasses = True
    with pytest.raises(PlanRefused, match=r"partition 0 grew by [\d,]+ records behind the fence"):
        go(world, "cut", accepted=("lag",))
    assert {each.fence for each in world.definitions().values()} == {None}
    assert world.state.step is PlanStep.VERIFIED


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_send_that_has_its_outcome_just_after_the_ends_were_asked_is_no_writer_that_bypasses(seed):
    world = World(seed)
    world.add_plan()
    offsets = world.offsets

    def then_settle(partitions, at):
        found = offsets(partitions, at)
        for proxy in world.proxies if at == END else ():
            while proxy.open:
                proxy.settle()
        return found

    world.offsets = then_settle
    go(world, *WAY)
    assert_sides_agree(world)


def test_records_after_the_cut_refuse_the_end_of_the_soak_with_their_number(world):
    go(world, *WAY)
    world.kafka_side.messages["pay"][1].append("late")
    for _ in range(30):
        world.turn()
    with pytest.raises(PlanRefused, match="after the cut, and were copied into pay queue 1: a writer bypasses"):
        go(world, "retire")
    go(world, "retire", accepted=("late",))


def test_a_proxy_that_does_not_apply_the_fence_stops_the_cut_by_its_name(world):
    go(world, "start", "verify")
    world.proxies[1].apply = lambda: None
    world.proxies[1].report = lambda: None
    with pytest.raises(PlanRefused, match="not applied within 5 s by producer_proxy@1/host"):
        go(world, "cut")
    assert {each.fence for each in world.definitions().values()} == {None}


def test_a_topic_of_another_plan_is_refused_by_the_plans_name(world):
    world.store.put("migration_topic", "pay", {"plan": "other"}, 0)
    with pytest.raises(PlanRefused, match=r"pay \(plan other\): a topic is in one plan at most"):
        go(world, "start")
    assert world.state.step is PlanStep.PLANNED
    go(world, "abort")
    assert world.store.names("migration_topic") == ["pay"], "the other plan's mark stays"


def test_a_topic_that_is_the_engines_already_is_refused_and_the_plan_can_be_aborted(world):
    world.store.put("topic", "pay", TopicDefinition("pay", queues=QUEUES).to_value(), 0)
    with pytest.raises(PlanRefused, match="pay: the home is the engine already"):
        go(world, "start")
    go(world, "abort")


def test_a_rollback_that_an_entry_forbids_is_given_up_by_its_field_and_nothing_stays_fenced(world):
    go(world, *WAY)
    found = world.store.get("topic", "pay")
    world.store.put("topic", "pay", {**found.value, "durability": "fsync"}, found.version)
    with pytest.raises(PlanRefused, match='topic "pay": durability: fsync is not possible on a Kafka home'):
        go(world, "rollback")
    assert {each.fence for each in world.definitions().values()} == {None}
    assert (world.state.step, world.state.course) == (PlanStep.SOAKING, "")


def test_a_copy_of_an_operator_is_not_taken_over(world):
    world.store.put("copy_in", "pay", {"cluster": "main"}, 0)
    with pytest.raises(PlanRefused, match="copy_in pay: a copy that is not of this plan"):
        go(world, "start")
    assert world.store.get("copy_in", "pay").value == {"cluster": "main"}


@pytest.mark.parametrize("seed", [0, 1])
def test_a_fence_that_no_command_lifts_ends_by_itself_also_where_proxies_may_only_read(seed):
    world = World(seed)
    world.add_plan()
    go(world, "start", "verify", "fence")
    for _ in range(400):
        world.turn()
    assert {each.fence for each in world.definitions().values()} == {None}
    go(world, "cut")
    assert_sides_agree(world)


class Dies:
    """Raises Crash at the write of that number."""

    def __init__(self, at) -> None:
        self.at, self.count = at, itertools.count()

    def __call__(self) -> None:
        if next(self.count) == self.at:
            raise Crash


def assert_no_sub_step_was_skipped(states):
    """Each written state is at the same sub-step as the one before, at the next one, or at the first of a course."""
    for before, now in itertools.pairwise(states):
        if not now["course"] or now["course"] != before["course"]:
            if before["course"] and not now["course"]:
                assert COURSES[before["course"]].sub_steps[-1] == before["sub_step"]
            elif now["course"]:
                assert COURSES[now["course"]].sub_steps[0] == now["sub_step"]
            continue
        steps = COURSES[now["course"]].sub_steps
        assert steps.index(now["sub_step"]) - steps.index(before["sub_step"]) in (0, 1)


def resumed(world, command):
    """Perform a command, and resume it as often as its process dies."""
    begun = world.state.step
    for _ in range(200):
        try:
            run = world.run()
            if run.entry.state.course:
                if run.resume().state.step is COURSES[command].to:
                    return run.entry
                continue  # the comparison has ended with the process
            if run.entry.state.step is not begun and run.entry.state.step is COURSES[command].to:
                return run.entry  # it died after its last write
            return run.run(command)
        except Crash:
            for _ in range(world.random.randrange(40)):
                world.turn()
    raise AssertionError("it does not end")


@pytest.mark.parametrize("command", ["start", "verify", "cut", "soak", "rollback", "retire", "abort"])
def test_a_command_that_dies_around_any_of_its_writes_is_resumed_and_ends_alike(command):
    before = {"rollback": WAY, "retire": WAY, "abort": ("start", "verify", "fence"), "soak": WAY[:3]}
    for at in itertools.count():
        dies = Dies(-1)
        world = World(at, dies)
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
        assert_sides_agree(world)
        assert_no_sub_step_was_skipped(world.operator_store.states)
        if next(dies.count) <= at:
            return  # it has fewer writes than that


@pytest.mark.parametrize("seed", range(SEEDS))
def test_in_random_courses_with_crashes_the_plan_always_resumes_and_always_can_go_back(seed):
    chance = random.Random(seed)

    def dies() -> None:
        if chance.random() < 0.04:
            raise Crash

    world = World(seed, dies)
    world.add_plan()
    for _ in range(12):
        command = chance.choice((*WAY, *WAY, "fence", "rollback", "abort"))
        try:
            resumed(world, command)
        except PlanRefused:
            pass
        assert_sides_agree(world)
        if world.state.step is PlanStep.ABORTED:
            break
    chance.random = lambda: 1.0
    back_to_kafka(world)
    assert_sides_agree(world)
    assert_no_sub_step_was_skipped(world.operator_store.states)
    for name in world.plan.topic_names:
        copied = [message for message in world.engine_side.everything(name) if isinstance(message, tuple)]
        assert len(copied) == len(set(copied)), "a record was copied twice"


def back_to_kafka(world):
    """From wherever the plan is, to a topic whose home is Kafka."""
    for _ in range(10):
        try:
            run = world.run()
            if run.entry.state.course:
                run.resume()
            if any(world.home(name) == "engine" for name in world.plan.topic_names):
                world.run().run("rollback")
            if world.state.step is not PlanStep.ABORTED:
                world.run().run("abort")
            break
        except PlanRefused as refused:
            assert "the fence of" in str(refused)
    assert world.state.step is PlanStep.ABORTED
    assert {world.home(name) for name in world.plan.topic_names} <= {"", "kafka:main"}


def test_a_plan_that_was_lost_with_the_configuration_after_its_cut_is_stored_again_and_leads_back(world):
    go(world, *WAY)
    late = world.run()
    for kind, name in (("migration", "shop"), ("migration_topic", "orders"), ("migration_topic", "pay")):
        world.store.delete(kind, name, world.store.get(kind, name).version)
    with pytest.raises(PlanConflict, match="entry is missing from the configuration"):
        late.run("rollback")
    world.add_plan()
    assert world.state.step is PlanStep.CUT
    go(world, "soak", "rollback")
    assert_sides_agree(world)


def test_a_soak_is_shorter_or_longer_by_as_much_as_the_wall_clock_jumps():
    world = World(text=TEXT.replace("soak_hours: 0", "soak_hours: 2"))
    world.add_plan()
    go(world, *WAY)
    world.clock.step(-3_600_000)
    for jump in (0, 2 * 3_600_000):
        world.clock.step(jump)
        with pytest.raises(PlanRefused, match="soak"):
            go(world, "retire")
    world.clock.step(3_600_000)
    go(world, "retire")
    assert world.state.step is PlanStep.RETIRED

"""What changes outside while a plan is at work: each change is followed, or refused before the fence by a sentence."""

from types import SimpleNamespace
from uuid import UUID

import pytest

from common.config.errors import BucketFull
from common.kafka.base import END, STABLE_END
from common.kafka.errors import ClusterUnreachable
from common.kafka.records import Partition
from migration.copied_tails import TailChecks
from migration.errors import PlanRefused
from migration.recipes.course import PlanStep
from tests.unit.migration.dual_world import DualWorld
from tests.unit.migration.test_courses import WAY, go
from tests.unit.migration.world import World

OTHER = UUID(int=8)


@pytest.fixture(params=["mirror", "double_write"])
def world(request):
    made = World() if request.param == "mirror" else DualWorld()
    made.add_plan()
    return made


@pytest.fixture
def mirror():
    made = World()
    made.add_plan()
    return made


def refused(world, command, sentence, **options):
    """The command is refused by it, and has set no fence."""
    fences = [each for each in world.progress if each.startswith("fence")]
    with pytest.raises(PlanRefused, match=sentence):
        go(world, command, **options)
    assert [each for each in world.progress if each.startswith("fence")] == fences
    assert not [name for name, each in world.definitions().items() if each.fence]


def lose(world, name, queue, count):
    """Kafka has lost the newest records, as after an unclean election."""
    del world.kafka_side.messages[name][queue][-count:]


@pytest.mark.parametrize("command", ["verify", "cut"])
def test_a_topic_that_was_made_again_is_refused_by_both_its_sources(world, command):
    go(world, "start", *["verify"] * (command == "cut"))
    world.kafka_ids["pay"] = OTHER
    refused(world, command, "deleted and made again")
    refused(world, command, "deleted and made again", accepted=("source", "lag", "counts"))


def test_the_refusal_of_a_topic_that_was_made_again_names_all_partitions_and_a_command_for_all(world):
    go(world, "start")
    world.kafka_ids["pay"] = OTHER
    refused(world, "verify", "pay.* partitions 0, 1: .* copy the new one by `penstock kafka accept pay --reason TEXT`")


@pytest.mark.parametrize("command", ["verify", "cut"])
def test_a_topic_that_is_gone_or_hidden_from_the_user_is_refused(world, command):
    go(world, "start", *["verify"] * (command == "cut"))
    world.kafka_ids["pay"] = None
    refused(world, command, "does not exist there, or its user may not see it")
    world.kafka_ids.clear()
    go(world, command)


def test_after_the_cut_a_topic_that_was_made_again_stops_rollback_and_retire_unless_an_operator_accepts_it(mirror):
    go(mirror, *WAY)
    mirror.kafka_ids["pay"] = OTHER
    for command in ("rollback", "retire"):
        refused(mirror, command, "deleted and made again since the change of its sides, or .*: use --accept source")
    go(mirror, "retire", accepted=("source",))
    assert mirror.state.step is PlanStep.RETIRED


def test_a_topic_that_is_made_again_behind_the_fence_is_not_switched(world):
    go(world, "start", "verify")
    offsets, asked = world.offsets, []

    def remade(partitions, at):
        if any(each.fence for each in world.definitions().values()):
            world.kafka_ids["pay"] = OTHER
        asked.append(at)
        return offsets(partitions, at)

    world.offsets = remade
    with pytest.raises(PlanRefused, match="deleted and made again"):
        go(world, "cut")
    assert {each.fence for each in world.definitions().values()} == {None}
    assert world.home("pay") == "kafka:main"


@pytest.mark.parametrize("command", ["verify", "cut"])
def test_records_that_kafka_has_lost_at_its_end_are_told_and_refused(mirror, command):
    go(mirror, "start", *["verify"] * (command == "cut"))
    mirror.is_busy = False
    for _ in range(50):
        mirror.turn()
    lose(mirror, "pay", 0, 1)
    refused(mirror, command, r"it ends at \d+, but was copied up to \d+: Kafka has lost records")


@pytest.mark.parametrize("command", ["verify", "cut"])
def test_records_that_retention_has_deleted_before_they_were_copied_are_told_and_refused(mirror, command):
    go(mirror, "start", *["verify"] * (command == "cut"))
    mirror.is_busy, mirror.copy_in = False, lambda name: None
    mirror.kafka_side.messages["pay"][1] += ["eaten"] * 9
    mirror.kafka_starts["pay", 1] = len(mirror.kafka_side.messages["pay"][1]) - 2
    refused(mirror, command, r"it begins at \d+, but was copied up to \d+ only: up to 7 records are lost")


def test_copies_of_own_messages_that_retention_deletes_after_a_rollback_are_waited_for(mirror):
    go(mirror, *WAY, "rollback", "verify")
    at = mirror.copied["pay"][0]
    mirror.kafka_starts["pay", 0] = at + 3
    mirror.kafka_side.messages["pay"][0] += [("returned", 0)] * (at + 3 - len(mirror.kafka_side.messages["pay"][0]))
    offsets = mirror.offsets

    def passed_later(partitions, at_):
        if mirror.clock.monotonic_s() > begun_s + 30:
            mirror.kafka_starts.clear()  # the bridge has moved its position
        return offsets(partitions, at_)

    begun_s, mirror.offsets = mirror.clock.monotonic_s(), passed_later
    go(mirror, "cut")
    assert mirror.state.step is PlanStep.CUT


@pytest.mark.parametrize("command", ["start", "verify", "cut"])
def test_a_topic_that_is_compacted_by_now_is_refused(world, command):
    go(world, *("start", "verify")[: ("start", "verify", "cut").index(command)])
    world.policies["pay"] = "compact,delete"
    refused(world, command, "pay: cleanup.policy is compact,delete: the engine keeps every record")
    del world.policies["pay"]
    go(world, command)


@pytest.mark.parametrize("command", ["soak", "rollback"])
def test_a_topic_that_is_compacted_after_the_cut_neither_soaks_nor_goes_back(world, command):
    go(world, *WAY[: 3 if command == "soak" else 4])
    world.policies["pay"] = "compact"
    refused(world, command, "pay: cleanup.policy is compact: Kafka removes records .*verify PLAN --all --repair")
    world.policies["pay"] = "delete"
    go(world, command)


def say_of_tails(monkeypatch, which, sentence, world=None):
    """A comparison of what was copied last has this outcome; with a world only behind its fence."""

    def found(checks, copies):
        is_time = world is None or any(each.fence for each in world.definitions().values())
        return {each.topic.name: sentence for each in copies} if is_time else {}

    monkeypatch.setattr(TailChecks, which, found)


@pytest.mark.parametrize("command", ["verify", "cut"])
def test_a_kafka_that_has_not_what_was_copied_last_is_refused_before_the_fence_and_behind_it(
    world, command, monkeypatch
):
    if command == "cut" and isinstance(world, DualWorld):
        return  # nothing is copied any more
    go(world, "start", *["verify"] * (command == "cut"))
    say_of_tails(monkeypatch, "coming", "it was put back")
    refused(world, command, "it was put back; and 1 more topics", accepted=("source", "lag"))
    if command == "cut" or isinstance(world, DualWorld):
        say_of_tails(monkeypatch, "coming", "it was put back meanwhile", world)
        with pytest.raises(PlanRefused, match="it was put back meanwhile"):
            go(world, command)
        assert not [name for name, each in world.definitions().items() if each.fence or each.home == "engine"]
    monkeypatch.undo()
    go(world, command)


def test_an_engine_that_has_not_what_was_copied_back_stops_rollback_and_retire(mirror, monkeypatch):
    go(mirror, *WAY)
    say_of_tails(monkeypatch, "returning", "it was put back")
    refused(mirror, "rollback", "it was put back", accepted=("source", "lag"))
    refused(mirror, "retire", "it was put back; and 1 more topics: use --accept source to go on without it")
    say_of_tails(monkeypatch, "returning", "it was put back meanwhile", mirror)
    with pytest.raises(PlanRefused, match="it was put back meanwhile"):
        go(mirror, "rollback")
    assert {mirror.home(name) for name in mirror.plan.topic_names} == {"engine"}
    monkeypatch.undo()
    go(mirror, "rollback")


def hang(world, name, queue):
    """A transaction that is open from the partition's present end on."""
    end, offsets = len(world.kafka_side.messages[name][queue]), world.offsets
    world.kafka_side.messages[name][queue] += ["open"] * 3

    def found(partitions, at):
        ends = offsets(partitions, at)
        return ends | {Partition(name, queue): end} if at == STABLE_END and (name, queue) in ends else ends

    world.offsets = found
    return end


def test_an_open_transaction_is_refused_before_the_fence_by_its_place(world):
    go(world, "start", "verify")
    world.is_busy = False
    first = hang(world, "pay", 1)
    refused(
        world, "cut", f"pay partition 1: a transaction is open since offset {first:,}, .* --topic pay --partition 1 "
        f"--start-offset {first}", accepted=("lag",),
    )  # fmt: skip


def test_a_transaction_that_begins_behind_the_fence_is_not_waited_for(mirror):
    go(mirror, "start", "verify")
    mirror.is_busy = False
    perform = mirror.progress.append

    def told(sentence):
        perform(sentence)
        if sentence == "cut: sent":
            hang(mirror, "pay", 1)

    mirror.progress = type("Told", (list,), {"append": lambda self, sentence: told(sentence)})(mirror.progress)
    begun_s = mirror.clock.monotonic_s()
    with pytest.raises(PlanRefused, match="pay partition 1: a transaction is open since offset"):
        go(mirror, "cut")
    assert mirror.clock.monotonic_s() < begun_s + 5


def test_what_is_stored_between_two_questions_is_no_open_transaction(mirror):
    go(mirror, "start", "verify")
    offsets = mirror.offsets

    def more(partitions, at):
        found = offsets(partitions, at)
        if at in (END, STABLE_END):
            mirror.kafka_side.messages["pay"][0].append("between")
        return found

    mirror.offsets = more
    facts = mirror.run()._world.facts(with_positions=True)
    assert [each.open_transactions for each in facts.topics.values()] == [[], []]


def test_a_record_after_the_cut_is_found_in_kafka_itself_while_no_bridge_runs(mirror):
    go(mirror, *WAY)
    for _ in range(50):
        mirror.turn()
    mirror.copy_in = lambda name: None
    late = mirror.copied["pay"][1]
    mirror.kafka_side.messages["pay"][1].append("late")
    mirror.tails = SimpleNamespace(
        passed=lambda copied, ends, places: dict(copied),
        uncopied=lambda topic, positions: ((1, late),) if topic == "pay" else (),
        unstorable=lambda topic, positions: {},
    )
    refused(
        mirror, "retire", f"pay partition 1: the record at offset {late} came to Kafka after the cut and is not copied"
    )
    go(mirror, "retire", accepted=("late",))


FAULTS = [ClusterUnreachable("kafka is away"), OSError("no route"), BucketFull("it is full"), IndexError("tuple")]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("sub_step", ["sent", "quiet", "drained"])
def test_whatever_fails_behind_the_fence_lifts_it_at_once(mirror, fault, sub_step):
    go(mirror, "start", "verify")
    offsets = mirror.offsets

    def failing(partitions, at):
        if mirror.state.sub_step == sub_step:
            raise fault
        return offsets(partitions, at)

    mirror.offsets = failing
    with pytest.raises(PlanRefused, match=str(fault)):
        go(mirror, "cut")
    assert {each.fence for each in mirror.definitions().values()} == {None}
    assert (mirror.state.course, mirror.state.step) == ("", PlanStep.VERIFIED)
    mirror.offsets = offsets
    go(mirror, "cut")


@pytest.mark.parametrize("is_busy", [True, False], ids=["senders", "nobody sends"])
def test_a_copy_back_that_stops_behind_the_fence_is_told_as_such_and_the_fence_is_lifted(mirror, is_busy):
    go(mirror, *WAY[:4])
    for _ in range(20):
        mirror.turn()
    mirror.copy_out, mirror.is_busy = lambda name: None, True
    for _ in range(5):
        mirror.turn()
    mirror.is_busy = is_busy
    with pytest.raises(
        PlanRefused, match=r"copy of \w+ lacks \d+ records, .* 5 s behind the fence: the Kafka bridge's log"
    ):
        go(mirror, "rollback")
    assert {each.fence for each in mirror.definitions().values()} == {None}


def test_what_fails_before_the_fence_leaves_the_course_where_it_is(mirror):
    go(mirror, "start")
    offsets = mirror.offsets

    def failing(partitions, at):
        raise ClusterUnreachable("kafka is away")

    mirror.offsets = failing
    with pytest.raises(ClusterUnreachable):
        go(mirror, "verify")
    mirror.offsets = offsets
    mirror.run().resume()
    assert (mirror.state.course, mirror.state.step) == ("", PlanStep.COPYING)
    go(mirror, "verify")
    assert mirror.state.step is PlanStep.VERIFIED

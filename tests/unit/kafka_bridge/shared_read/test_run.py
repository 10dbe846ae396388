"""A member of a group on values: what it stores and commits, and what it drops when the group takes partitions."""

from types import SimpleNamespace
from unittest.mock import Mock
from uuid import UUID

import pytest

from common.clock import SystemClock
from common.kafka.base import EARLIEST, NO_NOTES, ClusterDescription, CommitOutcome, CommitResult, KafkaTopic
from common.kafka.errors import KafkaRefusal
from common.kafka.group_admin import CommittedPosition
from common.kafka.records import Partition
from engine.client.backlog import QueueBacklog
from engine.link.codes import OK
from engine.link.copy import Copied, QueueSource, SourceState
from engine.link.errors import LinkError
from kafka_bridge.copy_in.last_copied import LastCopied
from kafka_bridge.copy_in.messages import RecordPlace, message_id
from kafka_bridge.copy_in.plan import CopyPlan, KafkaMembership
from kafka_bridge.copy_in.standstills import Standstills
from kafka_bridge.shared_read import handing_back, run
from kafka_bridge.shared_read.member import GroupMember, MembershipLost, TopicFault
from kafka_bridge.shared_read.run import SharedRun
from kafka_bridge.shared_read.tails import LastRecords
from kafka_bridge.shared_read.tallies import SharedTallies
from kafka_bridge.source_identity import source_of
from tests.unit.kafka_bridge.copy_in.foreign_records import columns
from tests.unit.kafka_bridge.copy_in.test_core import PLAIN

PLACE = Partition("orders", 3)
COMMITTED, FENCED, UNKNOWN = (CommitResult(each, "why") for each in CommitOutcome)


class PlayedQueues:
    """The engine's side: queue 3 alone. Attributes: fault: raised by every append; last: the last copied record."""

    groups = frozenset(("main",))

    def __init__(self) -> None:
        self.states_of, self.stored, self.backlog, self.fault, self.last = None, [], 0, None, None

    def by_group(self, queues):
        return {"main": [*queues]} if [*queues] else {}

    def create(self, group, queues):
        pass

    def log_id(self, group):
        return "log"

    def ends_elsewhere(self, group, queue, source):
        return []

    def states(self, group, queues):
        return {queue: self.states_of or SourceState(12, 0, 0, 0, []) for queue in queues}

    def last_copied(self, group, states):
        return {queue: self.last for queue in states if self.last is not None}

    def begin(self, group, queue, source, start):
        return self.accept(group, queue, source, start, 0, "")

    def accept(self, group, queue, source, start, replaces, reason):
        number = replaces + 1
        self.states_of = SourceState(12, number, start, 0, [QueueSource(number, source, start, 0, 0, reason)])
        return self.states_of

    def copy(self, group, parts):
        if self.fault is not None:
            raise self.fault
        answers = []
        for part in parts:
            assert part.next == self.states_of.next
            count = int.from_bytes(part.batch[24:28], "little")
            self.states_of = self.states_of._replace(next=self.states_of.next + count)
            self.stored.append(count)
            answers.append(Copied(OK, self.states_of.number, self.states_of.next, 0))
        return answers

    def lags(self, group, reader):
        return [QueueBacklog(0, 0)] * 3 + [QueueBacklog(self.backlog, 10 * self.backlog)]


class Played:
    """A broker, a group and an engine that the test plays: per poll one script step, then the end."""

    def __init__(self, *steps, order=False) -> None:
        self.steps, self.commits, self.outcome, self.calls = [*steps], [], COMMITTED, []
        self.topic, self.end = KafkaTopic("orders", UUID(int=5), 4, 1), 1_000
        self.interruptions, self.notes, self.there, self.policy = 0, [], None, "delete"
        self.queues, self.tallies, self.standstills = PlayedQueues(), SharedTallies(), Standstills(SystemClock())
        plan = CopyPlan(
            "_kafka.g.orders", "_kafka.g.orders", 2, SimpleNamespace(name="main"), "orders",
            membership=KafkaMembership("g", "orders", order, False),
        )  # fmt: skip
        self.topic_run = SharedRun(
            plan,
            self.queues,
            self.standstills,
            lambda count: None,
            self.tallies,
            self,
            LastRecords(self, lambda: PlayedRecords(self)),
            "c",
        )
        self.run = GroupMember(
            self, None, self, {"orders": self.topic_run}, lambda: not self.steps, lambda: not self.steps,
            lambda run: None,
        )  # fmt: skip

    # Driver, administration and reader in one.

    def describe(self):
        return ClusterDescription("c", 1, [])

    def topics(self, names):
        return {"orders": self.topic}

    def offsets(self, partitions, at):
        return dict.fromkeys(partitions, 0 if at == EARLIEST else self.end)

    def configs(self, names):
        return {name: {"cleanup.policy": self.policy} for name in names}

    def committed(self, group, partitions=None):
        return {each: CommittedPosition(at, note) for each, (at, note) in self.notes[-1].items()} if self.notes else {}

    def group_reader(self, connection, options, listener):
        assert (options.group, options.topics) == ("g", ("orders",))
        return self

    def poll(self, wait_s):
        return self.steps.pop(0)() or []

    def commit(self, positions, notes=NO_NOTES):
        self.commits.append(dict(positions))
        self.notes.append({each: (at, notes.get(each, "")) for each, at in positions.items()})
        return self.outcome

    def pause(self, partitions):
        self.calls.append(("pause", *partitions))

    def resume(self, partitions):
        self.calls.append(("resume", *partitions))

    def positions(self):
        return {PLACE: 0}

    def rewind(self, positions):
        self.calls += [("rewind", positions)] if positions else []

    def close(self):
        pass

    # Steps.

    def assign(self):
        self.run.on_assigned([PLACE])

    def fetch(self, count, at):
        return lambda: [columns([PLAIN] * count, at)]

    def interrupted(self, step):
        """The step, over another connection than before."""

        def stepped():
            self.interruptions += 1
            return step()

        return stepped

    def has_copied(self, next_offset):
        """The queue has the partition up to there, and Kafka has the last record still."""
        self.queues.accept("main", 3, source_of("c", self.topic, 3), next_offset, 0, "before")
        at = next_offset - 1
        shown = message_id([], RecordPlace(self.topic.id.bytes, 3, at))
        self.queues.last = LastCopied(at, shown, PLAIN.key, PLAIN.value, PLAIN.timestamp)
        self.there = columns([PLAIN], at)


class PlayedRecords:
    """Reads the record that Kafka has at the offset that is asked for."""

    def __init__(self, of) -> None:
        self._of, self._at = of, {}

    def assign(self, positions):
        self._at = dict(positions)

    def remove(self, partitions):
        assert {*partitions} == {*self._at}

    def poll(self, wait_s):
        return [self._of.there] if self._of.there is not None else []

    def close(self):
        pass


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Looks at backlogs, and tries again, without a pause."""
    monkeypatch.setattr(run, "BACKLOG_S", 0.0)
    monkeypatch.setattr(run, "AGAIN_S", 0.0)
    monkeypatch.setattr(handing_back, "LOOK_S", 0.0)
    monkeypatch.setattr(handing_back, "MARGIN_S", 0.0)


def nothing():
    return []


def test_what_was_fetched_is_stored_and_then_committed():
    of = Played()
    of.steps = [of.assign, of.fetch(3, 20), of.fetch(2, 23), nothing]
    of.run.run()
    assert of.queues.stored == [3, 2] and of.commits == [{PLACE: 23}, {PLACE: 25}]
    assert of.topic_run.stored == 5 and of.tallies.partitions == 1


def test_a_commit_of_unknown_outcome_is_repeated():
    of = Played()
    of.outcome = UNKNOWN
    of.steps = [of.assign, of.fetch(3, 20), nothing, lambda: setattr(of, "outcome", COMMITTED), nothing]
    of.run.run()
    assert of.commits == [{PLACE: 23}] * 3


def test_a_fenced_commit_ends_the_run_and_nothing_more_is_stored():
    of = Played()
    of.outcome = FENCED
    of.steps = [of.assign, of.fetch(3, 20), of.fetch(3, 23)]
    with pytest.raises(MembershipLost, match="why"):
        of.run.run()
    assert of.queues.stored == [3]


def test_a_lost_partition_is_dropped_without_a_commit():
    of = Played()
    of.queues.fault = LinkError("away")
    of.steps = [of.assign, of.fetch(3, 20), lambda: of.run.on_lost([PLACE]), of.fetch(2, 23), nothing]
    of.run.run()
    assert of.queues.stored == [] and of.commits == [] and (of.tallies.lost, of.tallies.partitions) == (1, 0)


def test_while_the_engine_is_away_the_partition_waits_and_nothing_is_read_or_lost():
    of = Played()
    of.queues.fault = LinkError("away")

    def back():
        assert of.calls == [("pause", PLACE)] and of.commits == []
        assert [each.sentence for each in of.standstills.all] == ["broker group main: away"]
        of.queues.fault = None

    of.steps = [of.assign, of.fetch(3, 20), nothing, back, nothing]
    of.run.run()
    assert of.queues.stored == [3] and of.commits == [{PLACE: 23}] and of.calls[1:] == [("resume", PLACE)]
    assert of.standstills.all == []


def test_a_revoked_partition_is_committed_and_then_not_touched():
    of = Played()
    of.outcome = UNKNOWN
    of.steps = [of.assign, of.fetch(3, 20), lambda: of.run.on_revoked([PLACE], 30.0), of.fetch(2, 23), nothing]
    of.run.run()
    assert of.queues.stored == [3] and of.commits == [{PLACE: 23}] * 2 and of.tallies.order_broken == 0


@pytest.mark.parametrize("order", [True, False])
def test_only_groups_with_an_order_wait_for_acknowledgements_and_what_takes_too_long_is_counted(order):
    of = Played(order=order)
    of.queues.backlog = 2
    of.steps = [of.assign, of.fetch(3, 20), lambda: of.run.on_revoked([PLACE], 0.05), nothing]
    of.run.run()
    assert of.tallies.order_broken == int(order)


@pytest.mark.parametrize("change", ["made again", "lost records"])
def test_a_topic_that_is_another_one_or_has_lost_records_is_read_on_from_the_groups_position(change):
    of = Played()
    of.queues.accept("main", 3, source_of("c", of.topic, 3), 500, 1, "before")
    if change == "lost records":
        of.end = 30
    else:
        of.topic = of.topic._replace(id=UUID(int=6))
    of.steps = [of.assign, of.fetch(3, 20), nothing]
    of.run.run()
    assert of.queues.stored == [3] and of.commits == [{PLACE: 23}] and of.queues.states_of.number == 3


OTHER = PLAIN._replace(value=b"another one")


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_of_a_kafka_that_was_put_back_with_the_group_all_is_read_from_the_groups_position_on(policy):
    of = Played()
    of.has_copied(23)
    of.policy, of.there = policy, columns([OTHER] if policy == "delete" else [PLAIN], 22 if policy == "delete" else 24)
    of.steps = [of.assign, of.fetch(5, 20), nothing]
    of.run.run()
    assert of.queues.stored == ([5] if policy == "delete" else [2]), "a gap in a compacted topic is no loss"
    assert of.queues.states_of.number == (2 if policy == "delete" else 1) and of.commits == [{PLACE: 25}]


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_a_group_that_would_pass_over_what_kafka_has_in_place_of_what_was_copied_joins_again_or_stands(is_interrupted):
    of = Played()
    of.has_copied(23)
    of.there = columns([OTHER], 22)
    fetch = of.fetch(5, 23)
    of.steps = [of.assign, *([of.interrupted(nothing)] if is_interrupted else []), fetch, nothing]
    with pytest.raises(MembershipLost if is_interrupted else TopicFault, match="which group g has not read"):
        of.run.run()
    assert of.queues.stored == [] and of.commits == []


def test_an_interruption_costs_a_comparison_and_nothing_else():
    of = Played()
    of.has_copied(23)

    def put_back():
        of.there = columns([OTHER], 22)
        return columns([PLAIN], 26)

    of.steps = [of.assign, of.fetch(2, 23), of.interrupted(of.fetch(1, 25)), of.fetch(1, 25), nothing]
    of.run.run()
    assert of.queues.stored == [2, 1] and of.commits == [{PLACE: 25}, {PLACE: 26}]
    assert of.calls == [("rewind", {PLACE: 25})], "some of what came may be of before, and some of behind"
    of.steps = [of.interrupted(nothing), lambda: [put_back()], nothing]
    with pytest.raises(MembershipLost):
        of.run.run()


def test_what_waits_to_be_stored_when_kafka_is_put_back_is_read_again_from_there():
    of = Played()
    of.has_copied(23)
    of.queues.fault = LinkError("away")
    of.steps = [of.assign, of.fetch(3, 23), of.interrupted(nothing), lambda: setattr(of.queues, "fault", None), nothing]
    of.run.run()
    assert of.calls == [("pause", PLACE), ("rewind", {PLACE: 23}), ("resume", PLACE)]
    assert of.queues.stored == of.commits == []
    of.steps = [of.fetch(5, 23), nothing]
    of.run.run()
    assert of.queues.stored == [5] and of.commits == [{PLACE: 28}]


def test_what_an_engine_has_lost_that_was_put_back_is_read_again():
    of = Played()
    of.has_copied(23)
    of.steps = [of.assign, of.fetch(7, 23), nothing]
    of.run.run()
    assert of.notes == [{PLACE: (30, "penstock/log/12/30")}]
    of.queues.states_of = of.queues.states_of._replace(next=23)
    of.steps = [of.assign, of.fetch(2, 30), nothing]
    with pytest.raises(MembershipLost, match=r"the engine has lost copies.*partition 3 from offset 23 on"):
        of.run.run()
    assert of.queues.stored == [7] and of.commits == [{PLACE: 30}, {PLACE: 23}]


def test_what_another_member_has_read_is_no_loss_of_the_engine():
    of = Played()
    of.has_copied(23)
    of.notes.append({PLACE: (30, "")})
    of.steps = [of.assign, of.fetch(2, 30), nothing]
    of.run.run()
    assert of.queues.stored == [2] and of.commits == [{PLACE: 32}]


def test_a_record_that_may_not_be_read_leaves_one_topic_out(monkeypatch):
    of = Played()
    of.has_copied(23)
    monkeypatch.setattr(PlayedRecords, "poll", Mock(side_effect=KafkaRefusal(29, "TOPIC_AUTHORIZATION_FAILED")))
    of.steps = [of.assign, of.fetch(2, 23), nothing]
    with pytest.raises(TopicFault, match="AUTHORIZATION"):
        of.run.run()
    assert of.queues.stored == [] and of.commits == []

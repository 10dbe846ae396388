"""A member of a group on values: what it stores and commits, and what it drops when the group takes partitions."""

from types import SimpleNamespace
from uuid import UUID

import pytest

from common.clock import SystemClock
from common.kafka.base import END, CommitOutcome, CommitResult, KafkaTopic
from common.kafka.records import Partition
from engine.client.backlog import QueueBacklog
from engine.link.codes import OK
from engine.link.copy import Copied, QueueSource, SourceState
from engine.link.errors import LinkError
from kafka_bridge.copy_in.plan import CopyPlan, KafkaMembership
from kafka_bridge.copy_in.standstills import Standstills
from kafka_bridge.shared_read import handing_back, run
from kafka_bridge.shared_read.member import GroupMember, MembershipLost
from kafka_bridge.shared_read.run import SharedRun
from kafka_bridge.shared_read.tallies import SharedTallies
from kafka_bridge.source_identity import source_of
from tests.unit.kafka_bridge.copy_in.foreign_records import columns
from tests.unit.kafka_bridge.copy_in.test_core import PLAIN

PLACE = Partition("orders", 3)
COMMITTED, FENCED, UNKNOWN = (CommitResult(each, "why") for each in CommitOutcome)


class PlayedQueues:
    """The engine's side: queue 3 alone. Attributes: fault: raised by every append."""

    groups = frozenset(("main",))

    def __init__(self) -> None:
        self.states_of, self.stored, self.backlog, self.fault = None, [], 0, None

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
        self.queues, self.tallies, self.standstills = PlayedQueues(), SharedTallies(), Standstills(SystemClock())
        plan = CopyPlan(
            "_kafka.g.orders", "_kafka.g.orders", 2, SimpleNamespace(name="main"), "orders",
            membership=KafkaMembership("g", "orders", order, False),
        )  # fmt: skip
        self.topic_run = SharedRun(plan, self.queues, self.standstills, lambda count: None, self.tallies, self, "c")
        self.run = GroupMember(
            self, None, self, {"orders": self.topic_run}, lambda: not self.steps, lambda: not self.steps,
            lambda run: None,
        )  # fmt: skip

    # Driver, administration and reader in one.

    def topics(self, names):
        return {"orders": self.topic}

    def offsets(self, partitions, at):
        assert at == END
        return dict.fromkeys(partitions, self.end)

    def group_reader(self, connection, options, listener):
        assert (options.group, options.topics) == ("g", ("orders",))
        return self

    def poll(self, wait_s):
        return self.steps.pop(0)() or []

    def commit(self, positions):
        self.commits.append(dict(positions))
        return self.outcome

    def pause(self, partitions):
        self.calls.append(("pause", *partitions))

    def resume(self, partitions):
        self.calls.append(("resume", *partitions))

    def close(self):
        pass

    # Steps.

    def assign(self):
        self.run.on_assigned([PLACE])

    def fetch(self, count, at):
        return lambda: [columns([PLAIN] * count, at)]


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

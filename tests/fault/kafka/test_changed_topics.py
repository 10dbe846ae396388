"""Walks docs/design/0046-outside-changes.md: topics are made again, emptied by retention or compacted in Kafka, and a group's
position expires, while they are in each state between the steps of plans. One broker for all cells.
"""

from contextlib import closing

import pytest

from tests.e2e.kafka.home import Puller
from tests.fault.kafka.every_state import BACK, DUAL, FIRST, GROUP, HOME, READ_BOTH, SWAPPED, EveryState, topic
from tests.fault.kafka.test_shapes_and_positions import FOLLOWED_S_MAX
from tests.waiting import until

AGAIN, EMPTIED, COMPACTED, EXPIRED = "again", "emptied", "compacted", "expired"
PLANS = [
    (HOME, AGAIN, EMPTIED, COMPACTED), (DUAL, AGAIN), (DUAL, EMPTIED), (DUAL, COMPACTED), (SWAPPED, AGAIN),
    (SWAPPED, EMPTIED, COMPACTED), (BACK, AGAIN), (BACK, EMPTIED, COMPACTED), (READ_BOTH, AGAIN, EMPTIED, EXPIRED),
    (READ_BOTH, COMPACTED),
]  # fmt: skip
LOST = 7


class ChangedTopics(EveryState):
    """Every state, in which Kafka has changed single topics, all at once: a bridge tries some again after 30 s."""

    def change(self) -> "ChangedTopics":
        again = [each for each in self.sent if each.endswith(AGAIN)]
        self.admin.delete_topics(again)
        until(lambda: not self.admin.topics(again), "the end of the topics", FOLLOWED_S_MAX)
        for each in again:
            self.create(each)
        for each in (each for each in self.sent if each.endswith(COMPACTED)):
            self.admin.alter_configs(each, {"cleanup.policy": "compact"})
        with self.bridge_stopped():
            self.produce(topic(READ_BOTH, EMPTIED), "in-flight", 1)  # may be in the answer to a fetch that waits
            self.produce(topic(READ_BOTH, EMPTIED), "gone", LOST)
            for each in (each for each in self.sent if each.endswith(EMPTIED)):
                self.delete_records(each)
        return self

    def kafka_has(self, name, ids) -> None:
        until(lambda: self.kafka_ids(name) == sorted(ids), f"{name} in Kafka", FOLLOWED_S_MAX)


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    with closing(ChangedTopics(tmp_path_factory.mktemp("changed"))) as made:
        yield made.reach(PLANS).change()


def test_topics_that_were_made_again_take_messages_and_no_step_of_a_plan_goes_on(changed):
    states = (HOME, DUAL, SWAPPED)
    changed.fill(AGAIN, "new", 10, states)
    for state in states:
        sent = changed.sent[topic(state, AGAIN)]
        changed.kafka_has(topic(state, AGAIN), sent[FIRST:])
        assert state == HOME or changed.engine_ids(topic(state, AGAIN)) == sorted(sent)
    changed.is_told(topic(HOME, AGAIN), "the topic was deleted and made again")
    for state, command in ((DUAL, "cut"), (SWAPPED, "rollback"), (BACK, "rollback")):
        assert f'"{topic(state, AGAIN)}": it was deleted and made again' in changed.refused(state, AGAIN, command)


def test_a_group_that_reads_both_sides_reads_a_topic_that_was_made_again_from_its_beginning(changed):
    changed.fill(AGAIN, "new", FIRST // 2, (READ_BOTH,))
    changed.check(AGAIN, (READ_BOTH,))


def test_what_retention_deletes_hinders_no_double_write_and_no_copy_back(changed):
    """The plans that are rolled back have topics that are compacted, too."""
    changed.fill(EMPTIED, "after", 10, (HOME, DUAL, SWAPPED, BACK))
    for state in (HOME, DUAL, SWAPPED, BACK):
        sent = changed.sent[topic(state, EMPTIED)]
        changed.kafka_has(topic(state, EMPTIED), sent[FIRST:])
        until(
            lambda sent=sent, state=state: changed.engine_ids(topic(state, EMPTIED)) == sorted(sent),
            state,
            FOLLOWED_S_MAX,
        )
    changed.migrate("cut", topic(DUAL, EMPTIED))
    for state in (SWAPPED, BACK):
        assert "cleanup.policy is compact: Kafka removes records" in changed.refused(state, EMPTIED, "rollback")
        changed.admin.alter_configs(topic(state, COMPACTED), {"cleanup.policy": "delete"})
        changed.migrate("rollback", topic(state, EMPTIED))


def test_records_that_retention_deletes_before_a_group_reads_them_are_told_and_a_group_without_positions_goes_on(
    changed,
):
    name = topic(READ_BOTH, EMPTIED)
    changed.is_told(name, "there is no offset")
    with closing(Puller(changed, GROUP)) as puller:
        assert {each.message.id for each in puller.pull(name)} <= {"in-flight0"}
        puller.pull(name)
    assert f"{name} partition 0 up to offset" in changed.refused(READ_BOTH, AGAIN, "verify")
    with changed.penstock_away():
        until(lambda: changed.admin.groups().get(GROUP) == "Empty", "the group has no members", FOLLOWED_S_MAX)
        changed.admin.delete_groups([GROUP])
        for change in (EMPTIED, EXPIRED):
            changed.fill(change, "meanwhile", 10, (READ_BOTH,))
    for change in (EMPTIED, EXPIRED):
        changed.fill(change, "after", 10, (READ_BOTH,))
        changed.check(change, (READ_BOTH,))
    changed.migrate("verify", topic(READ_BOTH, AGAIN))


def test_a_topic_that_is_compacted_by_now_takes_messages_and_goes_neither_on_nor_back(changed):
    for state, command in ((DUAL, "cut"), (READ_BOTH, "verify")):
        assert "cleanup.policy is compact" in changed.refused(state, COMPACTED, command)
    states = (HOME, DUAL, SWAPPED, BACK, READ_BOTH)
    changed.fill(COMPACTED, "after", 10, states)
    changed.check(COMPACTED, states)

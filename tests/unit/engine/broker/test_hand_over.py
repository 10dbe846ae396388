"""A master that hands over: what it finishes first, when it answers, and when it leads on."""

import pytest

from engine.broker.hand_over import HAND_OVER_MS, MARK_TRIES, SENTENCE, HandOvers
from engine.errors import DiskFullError


class FakeMaster:
    """The host, the life, its log and its node of a master, with a list of what they are told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.now_ms, self.version = 1_000, 5
        self.unmarked = 0  # confirmations until all delayed messages are marked
        self.fails: Exception | None = None
        self.is_replicated = self.are_marked = True
        self.waiting: list = []
        self.following, self.damage, self.epoch, self.end_position = "", [], 3, 700
        self.env = self.clock = self.store = self.group = self.timers = self.delivery = self.refusal = self.appender = (
            self
        )
        self.node: FakeMaster | None = self

    # of the host
    def monotonic_ms(self):
        return self.now_ms

    def stop_node(self):
        self.told.append("node stops")

    def turn_away(self, of):
        """Of the host, with the standby; of the node, with a sentence."""
        self.told.append(f"turns away: {of}")

    def end_clients(self):
        self.told.append("clients end")

    def serve(self, node):
        self.told.append("serves")

    # of the life and its log
    def when_everywhere(self, callback):
        self.waiting.append(callback)

    def hand_over(self, sentence):
        self.told.append(f"refuses: {sentence}")

    def flush(self):
        self.told.append("commits")

    # of the node
    def close(self):
        self.are_marked = self.unmarked == 0
        self.unmarked -= not self.are_marked

    def write_progress(self, now_ms):
        if self.fails is not None:
            raise self.fails
        self.told.append("progress")


@pytest.fixture
def master():
    return FakeMaster()


@pytest.fixture
def answers():
    return []


@pytest.fixture
def hand_overs(master):
    return HandOvers(master, "standby", lambda: master.told.append("ships"))


def everywhere(master):
    """All members have what the master had when it asked."""
    waiting, master.waiting = master.waiting, []
    for each in waiting:
        each()


def test_the_record_may_change_once_all_members_have_everything_and_no_client_is_left(master, hand_overs, answers):
    hand_overs.begin(master, 5, answers.append)
    before_answer = [
        "node stops", "progress", "commits", f"refuses: {SENTENCE}", f"turns away: {SENTENCE}", "turns away: standby", "ships",
    ]  # fmt: skip
    assert master.told == before_answer and answers == [] and not hand_overs.can_follow()
    everywhere(master)
    assert master.told == [*before_answer, "clients end"] and answers == [""] and hand_overs.can_follow()


def test_clients_are_served_until_what_has_fired_is_marked(master, hand_overs, answers):
    master.unmarked = 2
    hand_overs.begin(master, 5, answers.append)
    for _ in range(2):
        assert f"refuses: {SENTENCE}" not in master.told
        everywhere(master)
    assert f"refuses: {SENTENCE}" in master.told
    everywhere(master)
    assert answers == [""] and hand_overs.can_follow()


def test_a_log_with_delayed_messages_that_cannot_be_marked_is_handed_over_and_has_to_be_opened_again(
    master, hand_overs, answers
):
    master.unmarked = 100
    hand_overs.begin(master, 5, answers.append)
    for _ in range(MARK_TRIES + 1):
        everywhere(master)
    assert answers == [""] and not hand_overs.can_follow()


def test_so_has_a_log_with_damage(master, hand_overs, answers):
    master.damage = ["a bad sector"]
    hand_overs.begin(master, 5, answers.append)
    everywhere(master)
    assert answers == [""] and not hand_overs.can_follow()


def test_a_master_leads_on_when_members_do_not_get_everything_in_time(master, hand_overs, answers):
    hand_overs.begin(master, 5, answers.append)
    master.now_ms += HAND_OVER_MS - 1
    hand_overs.tick()
    assert answers == []
    master.now_ms += 1
    hand_overs.tick()
    assert master.told[-3:] == ["refuses: ", "turns away: ", "serves"]
    assert answers == ["the record of another master did not come in time"]
    everywhere(master)
    assert "clients end" not in master.told and not hand_overs.can_follow() and len(answers) == 1


def test_it_leads_on_when_the_record_does_not_come_although_it_has_answered(master, hand_overs, answers):
    hand_overs.begin(master, 5, answers.append)
    everywhere(master)
    master.now_ms += HAND_OVER_MS
    hand_overs.tick()
    assert master.told[-1] == "serves" and answers == [""]
    hand_overs.begin(master, 5, answers.append)
    everywhere(master)
    assert answers == ["", ""]


def test_it_leads_on_when_what_it_has_in_memory_cannot_be_stored(master, hand_overs, answers):
    master.fails = DiskFullError("no room")
    hand_overs.begin(master, 5, answers.append)
    assert master.told[-1] == "serves" and "no room" in answers[0] and not hand_overs.can_follow()
    master.fails = None
    hand_overs.begin(master, 5, answers.append)
    everywhere(master)
    assert answers[1:] == [""]


def test_a_master_that_was_replaced_does_not_serve_again(master, hand_overs, answers):
    hand_overs.begin(master, 5, answers.append)
    everywhere(master)
    master.following = "another broker is master"
    hand_overs.end("another broker is master")
    assert "serves" not in master.told


def test_a_broker_without_a_slave_or_a_node_and_one_with_another_record_refuse(master, hand_overs, answers):
    hand_overs.begin(None, 5, answers.append)
    hand_overs.begin(master, 4, answers.append)
    master.is_replicated = False
    hand_overs.begin(master, 5, answers.append)
    master.is_replicated, master.node = True, None
    hand_overs.begin(master, 5, answers.append)
    assert len([each for each in answers if each]) == 4 and master.told == []


def test_a_second_hand_over_is_refused_while_one_is_under_way(master, hand_overs, answers):
    hand_overs.begin(master, 5, lambda reason: None)
    hand_overs.begin(master, 5, answers.append)
    assert answers == ["it hands over already"]

"""A group's filter: what it passes over is nobody's pull and counts as done, on both forms."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.dead_letters import dead_letter_topic
from engine.delivery import shared_filters as sharing
from engine.delivery.policy import DEFAULT, UNREAD, GroupPolicy
from engine.errors import GroupUnreadError
from engine.filter.index import FilterIndex
from engine.link.acknowledgement import RETRY
from engine.log.format import pack_record
from tests.unit.common.filter.stored import stored
from tests.unit.engine.delivery._world import FORMS, World


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def world(request):
    made = World(request.param)
    made.policies.set(filters={"": "kind = 'a'"})
    return made


def store(world, topic_id: int, kinds: str, queue: int = 0) -> None:
    """One batch; a letter is a message of this kind."""
    records = [pack_record(stored({"kind": kind}), bytes(16) if at % 2 else b"") for at, kind in enumerate(kinds)]
    world.log.store(topic_id, queue, records, world.wall_ms)
    world.delivery.on_woken(world.log.take_woken(), world.now_ms)


def offsets(pieces) -> list[int]:
    return [offset for piece in pieces for offset in piece.offsets]


def progress_of(world, topic_id: int) -> int:
    (only,) = world.delivery.groups["g"].topics[topic_id]
    return only.contiguous


def test_only_what_the_filter_takes_is_handed_out_and_runs_are_split_around_the_rest(world):
    store(world, world.topic(), "abaabba")
    pieces = world.give()
    assert [list(piece.offsets) for piece in pieces] == [[0], [2, 3], [6]]
    assert b"".join(piece.records for piece in pieces).count(b"kind\0\0\0\1a") == 4
    world.pull(acks=[piece.ack() for piece in pieces])
    assert world.delivery.counts.passed_over == 3


def test_what_is_passed_over_moves_the_groups_progress_also_when_it_is_everything(world):
    topic_id = world.topic()
    store(world, topic_id, "bbbb")
    assert world.give() == []
    assert progress_of(world, topic_id) == 4
    world.delivery.write_progress()
    world.restart()
    store(world, topic_id, "a")
    assert offsets(world.give()) == [4]
    assert world.delivery.counts.passed_over == 0


def test_a_waiting_pull_goes_on_waiting_while_records_are_passed_over(world):
    topic_id = world.topic()
    answers = []
    world.pull(wait_ms=5_000, answers=answers)
    store(world, topic_id, "bbb")
    assert answers == []
    store(world, topic_id, "ba")
    assert offsets(answers[0][1]) == [4]


def test_a_pull_of_few_messages_leaves_the_rest_undecided(world):
    topic_id = world.topic()
    store(world, topic_id, "babab")
    assert offsets(world.give(most=1)) == [1]
    world.policies.set(filters={"": "kind = 'b'"})
    assert offsets(world.give()) == [2, 4]


def test_bytes_are_bounded_but_the_first_message_always_fits(world):
    store(world, world.topic(), "baab")
    assert offsets(world.give(most_bytes=1)) == [1]
    assert offsets(world.give(most_bytes=1)) == [2]
    assert world.give(most_bytes=1) == []


def test_a_topics_own_filter_comes_before_the_one_for_all(world):
    world.policies.set(filters={"": "kind = 'a'", "refunds": "kind = 'b'", "all": "*"})
    for name in ("orders", "refunds", "all"):
        store(world, world.topic(name), "ab")
    found = {name: offsets(world.give(topics=((name, 1),))) for name in ("orders", "refunds", "all")}
    assert found == {"orders": [0], "refunds": [1], "all": [0, 1]}


def test_a_changed_filter_holds_for_waiting_pulls_and_redeliveries_too(world):
    topic_id = world.topic()
    store(world, topic_id, "ab")
    (piece,) = world.give()
    answers = []
    world.policies.set(filters={"": "kind = 'c'"})
    world.pull(acks=[piece.ack(verdict=RETRY, delay_ms=0)], wait_ms=5_000, answers=answers)
    world.turn(20)
    assert answers == [] and progress_of(world, topic_id) == 2
    world.policies.set(filters={})
    world.turn(20)
    store(world, topic_id, "d")
    assert offsets(answers[0][1]) == [2]


def test_a_group_without_a_filter_gets_everything(world):
    world.policies.set(filters={})
    store(world, world.topic(), "abc")
    assert offsets(world.give()) == [0, 1, 2]
    assert world.delivery.counts.passed_over == 0


def test_dead_letters_have_passed_the_filter_already(world):
    name = dead_letter_topic("g")
    store(world, world.topic(name), "b")
    assert offsets(world.give(topics=((name, 1),))) == [0]


def test_a_restart_filters_before_the_configuration_has_been_read(world):
    topic_id = world.topic()
    assert world.give() == []
    world.policies = Unread()
    world.restart()
    store(world, topic_id, "ba")
    with pytest.raises(GroupUnreadError, match="not read the configuration"):
        world.give()
    world.policies.policy = replace(DEFAULT, filters=None)  # as when only its filters are unknown
    world.policies.generation += 1
    assert offsets(world.give()) == [1]


class Unread:
    """Policies of an engine that has not read its configuration."""

    generation, policy = 0, UNREAD

    def of(self, group: str) -> GroupPolicy:
        return self.policy


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_long_stretch_is_passed_over_in_pieces_and_holds_up_nobody(form):
    world = World(form, filter_tests_max=10_000)  # about 1,100 records a turn
    world.policies.set(filters={"": "kind = 'a'"})
    topic_id = world.topic()
    for _ in range(10):
        store(world, topic_id, "b" * 1_000)
    store(world, topic_id, "a")
    answers = []
    world.pull(wait_ms=0, answers=answers)
    assert answers == []  # not told that there is nothing
    turns = 0
    while not answers:
        before = progress_of(world, topic_id)
        world.turn(20)
        turns += 1
        assert progress_of(world, topic_id) - before <= 2_048
    assert offsets(answers[0][1]) == [10_000] and turns >= 4


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_happens_each_message_for_the_group_comes_and_no_other(form, data):
    world = World(form, filter_tests_max=data.draw(st.sampled_from((30, 1_000, 100_000))))
    world.policies.set(filters={"": "kind = 'a'"})
    topic_id = world.topic()
    kinds, held, done = "", [], set()
    for _ in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(("store", "store", "pull", "ack", "retry", "turn", "restart"))):
            case "store":
                batch = data.draw(st.text("ab", min_size=1, max_size=12))
                store(world, topic_id, batch)
                kinds += batch
            case "pull":
                world.pull(most=data.draw(st.integers(1, 8)), wait_ms=0, answers=held)
            case "ack":
                pieces = [piece for _, answer in held for piece in answer]
                world.pull(acks=[piece.ack() for piece in pieces], most=0)
                done |= {offset for piece in pieces for offset in piece.offsets}
                held.clear()
            case "retry":
                pieces = [piece for _, answer in held for piece in answer]
                world.pull(acks=[piece.ack(verdict=RETRY, delay_ms=0) for piece in pieces], most=0)
                held.clear()
            case "turn":
                world.turn(20)
            case "restart":
                world.delivery.write_progress()
                world.restart()
                held.clear()
    for _ in range(400):
        world.turn(20_000)
        answers = []
        world.pull(most=50, wait_ms=0, answers=answers)
        while not answers:
            world.turn(20)
        pieces = answers[0][1]
        assert all(kinds[offset] == "a" for piece in pieces for offset in piece.offsets)
        world.pull(acks=[piece.ack() for piece in pieces], most=0)
        done |= {offset for piece in pieces for offset in piece.offsets}
        if progress_of(world, topic_id) == len(kinds):
            break
    assert done == {offset for offset, kind in enumerate(kinds) if kind == "a"}
    assert progress_of(world, topic_id) == len(kinds)


def pull_of(world, group: str, **options):
    answers = []
    world.pull(group=group, wait_ms=0, answers=answers, **options)
    while not answers:
        world.turn(20)
    return answers[0][1]


class PolicyByGroup:
    """A filter for each group, which tests change."""

    def __init__(self, filters: dict[str, str]) -> None:
        self.generation, self.filters = 1, filters

    def set(self, group: str, text: str) -> None:
        self.generation, self.filters = self.generation + 1, {**self.filters, group: text}

    def of(self, group: str) -> GroupPolicy:
        return GroupPolicy(filters={"": self.filters[group]} if self.filters.get(group) else {})


def sharing_world(form, filters: dict[str, str], **options) -> World:
    world = World(form, **options)
    world.policies = PolicyByGroup(filters)
    world.restart()
    return world


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_many_groups_of_a_topic_read_only_what_is_for_them(form):
    kinds = "abcdefgh"
    world = sharing_world(form, {kind: f"kind = '{kind}'" for kind in kinds}, shared_filters_min=4)
    topic_id = world.topic()
    store(world, topic_id, "-")
    for kind in kinds:
        assert pull_of(world, kind) == []
    store(world, topic_id, kinds * 50)
    read = []
    original = world.log.read
    world.log.read = lambda *arguments: read.append(arguments) or original(*arguments)
    assert offsets(pull_of(world, "a", most=1_000)) == list(range(1, 400, 8))
    read.clear()
    for number, kind in enumerate(kinds[1:], 2):
        assert offsets(pull_of(world, kind, most=1_000)) == list(range(number, 401, 8))
    assert sum(most for _, _, _, most, _ in read) == 7 * 50  # records asked for: one in eight
    assert all(
        progress.in_flight.messages == 50 for kind in kinds for progress in world.delivery.groups[kind].topics[topic_id]
    )


def test_a_topic_with_few_filters_has_no_index():
    world = sharing_world(FORMS[0], {kind: f"kind = '{kind}'" for kind in "abc"}, shared_filters_min=3)
    made = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "FilterIndex", lambda: made.append(1) or FilterIndex())
        topic_id = world.topic()
        store(world, topic_id, "abc")
        for kind, count in (("a", 0), ("b", 0), ("c", 1)):
            assert offsets(pull_of(world, kind)) == ["abc".index(kind)]
            assert len(made) == count


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_changed_filter_does_not_go_by_what_was_found_before(form):
    world = sharing_world(form, {kind: f"kind = '{kind}'" for kind in "abcd"}, shared_filters_min=4)
    topic_id = world.topic()
    store(world, topic_id, "-")
    for kind in "abcd":
        pull_of(world, kind)
    store(world, topic_id, "abcd" * 3)
    assert offsets(pull_of(world, "a")) == [1, 5, 9]
    world.policies.set("b", "kind = 'd'")
    world.policies.set("c", "")
    assert offsets(pull_of(world, "b")) == [4, 8, 12]
    assert offsets(pull_of(world, "c")) == list(range(1, 13))
    assert offsets(pull_of(world, "d")) == [4, 8, 12]
    world.policies.set("d", "kind = 'a'")
    store(world, topic_id, "ad")
    assert offsets(pull_of(world, "d")) == [13]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_groups_that_share_the_work_get_what_each_would_get_alone(form, data):
    filters = {"a": "kind = 'a'", "b": "kind = 'b' OR kind = 'c'", "c": "kind <> 'a'", "d": "kind = 'd'", "all": ""}
    world = sharing_world(
        form,
        filters,
        shared_filters_min=data.draw(st.integers(1, 4)),
        filter_tests_max=data.draw(st.sampled_from((50, 10_000))),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "OFFSETS_MAX", data.draw(st.sampled_from((4, 20, 8_192))))
        patch.setattr(sharing, "MATCHES_MAX", data.draw(st.sampled_from((3, 30, 65_536))))
        topic_id, kinds = world.topic(), ""
        got: dict[str, list[int]] = {group: [] for group in filters}
        steps = st.one_of(
            st.text("abcd", min_size=1, max_size=30), st.tuples(st.sampled_from(sorted(filters)), st.integers(1, 9))
        )
        for step in data.draw(st.lists(steps, max_size=25)):
            if isinstance(step, str):
                store(world, topic_id, step)
                kinds += step
                continue
            got[step[0]] += offsets(pull_of(world, step[0], most=step[1], invisible_ms=10_000_000))
        for group in filters:
            while more := offsets(pull_of(world, group, invisible_ms=10_000_000)):
                got[group] += more
    wanted = {"a": "a", "b": "bc", "c": "bcd", "d": "d", "all": "abcd"}
    assert got == {group: [at for at, kind in enumerate(kinds) if kind in taken] for group, taken in wanted.items()}

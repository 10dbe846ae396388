"""What a plan learns of repair journals from reports and from the journals' entries."""

import pytest

from common.config.memory_store import MemoryConfigStore
from common.config.store import COPIED, JOURNAL
from migration.facts import WaitingCopies
from migration.journals import MARGIN_MS, journal_facts, note_compared, ranges_to_compare

ONE, OTHER = "producer_proxy@127.0.0.1:1/a", "producer_proxy@127.0.0.1:1/b"
VERSION = {"topic": 7}


@pytest.fixture
def store():
    made = MemoryConfigStore()
    made.report_applied(ONE, {"topic": 7, COPIED: 7, JOURNAL: 1})
    made.report_applied("consumer_proxy@127.0.0.1:2/a", {"topic": 7})
    return made


def facts(store, *names):
    return journal_facts(store, names or ("orders",), VERSION)


def entry(store, name, process=ONE, **more):
    store.put("journal", name, {"process": process, "directory": f"/{name}", **more}, 0)


def test_only_producer_proxies_count(store):
    entry(store, "j")
    assert facts(store) == (1, (), (), (), ())


def test_a_proxy_of_an_older_version_or_behind_the_fence_is_neither_copied_nor_journaled(store):
    store.report_applied(OTHER, {"topic": 7})
    found = facts(store)
    assert found.uncopied == (OTHER,) and found.producers == 2
    assert found.unjournaled == (f"{OTHER} has no repair journal: start it with --journal DIR",)
    store.report_applied(OTHER, {"topic": 7, COPIED: 6, JOURNAL: 1})
    assert facts(store).uncopied == (OTHER,)


def test_a_journal_whose_proxy_is_gone_or_has_another_one_now_is_named_by_its_directory(store):
    entry(store, "gone", OTHER)
    (sentence,) = facts(store).unjournaled
    assert "/gone" in sentence and OTHER in sentence and "not at work" in sentence
    entry(store, "first")
    assert len(facts(store).unjournaled) == 1
    entry(store, "second")
    assert sum(f"{ONE} has had 2 journals" in each for each in facts(store).unjournaled) == 2


def test_what_waits_is_told_for_the_plans_topics_and_for_those_that_a_journal_does_not_name(store):
    topics = {
        "orders": {"messages": 12, "ids": [[3, "a"], [None, "b"]]}, "other": {"messages": 1, "ids": []},
        "*": {"messages": 4, "ids": []},
    }  # fmt: skip
    entry(store, "j", topics=topics)
    wanted = {WaitingCopies(ONE, "orders", 12, ((3, "a"), (None, "b"))), WaitingCopies(ONE, "*", 4)}
    assert set(facts(store).waiting) == wanted


def test_ranges_refusals_and_faults_are_doubts_of_the_topics_they_concern(store):
    missed = {"queue": -1, "from_ms": 0, "to_ms": 1, "messages": 0, "reason": "the journal was full"}
    entry(
        store, "j", ranges=[missed | {"topic": "orders"}, missed | {"topic": "other"}, missed | {"topic": "*"}],
        refused={"orders": 2, "other": 1}, fault="full",
    )  # fmt: skip
    told = facts(store).doubts
    assert len(told) == 4 and told[-1] == f"{ONE}: full"
    assert f"2 messages of orders are refused by the secondary of {ONE}" in told
    assert not [each for each in told if "other" in each]


def test_a_comparison_covers_ranges_of_its_topics_and_times_and_that_of_all_topics_if_no_other_has_two_sides(store):
    rows = [
        {
            "topic": topic,
            "queue": -1,
            "from_ms": 10 * MARGIN_MS,
            "to_ms": 20 * MARGIN_MS,
            "messages": 0,
            "reason": "full",
        }
        for topic in ("orders", "other", "*")
    ]
    entry(store, "j", ranges=rows)

    def covered(from_ms=None, to_ms=None):
        return [each[0] for each in ranges_to_compare(store, ["orders"], from_ms, to_ms).get("j", ())]

    assert covered() == covered(9 * MARGIN_MS, 21 * MARGIN_MS) == ["orders", "*"]
    assert covered(10 * MARGIN_MS) == covered(to_ms=20 * MARGIN_MS) == []
    store.put("topic", "other", {"queues": 1, "secondary": "engine", "home": "kafka:main"}, 0)
    assert covered() == ["orders"]


def test_a_journal_is_told_what_was_compared_and_one_that_is_gone_is_left_out(store):
    entry(store, "j")
    ranges = [("orders", -1, 1, 2)]
    assert note_compared(store, {"j": ranges, "gone": ranges}) == 1
    assert store.get("journal", "j").value["compared"] == [["orders", -1, 1, 2]]

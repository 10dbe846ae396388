"""What would block the real run of a plan, as sentences of the deciders."""

from migration.facts import Facts, TopicFacts
from migration.inventory import FoundGroup, FoundTopic
from migration.leftovers import LeftDelayedMessages
from migration.plan import parse_plan
from migration.rehearsal.blockers import blockers
from migration.run import rules_of

TEXT = "name: shop\nrecipe: {}\ncluster: main\ntopics: [orders]\ngroups: [workers]\n"
TOPIC = FoundTopic("orders", "id", 2, 3, 2, "delete", -1, -1, 1_000, 10, 0)


def plan(recipe):
    return parse_plan(TEXT.format(recipe), "plan")


def told(recipe, facts, topic=TOPIC, groups=(), faults=()):
    return blockers(plan(recipe), faults, facts, rules_of(plan(recipe)), [topic], groups)


def test_nothing_blocks_a_deployment_that_is_ready():
    for recipe in ("mirror", "double_write", "double_read"):
        assert told(recipe, Facts({"orders": TopicFacts()}, producers=1)) == []


def test_faults_late_processes_and_open_transactions_are_told_of_every_recipe():
    open_topic = FoundTopic(
        "orders", "id", 2, 3, 2, "delete", -1, -1, 1_000, 10, 4
    )  # fmt: skip
    found = told("mirror", Facts({"orders": TopicFacts()}, late=("engine@x",)), open_topic, faults=["topics[0]: wrong"])
    assert found[0] == "topics[0]: wrong" and "4 offsets belong to open transactions" in found[1]
    assert "the configuration is not applied by engine@x" in found[2]
    assert told("mirror", None, faults=["the real deployment cannot be asked: away"]) == [
        "the real deployment cannot be asked: away"
    ]


def test_a_double_write_needs_journals_one_writer_and_no_delayed_messages():
    facts = Facts(
        {"orders": TopicFacts(delayed=LeftDelayedMessages(3, 1_000))},
        producers=2,
        unjournaled=("p has no repair journal",),
    )
    found = told("double_write", facts)
    assert "2 producer proxies write" in found[0] and found[1] == "p has no repair journal"
    assert "3 delayed messages of orders wait" in found[2]
    assert told("mirror", facts) == [], "a mirror needs none of these"


def test_a_group_with_members_is_told_where_its_positions_are_to_be_translated():
    group = FoundGroup("workers", "Stable", ("orders",), 12)
    facts = Facts({"orders": TopicFacts()})
    assert "group workers has members on Kafka and 12 records to read" in told("mirror", facts, groups=[group])[0]
    assert told("double_read", facts, groups=[group]) == [], "there it reads on beside its members"


def test_a_group_that_is_far_behind_would_hold_a_double_read_back():
    group = FoundGroup("workers", "Stable", ("orders",), 1_234)
    (sentence,) = told("double_read", Facts({"orders": TopicFacts()}), groups=[group])
    assert "group workers has 1,234 records to read in Kafka, at most 1,000 may be left" in sentence

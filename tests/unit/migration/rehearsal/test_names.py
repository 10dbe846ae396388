"""Names of a rehearsal, and the plan of its copies."""

from migration.plan import TEXT_BYTES_MAX, TOPICS_MAX, parse_plan
from migration.rehearsal.names import RehearsalNames, is_of, is_run

TEXT = """\
name: shop
recipe: double_write
order: per_proxy
cluster: main
topics: [orders, {name: pay, queues: 8}]
groups: [workers]
gates: {lag_messages: 7}
limits: {fence_s: 9, soak_hours: 48}
"""


def test_the_plan_of_the_copies_has_the_bounds_of_the_real_one_and_no_time_of_soaking():
    names = RehearsalNames("00c0de", parse_plan(TEXT, "plan"))
    copy = parse_plan(names.text(), "copy")
    assert copy.name == "penstock-rehearsal-00c0de"
    assert copy.topic_names == ("penstock-rehearsal-00c0de.1", "penstock-rehearsal-00c0de.2")
    assert (copy.recipe, copy.order, copy.cluster) == ("double_write", "per_proxy", "main")
    assert (copy.gates.lag_messages, copy.limits.fence_s, copy.limits.soak_hours) == (7, 9, 0)
    assert copy.groups == ("penstock-rehearsal-00c0de.g1",)


def test_the_plan_of_the_copies_of_as_many_topics_as_a_plan_may_have_is_not_too_large():
    topics = ", ".join(f"t{number}" for number in range(TOPICS_MAX))
    plan = parse_plan(f"name: large\nrecipe: mirror\ncluster: main\ntopics: [{topics}]\n", "plan")
    text = RehearsalNames("00c0de", plan).text()
    assert len(text.encode()) <= TEXT_BYTES_MAX and len(parse_plan(text, "copy").topics) == TOPICS_MAX


def test_only_what_a_run_has_made_counts_as_its_own():
    for name in (
        "penstock-rehearsal-00c0de.1",
        "penstock-rehearsal-00c0de.g1",
        "penstock.copy.penstock-rehearsal-00c0de",
    ):
        assert is_of("00c0de", name)
    for name in ("penstock-rehearsal-00c0df.1", "penstock-rehearsal-00c0de0", "orders", "penstock.copy.shop"):
        assert not is_of("00c0de", name)
    assert is_run("00c0de") and not is_run("") and not is_run("00c0de1") and not is_run("00C0DE")

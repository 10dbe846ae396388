"""Plan files: what they may say, and their faults, all at once and each by field and rule."""

import itertools
import tracemalloc

import pytest

from common.config.errors import InvalidDefinition
from migration.plan import TOPICS_MAX, PlannedTopic, parse_plan

GOOD = """\
name: shop
recipe: mirror
cluster: main
topics:
  - orders
  - {name: pay, queues: 8}
"""


def faults(text):
    with pytest.raises(InvalidDefinition) as refused:
        parse_plan(text, "plan.yaml")
    return refused.value.faults


def test_a_plan_is_read_with_its_defaults():
    plan = parse_plan(GOOD, "plan.yaml")
    assert (plan.name, plan.recipe, plan.cluster) == ("shop", "mirror", "main")
    assert plan.topics == (PlannedTopic("orders"), PlannedTopic("pay", 8))
    assert plan.gates.error_rate == 0.01
    assert (plan.gates.lag_messages, plan.limits.fence_s, plan.limits.soak_hours) == (1_000, 60, 24)


@pytest.mark.parametrize(("text", "share"), [("0", 0.0), ("0.005", 0.005), ("1", 1.0)])
def test_the_error_rate_is_a_share(text, share):
    assert parse_plan(f"{GOOD}gates: {{error_rate: {text}}}\n", "plan.yaml").gates.error_rate == share


@pytest.mark.parametrize("text", ["5", "-0.1", "1%", "true", "[]", ".nan"])
def test_another_error_rate_is_a_fault(text):
    (found,) = faults(f"{GOOD}gates: {{error_rate: {text}}}\n")
    assert found.startswith("gates.error_rate: ") and found.endswith(
        " is not a share: use 0 to 1, such as 0.01 for 1 %"
    )


def test_the_digest_tells_every_two_texts_apart():
    assert parse_plan(GOOD, "a").digest == parse_plan(GOOD, "b").digest != parse_plan(GOOD + "# later\n", "a").digest


def test_all_faults_are_told_at_once_each_with_its_field_and_rule():
    found = faults(
        "name: a/b\nrecipe: copy\ncluster: 5\nfoo: 1\ngates: {lag: 3}\nlimits: {fence_s: 90}\n"
        "topics: [orders, orders, _dlq.x, no, {name: p, queues: 0, z: 1}]\n"
    )
    for told in (
        'name: "a/b" is not a name: use 1–249 characters',
        'recipe: "copy" is not one of the choices: use mirror, double_write or double_read',
        "cluster: 5 is not a name: use that of a cluster of `penstock kafka list`",
        "foo: there is no such field",
        "gates.lag: there is no such field",
        "limits.fence_s: 90 is out of range: use 5 to 60",
        'topics[2].name: "_dlq.x": names that begin with _dlq. are reserved',
        "topics[3].name: false is not a name",
        "topics[4].queues: 0 is out of range: use 1 to 2,000",
        "topics[4].z: there is no such field",
        'topics: "orders" is listed twice',
    ):
        assert [each for each in found if each.startswith(told)], (told, found)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a mapping: begin with name, recipe, cluster and topics"),
        ("- a\n", "not a mapping"),
        ("name: a\nname: b\n", 'not YAML: line 2: key "name" is given twice: use it once'),
        ("name: [a\n", "not YAML: line 2: "),
        ("x: &x [a]\nname: *x\n", "not YAML: line 2: aliases are not allowed: write the settings out"),
        (
            "x: &x {a: b}\ny: {<<: {a: c}}\n",
            "not YAML: line 2: merge keys (<<) are not allowed: write the settings out",
        ),
        ("limits: {fence_s: 010}\n", "not YAML: line 1: YAML reads 010 in base 8: write it without the first 0"),
        ("\nlimits: {soak_hours: 1:30}\n", "not YAML: line 2: YAML reads 1:30 in base 60: write it as one number"),
        ("name: " + "[" * 9 + "]" * 9, "not YAML: line 1: nested deeper than 8 levels"),
        ("name: " + "{" * 40_000, "not YAML: line 1: exceeded maximum nesting depth"),
        ("name: !!python/object:os.system a\n", "not YAML: line 1: could not determine a constructor"),
        ("name: " + "x" * 41_000, "it has 41,006 bytes: use at most 40,960 bytes, or several plans"),
    ],
)
def test_what_is_no_plan_is_one_fault(text, told):
    (found,) = faults(text)
    assert found.startswith(told)


def laughs(levels):
    """A few bytes that stand for ten times as many with each level."""
    rows = ["a: &a [" + ",".join("x" * 10) + "]"]
    for before, name in itertools.pairwise("abcdefghijklmnopqrst"[:levels]):
        rows.append(f"{name}: &{name} [" + ",".join([f"*{before}"] * 10) + "]")
    return "\n".join([*rows, f"name: *{name}\n"])


def test_a_text_that_stands_for_a_large_one_is_refused_without_making_it():
    tracemalloc.start()
    try:
        (found,) = faults(laughs(20))
        assert found == "not YAML: line 2: aliases are not allowed: write the settings out"
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["no", "on", "1234", "2024-01-01", "1.5"])
def test_a_name_that_yaml_reads_as_something_else_is_to_be_quoted(name):
    (found,) = faults(GOOD.replace("- orders", f"- {name}"))
    assert found.startswith("topics[0].name: ") and "; quote a name such as 'no', 'on', '1234' or '2024-01-01'" in found
    assert parse_plan(GOOD.replace("- orders", f"- '{name}'"), "plan").topic_names == (name, "pay")


def test_numbers_in_digits_and_texts_with_colons_are_plain():
    plan = parse_plan(
        GOOD + "limits: {fence_s: 10, soak_hours: 0}\ngates: {lag_messages: 1_000, error_rate: 0.05}\n", "plan"
    )
    assert (plan.limits.fence_s, plan.limits.soak_hours, plan.gates.lag_messages) == (10, 0, 1_000)


def test_a_stored_plan_that_an_older_version_took_is_read_as_it_was():
    text = GOOD + "limits: {fence_s: 010, soak_hours: 1:30}\n"
    limits = parse_plan(text, "plan", is_stored=True).limits
    assert (limits.fence_s, limits.soak_hours) == (8, 90)


@pytest.mark.parametrize("topics", ["[]", "5", "{}", "[" + "a, " * (TOPICS_MAX + 1) + "]"])
def test_topics_are_a_list_within_bounds(topics):
    assert "topics: use a list of 1 to 1,000 topics" in faults(GOOD[: GOOD.index("topics")] + f"topics: {topics}\n")


def test_an_order_is_of_double_write_only():
    assert "order: per_proxy is of the recipe double_write: leave it out" in faults(GOOD + "order: per_proxy\n")
    assert parse_plan(GOOD.replace("mirror", "double_write") + "order: per_proxy\n", "plan").order == "per_proxy"

"""The report of a plan: its files, from values."""

import json
import xml.etree.ElementTree as Tree

from migration.drawing import Span, lines, time_line
from migration.entries import Happening, PlanEntry
from migration.facts import IN_ENGINE, IN_KAFKA, Facts, TopicFacts
from migration.plan import parse_plan
from migration.report import Report, courses, sample_of
from migration.states import PlanState, PlanStep
from tests.unit.migration.world import TEXT

HISTORY = tuple(
    Happening(1_700_000_000_000 + at, "cli:eve", what)
    for at, what in (
        (0, "plan 12 stored"), (1_000, "start begun"), (3_000, "now copying"), (4_000, "cut begun, accepting lag"),
        (5_000, "cut given up: growth"), (6_000, "compared 7 messages of 2 topics: 0 ids differ"), (7_000, "cut begun"),
    )
)  # fmt: skip
CHECK = {
    "at_ms": 1_700_000_000_000, "from_ms": None, "to_ms": None,
    "topics": [{"topic": "orders", "kafka": 12_345, "engine": 12_344, "missing_in_engine": 1}],
    "findings": [{"topic": "orders", "queue": 1, "what": "missing in the engine", "id": "a|b", "kafka_offsets": [7]}],
}  # fmt: skip


def made(samples=(), check=None):
    plan = parse_plan(TEXT, "plan")
    entry = PlanEntry(plan, PlanState("shop", PlanStep.COPYING), 1, history=HISTORY)
    topics = [{"topic": "orders", "home": "kafka", "kafka_end": 12_345, "told": []}]
    cuts = {"orders": {"epoch": 2, "at_ms": 0, "kafka_ends": [1, 2], "engine_firsts": [1, 2]}}
    return Report(entry, 1_700_000_000_000, topics, cuts, check, samples).files()


def test_a_report_has_the_plan_the_comparison_the_cuts_and_the_history():
    files = made(check=CHECK)
    assert set(files) == {"report.json", "report.md", "time-line.svg"}
    text = files["report.md"]
    for part in ("recipe: mirror", "12,344", "missing in the engine", "a\\|b", "1; 2", "cut given up: growth"):
        assert part in text
    value = json.loads(files["report.json"])
    assert value["comparison"] == CHECK and len(value["history"]) == len(HISTORY)
    assert "There was none" in made()["report.md"]


def test_courses_last_from_their_begin_to_their_end_or_to_the_last_line():
    spans = [(each.label, each.to_ms - each.from_ms) for each in courses(HISTORY)]
    assert spans == [("start", 2_000), ("cut (given up)", 1_000), ("cut (at work)", 0)]


def test_samples_become_plots_of_rates_and_lag():
    def facts(end, copied):
        topic = TopicFacts(home=IN_KAFKA, kafka_ends=(end,), copied_in=(copied,), faults=("odd",))
        return Facts({"orders": topic})

    samples = [sample_of(facts(10 * at, 9 * at), float(at)) for at in range(4)]
    assert (samples[3].kafka, samples[3].copied, samples[3].behind_in, samples[3].faults) == (30, 27, 3, 1)
    files = made(samples)
    assert {"rates.svg", "lag.svg"} <= set(files)
    assert "10" in files["rates.svg"] and "![Lag](lag.svg)" in files["report.md"]


def test_what_is_unknown_is_no_number():
    moved = TopicFacts(home=IN_ENGINE, is_moved=True, has_copy_out=True, engine_ends=(5, 5), copied_out=(5, 3))
    found = sample_of(Facts({"a": moved, "b": TopicFacts(home=IN_KAFKA, kafka_ends=(4,))}), 0.0)
    assert (found.behind_in, found.behind_out, found.copied) == (None, 2, None)


def test_drawings_are_well_formed_and_escape_their_texts():
    for text in (lines("a < b", "per second", [0, 1], {"<x>": [0, 5]}), time_line("t", [Span("<cut>", 5, 9)])):
        assert Tree.fromstring(text).tag.endswith("svg")
    assert Tree.fromstring(time_line("t", [])).tag.endswith("svg")

"""The report of a rehearsal as Markdown and JSON."""

import json
from dataclasses import replace

from migration.rehearsal.ledger import CallerView, Verdict
from migration.rehearsal.report import RehearsalReport, StepResult

CUT = StepResult(
    "cut", 5.25, 2, "operator in switch", ["the fence has ended"], ["--accept", "counts"], ["the copy lacks 7 records"], {"behind": 12},
    CallerView({"OK": 40, "FENCED": 3}, 1.5, 1.5), True,
)  # fmt: skip
REPORT = RehearsalReport(
    "shop", "0123456789abcdef", "mirror", "main", "00c0de", 7, 1_700_000_000_000, 61.0, {"orders": 1_000},
    {"orders": "penstock-rehearsal-00c0de.1"}, {"orders": "penstock-rehearsal-00c0de.g1"}, [CUT],
    {"workers": "4 queues set, 7 messages left to read"}, 0, 1, Verdict(40), Verdict(40, again=2),
)  # fmt: skip


def test_a_clean_rehearsal_says_so_with_its_steps_fences_and_messages():
    text = REPORT.as_markdown()
    assert REPORT.is_clean and "Nothing was lost, doubled or out of order." in text
    assert "| cut | 5.2 s | operator in switch | 2 | 1.50 s | 1.50 s | 40 OK, 3 FENCED |" in text
    assert "- 1 cut: at its beginning: behind 12" in text and "- 1 cut: given up: the fence has ended" in text
    assert "| in the engine | 40 | 0 | 0 | 0 | 0 |" in text and "| at consumers | 40 | 0 | 0 | 0 | 2 |" in text
    assert "| orders | penstock-rehearsal-00c0de.1 | 1,000 |" in text
    assert "| group orders | penstock-rehearsal-00c0de.g1 | – |" in text
    assert "Positions of group workers: 4 queues set, 7 messages left to read." in text


def test_what_is_lost_blocked_or_not_done_is_told_and_is_a_failure():
    lost = Verdict(40, lost=1, examples={"lost": ["t/k/9"]})
    for broken in (
        replace(REPORT, stored=lost), replace(REPORT, received=lost), replace(REPORT, differing=2),
        replace(REPORT, failure="cut: it did not end"), replace(REPORT, steps=[replace(CUT, is_done=False)]),
        replace(REPORT, stored=None, received=None),
    ):  # fmt: skip
        assert not broken.is_clean and "**It has failed**" in broken.as_markdown()
        assert json.loads(broken.as_json())["is_clean"] is False
    assert "lost: t/k/9" in replace(REPORT, stored=lost).as_markdown()


def test_what_would_block_the_real_run_is_listed_and_fails_no_rehearsal():
    report = replace(REPORT, blockers=("group workers has members on Kafka",))
    assert report.is_clean and "- group workers has members on Kafka" in report.as_markdown()

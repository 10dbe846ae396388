"""The page that sets the console beside others names tests and pictures that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "runs" / "console.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text().splitlines()
    if re.match(r"\| \d+ \|", line)
]


def test_there_are_29_rows():
    assert [row[0].strip("| ") for row in ROWS] == [str(number) for number in range(1, 30)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1][:30])
def test_what_a_row_claims_is_shown_by_a_test_or_a_picture_that_exists(row):
    ours, shown = row[6], row[7] if len(row) > 7 else ""
    tests, pictures = re.findall(r"`(test_\w+\.py)::(test_\w+)`", shown), re.findall(r"\]\(([^)]+)\)", shown)
    assert bool(tests or pictures) != ours.startswith("missing"), ours
    for file, name in tests:
        found = [ROOT / "tests" / kind / "console" / file for kind in ("unit", "e2e")]
        assert any(path.exists() and f"\ndef {name}(" in path.read_text() for path in found), f"{file}::{name}"
    assert all((PAGE.parent / path).is_file() for path in pictures)

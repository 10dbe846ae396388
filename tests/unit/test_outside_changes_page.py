"""The tables of docs/design/0046-outside-changes.md name tests that exist, and each row names one or says why not."""

import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "design" / "0046-outside-changes.md"
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
VERDICTS = ("followed", "refused", "not possible", "open")


def rows():
    """Cells of the tables' rows, without heads."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [each for each in cells if each[0].strip("| ") != "change" and not each[0].startswith("---")]


@cache
def functions(path):
    return re.findall(r"^ *def (test_\w+)\(", path.read_text(), re.MULTILINE)


@pytest.mark.parametrize(("file", "name"), NAMED.findall(PAGE.read_text()))
def test_a_test_that_is_named_exists(file, name):
    assert name in functions(TESTS / file)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_each_cell_has_a_verdict_and_each_row_a_test_or_a_reason(row):
    change, *cells, walked = row
    assert all(cell.startswith(VERDICTS) for cell in cells), change
    reason = next((cell for cell in (walked, *cells) if cell.startswith(("not possible", "open: "))), "")
    assert NAMED.search(walked) or reason, change


def test_all_four_neighbours_have_a_table():
    assert len(rows()) > 50 and PAGE.read_text().count("| walked by |") == 4

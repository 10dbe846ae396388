"""The table of docs/filters.md is what the evaluators do, row by row. RocketMQ's column was read in its sources, not run."""

import json
import re
from pathlib import Path

import pytest

from common.filter.errors import FilterError
from common.filter.expression import read_filter
from common.filter.formula import FALSE, TRUE, UNKNOWN, formula_of
from common.filter.match import Filter as Twin
from common.filter.native import Filter
from tests.unit.common.filter.stored import stored

PAGE = Path(__file__).parents[4] / "docs" / "filters.md"
ROW = re.compile(r"\| `(.+?)` \| `(\{.*?\})` \| (\w+) \| (\w+) \|")
OUTCOMES = {"FALSE": FALSE, "TRUE": TRUE, "UNKNOWN": UNKNOWN}


def rows():
    return ROW.findall(PAGE.read_text())


def test_the_page_has_the_whole_table():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `") and "` | `{" in line]
    assert len(rows()) == len(lines) > 80


@pytest.mark.parametrize("form", [Filter, Twin])
@pytest.mark.parametrize(("text", "properties", "_", "ours"), rows())
def test_a_row_says_what_happens(text, properties, _, ours, form):
    if ours == "error":
        with pytest.raises(FilterError):
            read_filter(text)
        return
    read = read_filter(text)
    if ours == "tag":
        assert read.style == "tag"
        return
    given = json.loads(properties)
    message = stored(given, tag=given.get("TAGS"))
    found = [name for name, mask in OUTCOMES.items() if form(formula_of(read.condition, mask)).passes(message)]
    assert found == [ours]

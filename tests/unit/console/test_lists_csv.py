"""Lists of topics and groups as CSV."""

import csv
import io

from common.admin import groups, topics
from common.admin.groups import GroupSettings
from common.admin.topics import TopicSettings
from console.pages.actions import FORMULA


def rows_of(answer):
    assert answer.mimetype == "text/csv" and "attachment" in answer.headers["Content-Disposition"]
    return list(csv.DictReader(io.StringIO(answer.get_data(as_text=True))))


def test_topics_have_their_settings_and_their_team(console):
    made = console.as_role("owner").ask(name="orders.paid")
    console.as_role("operator").post(f"/requests/{made}/approve", version=1)
    topics.create(console.parts.configuration.admin("test"), ["stock"], TopicSettings(queues=3))
    viewer = console.as_role("viewer")
    everything = {row["name"]: row for row in rows_of(viewer.get("/topics.csv"))}
    assert (everything["orders.paid"]["team"], everything["orders.paid"]["rate_messages"]) == ("shop", "150")
    assert (everything["stock"]["team"], everything["stock"]["queues"]) == ("", "3")
    assert [row["name"] for row in rows_of(viewer.get("/topics.csv?q=STO"))] == ["stock"]


def test_no_cell_of_a_group_is_a_formula_for_a_spreadsheet(console):
    topics.create(console.parts.configuration.admin("test"), ["orders"], TopicSettings())
    settings = GroupSettings(topics=("orders",), filter="-1 < size")
    groups.create(console.parts.configuration.admin("test"), "-billing", settings)
    (row,) = rows_of(console.as_role("viewer").get("/groups.csv"))
    assert (row["name"], row["filter"], row["lag"]) == ("'-billing", "'-1 < size", "")
    assert not any(value.startswith(FORMULA) for value in row.values())

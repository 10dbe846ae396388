"""Fields of forms that are settings: what they offer and refuse follows from the settings' definitions."""

import pytest

from common.admin import topics
from common.admin.topics import TopicSettings
from common.config.definitions import GroupDefinition, TopicDefinition
from common.config.definitions.common import RETENTION_MS_MAX
from common.config.definitions.topic import BODY_BYTES_MAX, DURABILITIES
from common.config.setting import table_of
from console.asking import consumption_wish, topic_change, topic_wish
from console.asking.setting_fields import setting_field
from tests.unit.console.consoles import text_of

HOUR_MS = 3_600_000
FIELDS = [
    *consumption_wish.FIELDS.values(), *topic_change.FIELDS.values(), *topic_wish.FIELDS.values(),
]  # fmt: skip


def test_a_number_has_the_bounds_and_the_unit_of_its_definition():
    retention = setting_field(TopicDefinition, "retention_ms", "Retention")
    assert (retention.name, retention.unit, retention.per_unit) == ("retention_hours", "hours", HOUR_MS)
    assert retention.bounds[:2] == (0, RETENTION_MS_MAX // HOUR_MS)
    assert setting_field(TopicDefinition, "body_bytes_max", "").bounds == (1, BODY_BYTES_MAX, "bytes")


def test_a_lowest_value_between_two_of_the_fields_unit_is_rounded_up():
    lease = setting_field(GroupDefinition, "invisible_ms", "Lease", "lease_s", "seconds", 1_000)
    assert table_of(GroupDefinition)["invisible_ms"].type.low == 100 and lease.bounds[0] == 1
    assert (lease.default, lease.shown(1_500), lease.parse_stored({"lease_s": "45"}, {})) == ("30", "1.5", 45_000)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "87841", "9" * 30, "x"])
def test_a_number_beyond_the_bounds_is_refused_in_the_fields_unit(text):
    faults = {}
    setting_field(TopicDefinition, "retention_ms", "Retention").parse({"retention_hours": text}, faults)
    assert faults["retention_hours"].startswith("Use a whole number from 0 to 87,840 (hours; 0: the engine's retention")


@pytest.mark.parametrize("each", FIELDS, ids=lambda each: each.name)
def test_a_default_is_accepted_and_choices_with_words_are_those_of_the_definition(each):
    faults = {}
    stored = each.parse_stored({each.name: each.default}, faults)
    assert not faults and stored == each.setting.default
    assert set(each.words) in (set(), set(each.choices))
    assert each.setting.help in each.hint


def test_the_form_of_a_change_offers_what_the_definition_has(console):
    topics.create(console.parts.configuration.admin("test"), ["orders"], TopicSettings())
    page = console.as_role("operator").get("/topics/orders/change")
    html = page.get_data(as_text=True)
    assert all(f'<option value="{each}"' in html for each in DURABILITIES)
    assert table_of(TopicDefinition)["queues"].help in text_of(page).replace("&#39;", "'")

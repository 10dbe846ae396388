"""Filters tried on messages: the outcome is the engine's, each condition says why, and masked fields tell nothing."""

import pytest

from common.admin import topics
from common.admin.topics import TopicSettings
from common.contract import Message, encode_struct
from common.filter.errors import FilterError
from console.asking.filter_trial import FilterTrial
from console.installation.stored_messages import decoded
from console.roles import Role
from console.security.masking import MaskingRule
from engine.client.lookup import Stored
from tests.unit.console.consoles import SETUP, text_of

SECRET = "4111-1111"


def stored(offset: int = 0, key: str | None = None, tag: str | None = None, **properties: str) -> Stored:
    message = Message(topic="orders", body=b'{"card": "4111-1111"}', key=key, tag=tag, properties=properties or None)
    return Stored(1_700_000_000_000 + offset, 0, offset, f"id-{offset}", encode_struct(message))


def tried(text: str, **fields: str):
    found = stored(**fields)
    message = decoded("orders", found)
    return FilterTrial(text).of(found.message, message.key or None, message.tag or None, message.properties)


def test_each_condition_says_what_it_was_and_on_which_value():
    found = tried("country = 'DE' AND amount >= 100", country="DE", amount="7")
    assert not found.passes
    assert [(each.text, each.outcome, each.values) for each in found.conditions] == [
        ("country = 'DE'", "true", "country: “DE”"), ("amount >= 100", "false", "amount: “7”"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "fields", "passes", "outcome"),
    [
        ("amount > 3", {}, False, "unknown"), ("amount > 3", {"amount": "many"}, False, "unknown"),
        ("NOT amount > 3", {}, False, "unknown"), ("amount IS NULL", {}, True, "true"), ("paid || refunded", {"tag": "paid"}, True, "true"),
        ("KEYS = 'k'", {"key": "k"}, True, "true"), ("a = b", {"a": "1", "b": "2"}, False, "false"),
        ("-a > 0", {"a": "-1"}, True, "true"),
    ],
)  # fmt: skip
def test_what_is_unknown_is_not_delivered_and_says_so(text, fields, passes, outcome):
    found = tried(text, **fields)
    assert (found.passes, found.conditions[0].outcome) == (passes, outcome)
    assert ("missing" in found.conditions[0].values) == (not fields)


def test_a_filter_with_very_many_conditions_says_that_there_are_more():
    trial = FilterTrial(" OR ".join(f"a{number} = 'x'" for number in range(30)))
    assert trial.has_more and len(trial.of(stored().message, None, None, {}).conditions) == 20


def test_a_faulty_filter_is_refused():
    with pytest.raises(FilterError):
        FilterTrial("amount >")


class Samples:
    """Stands for the engines' messages."""

    def newest(self, topic: str, limit: int):
        assert limit <= 100
        found = [stored(0, country="DE"), stored(1, country="<b>FR</b>", token=SECRET)]
        return [(each, decoded(topic, each)) for each in found]


@pytest.fixture
def sampled(console):
    topics.create(console.parts.configuration.admin("test"), ["orders", "other"], TopicSettings())
    return console.with_parts(messages=Samples())


def test_the_page_says_which_match_and_why_and_shows_hostile_values_as_text(sampled):
    answer = sampled.as_role("operator").post("/consumption/try", topics="orders", filter="country = 'DE'")
    page = text_of(answer)
    assert "1 of the newest 2 messages matches" in page and "country = &#39;DE&#39; is true" in page
    assert "does not match" in page and "<b>FR" not in answer.get_data(as_text=True)
    part = sampled.as_role("operator", "otto").post("/consumption/try", topics="orders", filter="country = 'DE'")
    assert "<!doctype" in part.get_data(as_text=True)


def test_an_owner_sees_no_messages_of_topics_that_are_not_of_the_own_teams(sampled):
    answer = sampled.as_role("owner").post("/consumption/try", topics="orders", filter="country = 'DE'")
    assert "for the team that owns it and for operators" in text_of(answer) and "DE”" not in text_of(answer)


@pytest.mark.parametrize("field", ["key", "properties.token"])
def test_where_keys_or_properties_are_masked_a_filter_is_not_tried(sampled, field):
    sampled.parts.masking.add(SETUP, MaskingRule(0, "orders", field, Role.ADMIN))
    page = text_of(sampled.as_role("operator").post("/consumption/try", topics="orders", filter=f"token = '{SECRET}'"))
    assert "masked for your role" in page and "match" not in page.partition("masked")[0].partition("orders")[2]
    assert SECRET in text_of(
        sampled.as_role("admin").post("/consumption/try", topics="orders", filter="country = 'DE'")
    )


def test_a_masked_part_of_the_body_is_hidden_in_the_sample(sampled):
    sampled.parts.masking.add(SETUP, MaskingRule(0, "orders", "body.card", Role.ADMIN))
    answer = sampled.as_role("operator").post("/consumption/try", topics="orders", filter="country = 'DE'")
    assert SECRET not in text_of(answer) and "•••" in text_of(answer)


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"topics": ""}, "Name 1 to 50"), ({"filter": "a >"}, "fault"), ({"filter": ""}, "Give a filter"), ({"topics": "x/y"}, "name"),
     ({"topics": "nothing"}, "There is no such topic")],
)  # fmt: skip
def test_a_trial_that_cannot_be_made_says_why(sampled, fields, words):
    answer = sampled.as_role("operator").post("/consumption/try", **{"topics": "orders", "filter": "a = 'b'", **fields})
    assert answer.status_code == 200 and words in text_of(answer)

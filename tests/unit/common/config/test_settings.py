"""The table of settings: each is written once and reaches definition, check, verbs, command line, page and API."""

import json
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from common.config import reference
from common.config.definitions import ApplicationDefinition, GroupDefinition, KafkaClusterDefinition, TopicDefinition
from common.config.errors import InvalidDefinition
from common.config.gate_settings import GateSettings
from common.config.setting import GROWS, Changes, Option, Setting, described, setting, table_of
from common.config.values import WholeNumber
from penstock.terminal.setting_options import settings_options

DEFINITIONS = (TopicDefinition, GroupDefinition, ApplicationDefinition, KafkaClusterDefinition, GateSettings)
SETTINGS = [each for definition in DEFINITIONS for each in table_of(definition).values()]
PAGE = Path(__file__).parents[4] / "docs" / "settings.md"


@dataclass(frozen=True)
class LaterTopic(TopicDefinition):
    """A topic of a later version, with one setting more: the only place where it is written."""

    patience_ms: int = setting(
        2_000,
        WholeNumber("ms", 0, 60_000),
        "Wait this long for a thing.",
        unset="0: never",
        option=Option("patience-s", "seconds", 1000),
    )


class LaterChanges(Changes):
    definition = LaterTopic


def test_one_more_setting_reaches_definition_store_and_check():
    assert LaterTopic.from_value("t", {}).patience_ms == 2_000
    assert "patience_ms" not in LaterTopic.from_value("t", {}).to_value()
    assert LaterTopic.from_value("t", {"patience_ms": 5}).to_value()["patience_ms"] == 5
    with pytest.raises(InvalidDefinition) as caught:
        LaterTopic.from_value("t", {"patience_ms": 60_001, "queues": "x"})
    assert caught.value.faults == (
        'queues: "x" is not a whole number: use 1 to 10,000',
        "patience_ms: 60,001 is out of range: use 0 to 60,000",
    )


def test_one_more_setting_reaches_verbs_and_command_line():
    @click.command()
    @settings_options(LaterChanges)
    def command(settings: LaterChanges) -> None:
        click.echo(json.dumps(settings.given()))

    assert json.loads(CliRunner().invoke(command, ["--patience-s", "1.5"]).stdout) == {"patience_ms": 1_500}
    help_text = " ".join(CliRunner().invoke(command, ["--help"]).stdout.split())
    assert "--patience-s SECONDS Wait this long for a thing (0 to 60; 0: never; default 2)." in help_text
    refused = CliRunner().invoke(command, ["--patience-s", "61"])
    assert refused.exit_code == 2
    assert "61 is out of range: use 0 to 60 seconds" in refused.stderr


def test_one_more_setting_reaches_the_page_and_the_api():
    text = "\n".join(reference.lines("Topics", "a verb", LaterTopic))
    assert "| `patience_ms` | `--patience-s` (seconds) | 0 to 60,000 | ms | 2,000 |" in text
    assert "- `patience_ms`: Wait this long for a thing. 0: never." in text
    row = described(LaterTopic)[-1]
    assert row["name"] == "patience_ms"
    assert (row["type"], row["min"], row["max"], row["unit"], row["default"]) == ("integer", 0, 60_000, "ms", 2_000)
    assert (row["help"], row["unset"], row["option"]) == ("Wait this long for a thing.", "0: never", "--patience-s")


def test_the_committed_page_is_the_generated_one():
    assert PAGE.read_text() == reference.page(), "run: python -m common.config.reference > docs/settings.md"


@pytest.mark.parametrize("each", SETTINGS, ids=lambda each: each.name)
def test_every_setting_is_a_sentence_with_a_default_that_is_right(each: Setting):
    assert each.help[0].isupper() and each.help.endswith(".")
    assert not each.unset.endswith(".")
    if each.unset:
        assert ":" in each.unset
    if each.more:
        assert each.more.endswith(".")
    json.dumps(each.described())


@pytest.mark.parametrize(
    "definition",
    [each for each in DEFINITIONS if each is not KafkaClusterDefinition],  # its bootstrap has no valid default
    ids=lambda each: each.kind,
)
def test_every_default_passes_its_own_check(definition):
    defaults = {name: each.type.stored(each.default) for name, each in table_of(definition).items()}
    name = "gate" if definition is GateSettings else "x"
    assert definition.from_value(name, defaults) == definition.from_value(name, {})


def test_a_name_that_is_no_setting_is_a_programming_error():
    with pytest.raises(TypeError, match="TopicDefinition has no setting patience_ms"):
        type("TopicChanges", (Changes,), {"definition": TopicDefinition})(patience_ms=5)
    assert table_of(TopicDefinition)["queues"].change == GROWS


STORED = [
    (TopicDefinition, {}, '{"body_bytes_max":4194304,"durability":"replicated","queues":8}'),
    (
        TopicDefinition,
        {"queues": 3, "colour": "gold", "retention_ms": 5, "required_properties": ["a"], "id_window_ms": 0},
        '{"body_bytes_max":4194304,"colour":"gold","durability":"replicated","id_window_ms":0,"queues":3,'
        '"required_properties":["a"],"retention_ms":5}',
    ),
    (
        GroupDefinition,
        {"start_at_ms": 6},
        '{"attempts_max":16,"dead_letter_retention_ms":0,"filter":"","invisible_ms":30000,"on_failure":"skip",'
        '"order":"none","retry":{"factor":2.0,"first_ms":1000,"jitter":0.2,"max_ms":60000},"start":"earliest",'
        '"topic_filters":{},"topics":[]}',
    ),
    (
        GroupDefinition,
        {"topics": ["a"], "start": "time", "start_at_ms": 0, "paused": True, "retry": [1, 2], "rate_messages": 5},
        '{"attempts_max":16,"dead_letter_retention_ms":0,"filter":"","invisible_ms":30000,"on_failure":"skip",'
        '"order":"none","paused":true,"rate_messages":5,"retry":[1,2],"start":"time","start_at_ms":0,'
        '"topic_filters":{},"topics":["a"]}',
    ),
    (
        GroupDefinition,
        {"start": "latest", "start_at_ms": 7},
        '{"attempts_max":16,"dead_letter_retention_ms":0,"filter":"","invisible_ms":30000,"on_failure":"skip",'
        '"order":"none","retry":{"factor":2.0,"first_ms":1000,"jitter":0.2,"max_ms":60000},"start":"latest",'
        '"start_at_ms":7,"topic_filters":{},"topics":[]}',
    ),
    (ApplicationDefinition, {}, '{"grants":[],"keys":[]}'),
    (
        ApplicationDefinition,
        {"grants": [["send", "x*"]], "rate_bytes": 2, "addresses": ["10.0.0.0/8"]},
        '{"addresses":["10.0.0.0/8"],"grants":[["send","x*"]],"keys":[],"rate_bytes":2}',
    ),
    (GateSettings, {}, '{"features_off":[],"grades_off":[],"queue_ms":250,"rate_bytes":0,"rate_messages":0}'),
]


@pytest.mark.parametrize("definition, value, stored", STORED)
def test_definitions_are_stored_in_the_bytes_of_earlier_versions(definition, value, stored):
    made = definition.from_value("x", value)
    assert json.dumps(made.to_value(), separators=(",", ":"), sort_keys=True) == stored
    assert definition.from_value("x", json.loads(stored)).to_value() == made.to_value()

"""The reference page of all settings: `python -m common.config.reference > docs/settings.md`."""

import textwrap
from collections.abc import Iterator

from common.config.definition import Definition
from common.config.definitions import ApplicationDefinition, GroupDefinition, KafkaClusterDefinition, TopicDefinition
from common.config.gate_settings import GateSettings
from common.config.setting import Setting, table_of

HEAD = """\
# Settings

Every setting of topics, families of topics, consumer groups, applications, Kafka clusters and the gate. This page is
generated from the table in `common/config/definitions/` (`python -m common.config.reference > docs/settings.md`); the
same table checks the values and makes the options of the command line.

A change is in force at every process within a second. A setting that is not given keeps its default, or on a change its
present value.
"""
WIDTH = 120
SECTIONS: tuple[tuple[str, str, type[Definition]], ...] = (
    ("Topics and families", "`penstock topic create` and `penstock topic set`", TopicDefinition),
    ("Groups", "`penstock group create` and `penstock group set`", GroupDefinition),
    ("Applications", "`penstock app set`", ApplicationDefinition),
    ("Kafka clusters", "`penstock kafka add` and `penstock kafka set`", KafkaClusterDefinition),
    ("Gate: every producer proxy", "`penstock gate set`", GateSettings),
)


def page() -> str:
    """The whole page in Markdown."""
    return "\n".join([HEAD, *(line for section in SECTIONS for line in lines(*section))])


def lines(title: str, verbs: str, definition: type[Definition]) -> Iterator[str]:
    """One section: a short table of all settings, then a paragraph for each."""
    table = table_of(definition).values()
    yield from (f"## {title}", "", f"Set with {verbs}.", "")
    yield from ("| setting | option | values | unit | default |", "|---|---|---|---|---|")
    yield from (row(each) for each in table)
    yield ""
    for each in table:
        text = f"- `{each.name}`: {' '.join(sentences(each))}"
        yield from textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    yield ""


def row(setting: Setting) -> str:
    option = f"`--{setting.option_name}`" if setting.option_name else ""
    if setting.option and setting.option.unit:
        option += f" ({setting.option.unit})"
    default = setting.type.shown(setting.default)
    cells = (f"`{setting.name}`", option, setting.type.rule, setting.type.unit, default)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def sentences(setting: Setting) -> Iterator[str]:
    """The help and its notes as full sentences."""
    yield setting.help
    if setting.unset:
        yield f"{setting.unset[0].upper()}{setting.unset[1:]}."
    if setting.more:
        yield setting.more
    if setting.change:
        yield f"After creation: {setting.change}."


if __name__ == "__main__":
    print(page(), end="")

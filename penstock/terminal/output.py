"""-o table|wide|json|yaml: output for people or scripts."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from common.quoting import escaped

Row = dict[str, Any]


def output_option(command: Callable | None = None, *, stream: bool = False) -> Callable:
    """The option -o, as a decorator or a maker of one.

    Args:
        stream: the output has no known end, so JSON is one object per line, and there is no YAML.
    """

    def decorate(decorated: Callable) -> Callable:
        kinds = ["table", "json"] if stream else ["table", "wide", "json", "yaml"]
        words = "json, one object per line" if stream else "json, yaml"
        more = "" if stream else ", or with all columns (wide)"
        return click.option(
            "-o", "--output", type=click.Choice(kinds), default="table",
            help=f"Print for people (table, the default){more}, or for scripts ({words}).",
        )(decorated)  # fmt: skip

    return decorate if command is None else decorate(command)


def is_for_scripts(output: str) -> bool:
    return output in ("json", "yaml")


def show_rows(rows: Sequence[Row], columns: Sequence[str], output: str, wide: Sequence[str] = ()) -> None:
    """A list: an array of all fields, or a table with a header.

    Args:
        columns: of the table that fits into 80 characters.
        wide: of the wide one; without them it has all fields, `columns` first.
    """
    if is_for_scripts(output):
        show_value(list(rows), output)
        return
    if output == "wide":
        columns = wide or [*columns, *dict.fromkeys(name for row in rows for name in row if name not in columns)]
    for line in table(rows, columns):
        click.echo(line)
    if not rows:
        click.echo("none", err=True)


def show_one(row: Row, output: str) -> None:
    """One entry: an object, or one line per field."""
    if is_for_scripts(output):
        show_value(row, output)
        return
    width = max(map(len, row), default=0)
    for name, value in row.items():
        click.echo(f"{escaped(name):<{width}}  {cell(value)}")


def show_value(value: Any, output: str) -> None:
    """A value for scripts, as JSON or YAML."""
    plain = json.dumps(value, indent=1)
    if output == "json":
        click.echo(plain)
        return
    import yaml  # only for those who ask for it

    # From JSON: tuples are lists there. Invisible characters, such as those that turn the direction of writing, as escapes.
    is_printable = json.dumps(value, ensure_ascii=False).isprintable()
    click.echo(yaml.safe_dump(json.loads(plain), sort_keys=False, allow_unicode=is_printable, width=120), nl=False)


def tell(sentence: str) -> None:
    """Print a sentence on stderr, apart from the output."""
    click.echo(escaped(sentence), err=True)


def table(rows: Iterable[Row], columns: Sequence[str]) -> list[str]:
    cells = [[column.upper().replace("_", " ") for column in columns]]
    cells += [[cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def cell(value: Any) -> str:
    """A value as people read it: `yes`, `-` for nothing, lists and the fields of an object separated by commas.

    Senders write keys, ids, tags and reasons, so control characters are shown as escapes.
    """
    if value is None or value in ([], (), {}, ""):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{escaped(str(name))} {cell(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    return escaped(str(value))

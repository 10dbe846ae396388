"""-o table|json, and where they are offered wide and yaml: output for people or scripts."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

Row = dict[str, Any]


def output_option(command: Callable | None = None, *, wide: bool = False) -> Callable:
    """The option -o, as a decorator or a maker of one.

    Args:
        wide: the command has more columns than fit into 80 characters, and shows all of them with -o wide.
    """

    def decorate(decorated: Callable) -> Callable:
        more, kinds = (", with all columns (wide)", "json, yaml") if wide else ("", "json")
        return click.option(
            "-o",
            "--output",
            type=click.Choice(["table", "wide", "json", "yaml"] if wide else ["table", "json"]),
            default="table",
            help=f"Print for people (table, the default){more}, or for scripts ({kinds}).",
        )(decorated)

    return decorate if command is None else decorate(command)


def show_rows(rows: Sequence[Row], columns: Sequence[str], output: str) -> None:
    """A list: a JSON array of all fields, or a table of `columns` with a header."""
    if output == "json":
        click.echo(json.dumps(list(rows), indent=1))
        return
    if output == "yaml":
        show_yaml(list(rows))
        return
    for line in table(rows, columns):
        click.echo(line)


def show_one(row: Row, output: str) -> None:
    """One entry: a JSON object, or one line per field."""
    if output == "json":
        click.echo(json.dumps(row, indent=1))
        return
    if output == "yaml":
        show_yaml(row)
        return
    width = max(map(len, row), default=0)
    for name, value in row.items():
        click.echo(f"{name:<{width}}  {cell(value)}")


def show_yaml(value: Any) -> None:
    """For the commands that offer it."""
    import yaml  # only for these commands

    plain = json.loads(json.dumps(value))  # tuples as lists
    click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120), nl=False)


def table(rows: Iterable[Row], columns: Sequence[str]) -> list[str]:
    cells = [[column.upper().replace("_", " ") for column in columns]]
    cells += [[cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def cell(value: Any) -> str:
    if value is None or value in ([], (), ""):
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    return str(value)

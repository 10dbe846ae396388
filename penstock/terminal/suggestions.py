"""Suggestions for a misspelt word: "did you mean"."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

import click

SHOWN_MAX = 3
LIKENESS_MIN = 0.6


def close_words(word: str, choices: Iterable[str]) -> list[str]:
    """The most similar choices, best first; upper and lower case count as equal."""
    by_lower = {choice.lower(): choice for choice in choices}
    found = get_close_matches(word.lower(), list(by_lower), SHOWN_MAX, LIKENESS_MIN)
    return [by_lower[each] for each in found]


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """The question for the end of an error, or nothing."""
    found = close_words(word, choices)
    return f"did you mean {' or '.join(found)}?" if found else ""


class SuggestingGroup(click.Group):
    """A group that asks "did you mean" after a command that it does not have."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            knows = getattr(error, "possibilities", None)  # newer releases of click ask by themselves
            if not knows and (hint := did_you_mean(args[0], self.list_commands(context))):
                raise click.UsageError(f"{error.message} {hint[0].upper()}{hint[1:]}", context) from error
            raise


def with_hint(error: click.BadParameter) -> click.BadParameter:
    """The error of a value that is none of an option's words, with the closest word."""
    found = re.match(r"'(.*?)' is not one of ", error.message)
    kind = error.param.type if error.param is not None else None
    choices = [str(each) for each in kind.choices] if isinstance(kind, click.Choice) else []
    if found and (hint := did_you_mean(found[1], choices)):
        text = f"{error.message} {hint[0].upper()}{hint[1:]}"
        return click.BadParameter(text, error.ctx, error.param, error.param_hint)
    return error

"""Suggestions for a misspelt word: "did you mean"."""

from collections.abc import Iterable
from difflib import get_close_matches

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

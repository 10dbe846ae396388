"""Errors of filters.

PenstockError
└── FilterError      invalid input of the author, found when the filter is parsed, never at a message
"""

from common.errors import PenstockError

EXCERPT_CHARS = 100
"""Part of a long filter in an error: enough to recognise the position on one line of a terminal."""


class FilterError(PenstockError):
    """A sentence and where in the text it is about.

    Args:
        at: index of the character.
    """

    code = 100

    def __init__(self, sentence: str, text: str, at: int):
        super().__init__(f"at character {at + 1}: {sentence}")
        self.sentence, self.text, self.at = sentence, text, at

    def pointer(self) -> str:
        """Two lines: the text around the place, and a caret under it."""
        start = max(0, min(self.at - EXCERPT_CHARS // 2, len(self.text) - EXCERPT_CHARS))
        excerpt = self.text[start : start + EXCERPT_CHARS]
        shown = "".join(char if char.isprintable() else " " for char in excerpt)
        return f"{shown}\n{' ' * (self.at - start)}^"

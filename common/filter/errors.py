"""Errors of filters.

PenstockError
└── FilterError      invalid input of the author, found when the filter is parsed, never during evaluation
"""

from common.errors import PenstockError

EXCERPT_CHARS = 100
"""Maximum length of the excerpt of a filter in an error, so that it fits one line of a terminal."""


class FilterError(PenstockError):
    """A fault of a filter, and its position in the filter's text.

    Args:
        at: index of the character that is wrong.
    """

    code = 100

    def __init__(self, sentence: str, text: str, at: int):
        super().__init__(f"at character {at + 1}: {sentence}")
        self.sentence, self.text, self.at = sentence, text, at

    def pointer(self) -> str:
        """Return two lines: the text around the position, and a caret under it."""
        start = max(0, min(self.at - EXCERPT_CHARS // 2, len(self.text) - EXCERPT_CHARS))
        excerpt = self.text[start : start + EXCERPT_CHARS]
        shown = "".join(char if char.isprintable() else " " for char in excerpt)
        return f"{shown}\n{' ' * (self.at - start)}^"

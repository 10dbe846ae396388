"""What is wrong with a filter.

PenstockError
└── FilterError      the author's input, found when the filter is read, never when a message meets it
"""

from common.errors import PenstockError

EXCERPT_CHARS = 100
"""What is shown of a long filter: enough to recognise the place on one line of a terminal."""


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

"""Errors that operations of the link answer.

RequestError       the request cannot be served; `code` and the text are the answer
"""

from engine.link.codes import INVALID


class RequestError(Exception):
    """The request cannot be served as it is. The connection stays open."""

    def __init__(self, sentence: str, code: int = INVALID) -> None:
        super().__init__(sentence)
        self.code = code

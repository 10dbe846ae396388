"""What a request to the link server can meet.

RequestError       the request is wrong; `code` and the text are its answer
"""

from engine.link.layout import INVALID


class RequestError(Exception):
    """The request cannot be done as it is. The connection stays open."""

    def __init__(self, sentence: str, code: int = INVALID) -> None:
        super().__init__(sentence)
        self.code = code

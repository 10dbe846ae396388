"""Errors of the consumer proxy.

Refused    a pull is refused as a whole: a code of the contract and the sentence for the client
"""

from common.errors import PenstockError


class Refused(PenstockError):
    """A pull that is answered with a code only; its acknowledgements were not accepted either."""

    def __init__(self, code: int, sentence: str, retry_after_ms: int | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.retry_after_ms = retry_after_ms

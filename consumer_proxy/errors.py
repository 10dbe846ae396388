"""Why a pull is refused as a whole.

Refused    carries the contract code and the sentence that the client reads
"""

from common.errors import PenstockError


class Refused(PenstockError):
    """A pull that gets a code and nothing else; its acknowledgements were not taken either."""

    def __init__(self, code: int, sentence: str, retry_after_ms: int | None = None):
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.retry_after_ms = retry_after_ms

"""The hook by which an application counts calls and messages of the client."""

from penstock_client.contract import Delivery
from penstock_client.results import Result


class Metrics:
    """Called as things happen, by the thread concerned: return soon and do not raise. Override what you want."""

    def call(self, method: str, endpoint: str, took_s: float, failure: Exception | None) -> None:
        """One attempt at one proxy has ended. `failure` is None for an answer, whatever its code."""

    def sent(self, result: Result) -> None:
        """The final outcome of one message, after all retries."""

    def handled(self, delivery: Delivery, verdict: int, took_s: float) -> None:
        """A handler of `run` has ended."""

"""Reports up to which configuration the sends have their outcomes.

A migration plan that has fenced topics waits for it: a send that has passed the checks before the fence may still be on
its way, and its caller's TIMEOUT says nothing about that. The engine and the Kafka bridge answer each request once its
outcome is known, or their link breaks. Delayed messages are not counted: they are no messages of their topic yet.
"""

from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from common.config.store import SENT
from producer_proxy.targets.settling import Settling

LOOK_S = 0.01


@runtime_checkable
class MarkingTarget(Protocol):
    """An EngineTarget or a KafkaTarget."""

    def sent_mark(self) -> float:
        """A mark behind all that was submitted until now."""
        ...

    def is_sent(self, mark: float) -> bool:
        """Whether everything before the mark has its outcome."""
        ...


class SentReport:
    """
    Args:
        targets: those in use.
        version: number of the topics' configuration that is in force here.
        report: writes the process's report; blocks a greenlet.
    """

    def __init__(
        self, targets: Callable[[], Iterable[MarkingTarget]], version: Callable[[], int],
        report: Callable[[], object],
    ) -> None:  # fmt: skip
        self._targets, self._version = targets, version
        self._sent = 0
        self._waiting: tuple[int, list[tuple[MarkingTarget, float]]] | None = None
        self._settling = Settling(LOOK_S, self._settle, report)

    def numbers(self) -> dict[str, int]:
        """For the process's report."""
        return {SENT: self._sent}

    def follow(self) -> None:
        """Take note of a change of the configuration, before it is reported as applied."""
        marks = [(each, each.sent_mark()) for each in self._targets()]
        self._waiting = (self._version(), marks)
        self._settling.begin()

    def close(self) -> None:
        """Look no more."""
        self._settling.close()

    def _settle(self) -> bool:
        """Whether nothing of before the last change is open; then the report may say so."""
        if self._waiting is None:
            return True
        version, marks = self._waiting
        if not all(target.is_sent(mark) for target, mark in marks):
            return False
        self._sent, self._waiting = version, None
        return True

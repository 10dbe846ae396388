"""The retry plan of a batch: the messages to send next, and when. No I/O.

Invariant: a message whose outcome was once unknown is reported as unknown (TIMEOUT) unless a later answer tells that it
is stored. A later refusal applies only to that later attempt.

A message waits while an earlier one of its key does: so a key keeps its order over retries. It holds because a proxy
that refuses a message stores none of its key's later messages of the same call.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from penstock_client.backoff import pause_s
from penstock_client.codes import Action, action_of
from penstock_client.contract import Code


@dataclass
class Entry:
    due_s: float
    attempts: int = 0
    settled: bool = False
    maybe_stored: bool = False
    code: int = Code.UNAVAILABLE
    error: str | None = "no proxy could be reached before the deadline"
    answer: object | None = None

    @property
    def final_code(self) -> int:
        return Code.TIMEOUT if self.maybe_stored and not self.settled else self.code


class SendPlan:
    """
    Args:
        keys: topic and key of each message; None: it has no key, and no order.
        is_request: a reply is waited for.
    """

    def __init__(
        self,
        keys: Sequence[Hashable | None],
        now_s: float,
        backoff_s: Callable[[int], float],
        *,
        is_request: bool = False,
    ) -> None:
        self.entries = [Entry(now_s) for _ in keys]
        self._keys = keys
        self._open = dict.fromkeys(range(len(keys)))  # in order
        self._backoff_s = backoff_s
        self._is_request = is_request

    @property
    def finished(self) -> bool:
        return not self._open

    @property
    def has_outcomes(self) -> bool:
        """Whether a message was answered for good, or may be stored."""
        return any(entry.settled or entry.maybe_stored for entry in self.entries)

    def end(self) -> None:
        """Make no further attempt."""
        self._open.clear()

    def due(self, now_s: float) -> list[int]:
        due, held = [], set()
        for index in self._open:
            key = self._keys[index]
            if self.entries[index].due_s <= now_s and key not in held:
                due.append(index)
            elif key is not None:
                held.add(key)
        return due

    def next_due_s(self) -> float:
        firsts: dict[Hashable, float] = {}
        for index in self._open:
            key = self._keys[index]
            firsts.setdefault(("", index) if key is None else key, self.entries[index].due_s)
        return min(firsts.values())

    def answered(self, index: int, answer, now_s: float) -> None:
        entry = self.entries[index]
        entry.attempts += 1
        entry.code, entry.error, entry.answer = answer.code, answer.error, answer
        action = action_of(answer.code)
        if entry.maybe_stored and action in (Action.REFUSED, Action.LATER, Action.ELSEWHERE):
            # What it says, also "not stored", is about this attempt alone.
            told = f"; the last one was answered: {answer.error}" if answer.error else ""
            entry.error = f"an earlier attempt may have stored it{told}"
            entry.code = Code.TIMEOUT if action is Action.REFUSED else answer.code
        if self._is_request and answer.code == Code.DUPLICATE and answer.reply is None:
            entry.code, entry.error = Code.TIMEOUT, "stored by an earlier attempt, whose reply cannot be had"
        if action in (Action.LATER, Action.UNKNOWN):
            entry.due_s = now_s + pause_s(answer.code, answer.retry_after_ms, self._backoff_s(entry.attempts))
            entry.maybe_stored |= action is Action.UNKNOWN
        elif action is Action.ELSEWHERE:
            entry.due_s = now_s
        else:
            entry.settled = True
            del self._open[index]

    def failed(self, index: int, reason: str, *, sent: bool, now_s: float) -> None:
        """No answer came. It is due again at once: the pool has set that proxy aside."""
        entry = self.entries[index]
        entry.attempts += sent
        entry.maybe_stored |= sent
        entry.error = reason
        entry.due_s = now_s

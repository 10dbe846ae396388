"""Back-off between attempts of a failed message: a fixed list of delays, or growing delays."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DELAY_MS_MAX = 12 * 3_600_000
DELAYS_MAX = 100
FACTOR_MAX = 100.0
RULE = (
    "a list of 1 to 100 delays in ms, or first_ms, factor (1 to 100), max_ms and jitter (0 to 1); "
    f"delays are 0 to {DELAY_MS_MAX:,} ms"
)


@dataclass(frozen=True)
class DelayList:
    """The delay before each attempt; the last one is used for all further attempts."""

    delays_ms: tuple[int, ...]

    def delay_ms(self, attempt: int, random: Callable[[], float]) -> int:
        """The delay after attempt number `attempt` (from 1) failed."""
        return self.delays_ms[min(attempt, len(self.delays_ms)) - 1]

    def to_value(self) -> list[int]:
        return list(self.delays_ms)


@dataclass(frozen=True)
class Exponential:
    """first, first · factor, first · factor² … up to max; `jitter` is the random share of each delay.

    Jitter only shortens a delay: max_ms holds, and messages that failed together are not redelivered together.
    """

    first_ms: int = 1_000
    factor: float = 2.0
    max_ms: int = 60_000
    jitter: float = 0.2

    def delay_ms(self, attempt: int, random: Callable[[], float]) -> int:
        """The delay after attempt number `attempt` (from 1) failed; `random` returns 0 to 1."""
        delay = float(self.first_ms)
        for _ in range(attempt - 1):
            if delay >= self.max_ms or self.factor == 1.0 or not delay:
                break
            delay *= self.factor
        return int(min(delay, self.max_ms) * (1 - self.jitter * random()))

    def to_value(self) -> dict[str, Any]:
        return dict(vars(self))


Retry = DelayList | Exponential
DEFAULT_RETRY: Retry = Exponential()


def parse_retry(value: Any) -> Retry | None:
    """The policy of a configuration's value; None when it breaks RULE."""
    if isinstance(value, list | tuple):
        listed = 1 <= len(value) <= DELAYS_MAX and all(_is_delay(each) for each in value)
        return DelayList(tuple(value)) if listed else None
    if not isinstance(value, dict) or not value.keys() <= vars(Exponential()).keys():
        return None
    made = Exponential(**value)
    sound = (
        _is_delay(made.first_ms)
        and _is_delay(made.max_ms)
        and _is_number(made.factor, 1.0, FACTOR_MAX)
        and _is_number(made.jitter, 0.0, 1.0)
    )
    return made if sound else None


def parse_retry_text(text: str) -> Any:
    """Parse a command line's text into a configuration's value: `1000,5000,60000` or
    `first_ms=1000,factor=2,max_ms=60000,jitter=0.2`.

    Raises ValueError with the rule.
    """
    parts = [part.strip() for part in text.split(",")]
    try:
        if "=" not in text:
            value: Any = [int(part) for part in parts]
        else:
            pairs = [part.split("=", 1) for part in parts]
            value = {name: int(given) if name.endswith("_ms") else float(given) for name, given in pairs}
    except ValueError:
        raise ValueError(RULE) from None
    if parse_retry(value) is None:
        raise ValueError(RULE)
    return value


def _is_delay(value: Any) -> bool:
    return type(value) is int and 0 <= value <= DELAY_MS_MAX


def _is_number(value: Any, low: float, high: float) -> bool:
    return type(value) in (int, float) and low <= value <= high

"""Placeholder until the output hold lands."""

from collections.abc import Callable


class OutputHold:
    def __init__(self, end: Callable[[], int]) -> None:
        self.confirmed = 0

    def confirm(self, position: int) -> None:
        self.confirmed = max(self.confirmed, position)

"""Batches of a pair's tap that the primary has not answered, in the order of sending."""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from gevent.event import Event

from common.limited_log import LimitedLog
from producer_proxy.journal.batches import TappedBatch
from producer_proxy.journal.intending import Intents

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.journal"))


class UnansweredBatches:
    """
    Args:
        name: of the secondary.
        on_opened: called when a batch begins. on_complete: called with each batch whose intents the journal has, in the
            order of sending, once the primary has answered all of it and no append joins any more.
    Attributes:
        tap: a DualTap; None: the pair has none, and nothing is ever here.
    """

    def __init__(
        self, name: str, intents: Intents, on_opened: Callable[[], object], on_complete: Callable[[TappedBatch], object]
    ) -> None:
        self._name, self._intents, self._on_opened, self._on_complete = name, intents, on_opened, on_complete
        self.tap: Any = None
        self._batches: deque[TappedBatch] = deque()
        self._completed = Event()

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def names(self) -> set[str]:
        """Topics of their messages."""
        return {name for batch in self._batches for name in batch.names}

    def opened(self, batch: TappedBatch) -> None:
        """Called by the tap before the first append of a batch is sent."""
        self._batches.append(batch)
        self._on_opened()

    def completed(self) -> None:
        """Called by the tap when a batch is complete. One before it may still hold it up."""
        while self._batches and self._batches[0].is_complete:
            batch = self._batches.popleft()
            if not batch.is_taken:
                self._intents.missed_batch(batch)
            elif batch.count:
                self._on_complete(batch)
            else:
                self._intents.all_done((batch,))
        self._completed.set()

    def failed(self) -> None:
        """Called by the tap in the handler of an exception: messages may have no intent, or no copy."""
        limited.exception("secondary=%s: internal error", self._name)
        self._intents.doubt("internal error: intents or copies may be missing")

    def cut(self, wait_s: float = 0.0) -> None:
        """Let the tap begin a new batch, and give the primary so many seconds to answer those that are here."""
        if self.tap is None:
            return
        self.tap.cut()
        last = self._batches[-1] if self._batches else None
        until = time.monotonic() + wait_s
        while last in self._batches and (left_s := until - time.monotonic()) > 0:
            self._completed.clear()
            self._completed.wait(left_s)

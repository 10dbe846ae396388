"""Search for the topics that have delayed messages pending, over the whole table, in small steps.

The table does not know topics: a count per topic would cost two look-ups per delayed message, and memory per topic. So
the records are read, at most once a day, and only when a topic is about to be forgotten. A timer that is in the table
all the time is met in its cell. One that enters meanwhile is reported: a new one by its topic, one that was put back by
its address, and then its record is read.
"""

from collections.abc import Container

from engine.timers.timer_store import TimerAddress, TimerStore

READS_PER_STEP = 100
"""Records read per step: about a millisecond while they are in the page cache."""
CELLS_PER_STEP = 20_000


class TopicSearch:
    """Which of some topics have a pending delayed message.

    Call `step()` until it returns True; from then on `found` is complete after each `catch_up()`, until `close()`.

    Args:
        wanted: ids of the topics.

    Attributes:
        found: ids of those with a pending delayed message, as far as the search has come.
        is_certain: False when a record could not be read, so that any topic may have one.
    """

    def __init__(self, store: TimerStore, wanted: Container[int]) -> None:
        self._store, self._wanted = store, wanted
        self.found: set[int] = set()
        self.is_certain = not store.damaged
        self._start = 0
        self._put_back: list[TimerAddress] = []
        store.watcher = self

    def step(self) -> bool:
        """Read some records; whether the table is done."""
        self.catch_up()
        reads = cells = 0
        while self._start >= 0 and reads < READS_PER_STEP and cells < CELLS_PER_STEP:
            entries, self._start = self._store.table.scan(self._start, READS_PER_STEP)
            for base, at, _, _ in sorted(entries):
                self._read(TimerAddress(base, at))
            reads, cells = reads + len(entries), cells + READS_PER_STEP
        return self._start < 0

    def catch_up(self) -> None:
        """Take the timers into account that were put back into the table since."""
        put_back, self._put_back = self._put_back, []
        for address in put_back:
            self._read(address)

    def close(self) -> None:
        """Follow the table no more."""
        if self._store.watcher is self:
            self._store.watcher = None

    def on_entered(self, topic_id: int) -> None:
        """See TimerWatcher."""
        if topic_id in self._wanted:
            self.found.add(topic_id)

    def on_put_back(self, address: TimerAddress) -> None:
        """See TimerWatcher."""
        self._put_back.append(address)

    def _read(self, address: TimerAddress) -> None:
        try:
            timer = self._store.read(address)
        except OSError:
            self.is_certain = False
            return
        if timer is not None:  # one whose record fails verification is lost, as when it fires
            self.on_entered(timer.topic_id)

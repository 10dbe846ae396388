"""The repair journal of one proxy, wired: pairs of targets as they are needed, and what earlier processes have left."""

import logging
from collections.abc import Callable

import gevent

from common.config.definitions import TopicDefinition
from common.limited_log import LimitedLog
from common.readiness import Note
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.journal.backlog import RepairBacklog, WaitingRepair
from producer_proxy.journal.copying import SecondaryCopies
from producer_proxy.journal.intending import Intents, MissedCopies
from producer_proxy.journal.journal import RepairJournal
from producer_proxy.journal.repair import Repairer
from producer_proxy.journal.sides import Sides
from producer_proxy.targets.base import SendTarget
from producer_proxy.targets.dual import DualTarget
from producer_proxy.targets.topics import Targets, TopicView

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.journal"))

LOOK_S = 1.0
DROP_MAX = 1_000


class DualPair:
    """One pair of targets in use; `copies`: None without a journal."""

    def __init__(self, target: DualTarget, copies: SecondaryCopies | None) -> None:
        self.target, self.copies = target, copies


class Journaling:
    """
    Args:
        journal: owned from now on; None: this proxy has none. Topics with a secondary are then written to their home alone,
            and /readyz and the metrics say so.
    Attributes:
        backlog: entries that wait for their repair.
        left: entries that were dropped since their topic has no secondary any more.
    """

    def __init__(self, journal: RepairJournal | None, now_ms: Callable[[], int]) -> None:
        self.journal, self._now_ms = journal, now_ms
        self.intents, self.backlog = Intents(journal, now_ms), RepairBacklog()
        self.pairs: dict[tuple[str, str], DualPair] = {}
        self.left = 0
        self._view: TopicView | None = None
        self._targets: Targets | None = None
        self._looking: gevent.Greenlet | None = None

    def over(self, view: TopicView) -> "Journaling":
        """Use this configuration."""
        self._view = view
        return self

    def start(self, targets: Targets) -> None:
        """Begin to repair what an earlier process has left."""
        self._targets = targets
        if self.journal is None:
            return
        for position, entry, queue in self.journal.found:
            self.backlog.divert(entry, WaitingRepair(position, queue, True))
        self.journal.found = []
        if self.backlog.count or self.intents.ranges.all:
            self._look_from_now_on()

    def of(self, topic: TopicDefinition, primary: SendTarget, secondary: SendTarget) -> SendTarget:
        names = topic.home, topic.secondary
        pair = self.pairs.get(names)
        if pair is None or pair.target.primary is not primary or pair.target.secondary is not secondary:
            assert self._view is not None
            pair = self.pairs[names] = self._pair(Sides(*names, primary, secondary, self._view))
        return pair.target

    @property
    def all(self) -> list[SendTarget]:
        return [each.target for each in self.pairs.values()]

    def health(self) -> dict[str, bool | str]:
        """For /readyz: notes, since callers are served all the same."""
        if not self.pairs and not self.intents.ranges.all:
            return {}
        fault = self.intents.fault
        found: dict[str, bool | str] = {"repair journal": Note(fault) if fault else True}
        if ranges := self.intents.ranges.all:
            found["repair journal ranges"] = Note(f"{len(ranges)} ranges have to be compared: see docs/dual-write.md")
        for each in self.pairs.values():
            if each.copies is not None:
                found[f"secondary {each.target.secondary.name}"] = each.copies.health()
        return found

    def stop(self) -> None:
        """Copy what waits, for a second at most; the rest stays in the journal."""
        if self._looking is not None:
            self._looking.kill()
        gevent.joinall([gevent.spawn(each.copies.stop) for each in self.pairs.values() if each.copies])
        if self.journal is not None:
            self.journal.close()

    def _pair(self, sides: Sides) -> DualPair:
        if self.journal is None:
            return DualPair(DualTarget(sides.primary, sides.secondary, MissedCopies(self.intents)), None)
        repairer = Repairer(sides, self.journal, self.backlog, self._now_ms)
        copies = SecondaryCopies(sides, self.intents, self.backlog, repairer)
        self._look_from_now_on()
        return DualPair(DualTarget(sides.primary, sides.secondary, copies), copies)

    def _look_from_now_on(self) -> None:
        if self._looking is None:
            self._looking = gevent.spawn(self._look)

    def _look(self) -> None:
        """Find the pairs of topics with entries, and drop the entries of topics that have no secondary any more."""
        while True:
            try:
                self.intents.ranges.take_compared()
                for topic in list(self.backlog.topics):
                    self._look_at(topic)
            except Exception:
                limited.exception("journal: internal error")
            gevent.sleep(LOOK_S)

    def _look_at(self, topic: str) -> None:
        assert self._view is not None and self._targets is not None
        definition = self._view.topic(topic)
        if definition is not None and definition.secondary:
            self._targets.of(definition)  # makes the pair
        elif definition is not None or self._view.topic_was_deleted(topic):
            self._drop(topic)

    def _drop(self, topic: str) -> None:
        """Forget entries of a topic without a secondary: its plan has ended."""
        journal = self.journal
        assert journal is not None
        taken = self.backlog.take(lambda name: name == topic, DROP_MAX, None)
        entries = journal.read([repair.position for _, repair in taken])
        gone = [entry or BufferEntry(topic, None, None, b"", 0) for entry in entries]
        self.backlog.leave(gone)
        journal.note_done([repair.position for _, repair in taken])
        self.left += len(taken)
        limited.warning("journal topic=%s: %d entries dropped: the topic has no secondary any more", topic, len(taken))

"""The repair journal of one proxy, wired: pairs of targets as they are needed, and what earlier processes have left."""

import logging
import time
from collections.abc import Callable
from typing import Any

import gevent

from common.config.definitions import TopicDefinition
from common.config.errors import ConfigError
from common.config.store import ConfigStore
from common.contract import Code
from common.limited_log import LimitedLog
from common.readiness import Note
from producer_proxy.buffer.disk.threads import in_thread
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.journal import contents
from producer_proxy.journal.backlog import RepairBacklog, WaitingRepair
from producer_proxy.journal.copying import SecondaryCopies
from producer_proxy.journal.intending import Intents, MissedCopies
from producer_proxy.journal.journal import RepairJournal
from producer_proxy.journal.native import HAS_TAP, DualTap
from producer_proxy.journal.registration import JournalRegistration
from producer_proxy.journal.repair import Repairer
from producer_proxy.journal.sides import Sides
from producer_proxy.targets.base import ResolveError, SendTarget
from producer_proxy.targets.dual import DualTarget
from producer_proxy.targets.topic_view import TopicView
from producer_proxy.targets.topics import Targets

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.journal"))

LOOK_S = 1.0
TELL_S = 5.0
"""Time after which the configuration is told how much waits, if nothing else about it has changed: each time all processes
read it again, and a backlog changes all the time."""
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
        self._registration: JournalRegistration | None = None
        self._refused: tuple[int, dict[str, int]] = (0, {})
        self._told: tuple[frozenset[str], int, str] | None = None  # what _is_to_tell compares; None: nothing is told
        self._told_at = 0.0

    def over(self, view: TopicView, store: ConfigStore | None = None, process: str = "") -> "Journaling":
        """Use this configuration.

        Args:
            store: has an entry of the journal from its first use on; None: none is made.
            process: name under which the proxy reports.
        """
        self._view = view
        if store is not None and self.journal is not None:
            self._registration = JournalRegistration(store, process, self.journal.directory)
        return self

    @property
    def has_journal(self) -> bool:
        return self.journal is not None

    def held(self) -> set[str]:
        """Topics with messages without an outcome, or that their secondary does not have yet."""
        found = set(self.backlog.ordering_keys.topics())
        return found.union(*(each.target.held() for each in self.pairs.values()))

    def start(self, targets: Targets) -> None:
        """Begin to repair what an earlier process has left."""
        self._targets = targets
        if self.journal is None:
            return
        for position, entry, queue in self.journal.found:
            self.backlog.divert(entry, WaitingRepair(position, queue, True))
        self.journal.found = []
        is_registered = self._registration is not None and self._registration.may_exist
        if self.backlog.count or self.intents.ranges.all or is_registered:
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
        if self._registration is not None:
            self._tell(is_last=True)
        if self.journal is not None:
            self.journal.close()

    def _pair(self, sides: Sides) -> DualPair:
        if self.journal is None:
            return DualPair(DualTarget(sides.primary, sides.secondary, MissedCopies(self.intents)), None)
        self._register()
        repairer = Repairer(sides, self.journal, self.backlog, self._now_ms)
        copies = SecondaryCopies(sides, self.intents, self.backlog, repairer)
        self._look_from_now_on()
        tap = copies.unanswered.tap = self._tap(sides, copies)
        return DualPair(DualTarget(sides.primary, sides.secondary, copies, tap), copies)

    def _tap(self, sides: Sides, copies: SecondaryCopies) -> Any:
        """The tap of a pair whose sides both do without an object per message; None: they do not."""
        if not (HAS_TAP and sides.primary.has_taps and sides.secondary.takes_encoded):
            return None
        tap = DualTap(self.journal, copies.unanswered)

        def follow() -> None:
            tap.is_closed = bool(sides.unequal)

        sides.on_compared = follow
        return tap

    def _register(self) -> None:
        """Raises ResolveError: a journal that the configuration does not have could be overlooked."""
        try:
            if self._registration is not None:
                self._registration.make()
        except (ConfigError, OSError) as error:
            sentence = f"the repair journal cannot be entered into the configuration: {error}; nothing was stored"
            raise ResolveError(Code.UNAVAILABLE, sentence) from error

    def _is_to_tell(self) -> bool:
        """Whether the entry is to be written now: other topics wait, a message was refused, a fault came or went, there are
        ranges, which an operator may have compared; or it is time to tell how much waits."""
        assert self.journal is not None
        found = frozenset(self.backlog.ordering_keys.topics()), self.journal.dead.count, self.intents.fault
        is_due = time.monotonic() - self._told_at >= TELL_S
        if found == self._told and not is_due and not self.intents.ranges.all:
            return False
        self._told, self._told_at = found, time.monotonic()
        return True

    def _tell(self, is_last: bool = False) -> None:
        """Write what the journal holds into its entry. An orderly end with nothing in it deletes the entry."""
        assert self.journal is not None and self._registration is not None
        directory = self.journal.directory
        told: dict[str, Any] = {}
        try:
            if self.backlog.count:
                told["topics"] = contents.waiting(directory, self.backlog, in_thread)
            if self.intents.ranges.all:
                self.intents.ranges.forget(self._registration.compared())
            if ranges := self.intents.ranges.all:
                told["ranges"] = contents.told_ranges(ranges)
            if count := self.journal.dead.count:
                if count != self._refused[0]:
                    self._refused = count, in_thread(contents.refused, directory)
                told["refused"] = self._refused[1]
            if self.intents.fault:
                told["fault"] = self.intents.fault
            if is_last and not told:
                self._registration.end()
            else:
                self._registration.tell(told)
        except (ConfigError, OSError) as error:
            self._told = None
            limited.warning("journal=%s: its entry in the configuration cannot be written: %s", directory, error)

    def _look_from_now_on(self) -> None:
        if self._looking is None:
            self._looking = gevent.spawn(self._look)

    def _look(self) -> None:
        """Find the pairs of topics with entries, and drop the entries of topics that have no secondary any more."""
        while True:
            try:
                for topic in list(self.backlog.topics):
                    self._look_at(topic)
                if self._registration is not None and self._is_to_tell():
                    self._tell()
            except ResolveError as error:
                limited.warning("journal: %s", error)
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
        positions = [repair.position for _, repair in taken]
        self.backlog.leave(gone, positions)
        journal.note_done(positions)
        self.left += len(taken)
        limited.warning("journal topic=%s: %d entries dropped: the topic has no secondary any more", topic, len(taken))

"""Asks the engine which copies have something to copy, without a client of Kafka: one question per broker group for all topics."""

import time
from collections.abc import Callable, Iterable, Sequence

from common.config.view import ConfigView
from common.names import stored_name
from common.placement import Placement, topic_hash
from engine.client.admin import AdminError
from engine.client.blocking import LeadingLink
from engine.link.codes import OK
from engine.link.errors import LinkError, PayloadError
from engine.link.operations import READ
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion, ReadReport
from kafka_bridge.copy_in.engine_queues import Connect, Groups
from kafka_bridge.copy_out.copier import OutCopier

_FAULTS = (AdminError, LinkError, OSError, PayloadError)
_Asked = list[tuple[OutCopier, ReadPosition]]


class EngineLooks:
    """For one thread. A question and its answer are the same bytes while nothing moves, and are not looked into then.

    Args:
        groups: the broker groups as they are now.
        connect: makes a link to a broker group.
    """

    def __init__(self, view: ConfigView, groups: Callable[[], Groups], connect: Connect) -> None:
        self._view, self._groups, self._connect = view, groups, connect
        self._known: Groups = {}
        self._links: dict[str, LeadingLink] = {}
        self._generation = -1
        self._copiers: list[tuple[OutCopier, dict[int, int] | None]] = []
        self._questions: dict[str, tuple[_Asked, bytes]] = {}
        self._answers: dict[str, bytes] = {}
        self._told: dict[OutCopier, tuple[str, str]] = {}

    def moved(self, copiers: Sequence[OutCopier]) -> list[OutCopier]:
        """Those whose turn is due. A copy whose engine does not answer gets no turn, and its fault says why."""
        self._follow()
        now_s = time.monotonic()
        found = [each for each in copiers if now_s >= each.again_s and each.next is not None]
        wanted = [(each, each.next) for each in copiers]
        if self._generation != self._view.generation or not _are_same(wanted, self._copiers):
            self._generation, self._copiers = self._view.generation, wanted
            self._answers.clear()
            self._questions = self._asked(copiers)
        for group, (asked, question) in self._questions.items():
            found += self._of_group(group, asked, question)
        return [*dict.fromkeys(found)]

    def close(self) -> None:
        for each in self._links.values():
            each.close()
        self._links.clear()

    def _follow(self) -> None:
        """Use the broker groups as they are now."""
        if (groups := self._groups()) != self._known:
            self.close()
            self._known, self._generation = groups, -1
            self._links = {name: self._connect(name, addresses) for name, addresses in groups.items()}

    def _asked(self, copiers: Iterable[OutCopier]) -> dict[str, tuple[_Asked, bytes]]:
        placement = Placement([*self._known], self._view.placed_topics) if self._known else None
        found: dict[str, _Asked] = {}
        for each in copiers:
            topic = self._view.topic(each.copy.name)
            if topic is None or placement is None:
                each.tell("the topic has no definition, or no broker group is known")
                continue
            stored = stored_name(topic.name, topic.made_ms)
            for home, queues in placement.by_home(topic_hash(topic.name.encode()), topic.queues).items():
                of_group = found.setdefault(placement.names[home], [])
                of_group += [(each, ReadPosition(stored, queue)) for queue in queues]
        return {
            group: (asked, ReadQuestion([position for _, position in asked], 0).encode())
            for group, asked in found.items()
        }

    def _of_group(self, group: str, asked: _Asked, question: bytes) -> list[OutCopier]:
        try:
            code, answer = self._links[group].call(READ, question)
            if code != OK:
                raise AdminError(code, answer.decode("utf-8", "replace"))
            if answer == self._answers.get(group):
                return []  # nothing has moved since
            reports = ReadAnswer.decode(answer).reports
        except _FAULTS as fault:
            self._answers.pop(group, None)
            for each in dict.fromkeys(copier for copier, _ in asked):
                self._tell(each, f"broker group {group}: {fault}")
            return []
        self._take_back(asked)
        for (each, position), report in zip(asked, reports, strict=True):
            if report.code != OK:  # it has no turn, which would open a producer in vain
                self._tell(each, report.error or f"queue {position.queue}: READ")
        moved = [
            each
            for (each, position), report in zip(asked, reports, strict=True)
            if each not in self._told and _is_due(each, position, report)
        ]
        if not moved:
            self._answers[group] = answer
        return moved

    def _tell(self, copier: OutCopier, sentence: str) -> None:
        before = copier.fault
        copier.tell(sentence)
        self._told[copier] = self._told.get(copier, (before, ""))[0], copier.fault

    def _take_back(self, asked: _Asked) -> None:
        """The engine answers: the faults are those of before."""
        if self._told:
            for each in dict.fromkeys(copier for copier, _ in asked):
                before, told = self._told.pop(each, ("", ""))
                each.fault = before if told and each.fault == told else each.fault


def _are_same(
    some: Sequence[tuple[OutCopier, dict[int, int] | None]], others: Sequence[tuple[OutCopier, dict[int, int] | None]]
) -> bool:
    """Whether these are the same copies, none of which had a turn meanwhile."""
    return len(some) == len(others) and all(
        one is other and next_of_one is next_of_other
        for (one, next_of_one), (other, next_of_other) in zip(some, others, strict=True)
    )


def _is_due(copier: OutCopier, position: ReadPosition, report: ReadReport) -> bool:
    """Whether the copy of a queue has to go on."""
    if report.code != OK:
        return False
    if copier.next is None:
        return True
    known = copier.next.get(position.queue)
    return known is not None and report.end_offset != known

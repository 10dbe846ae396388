"""The verdict on a replicated load: from the log by positions, and from the groups' deliveries. Linear, one pass each.

lost           acknowledged, and not in the log
invented       in the log or delivered, and never sent, or refused
doubled        more than once in the log, whatever its answer was
misplaced      at another place of the log than its answer said
swapped        acknowledged messages of one key whose places do not follow the order of their sends
undelivered    acknowledged, and never delivered to a group that wants it
unfinished     acknowledged, and its last delivery to a group was not acknowledged as done
early          delayed, and delivered before its time
dead_letters   poison without a dead letter, another message with one, or two of them
wrong          deliveries whose content is another one than what was sent
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from common.contract import Code, Position
from common.dead_letters import dead_letter_topic
from tests.e2e.running import Application
from tests.fault.replicated.history import NOT_ANSWERED, SentHistory, packed
from tests.fault.replicated.plan import (
    GROUPS,
    QUEUES,
    REMINDERS,
    TOPICS,
    WORKERS,
    is_poison,
    is_wanted,
    origin,
    planned,
)
from tests.fault.replicated.records import DELIVERED, DONE, PULLED, PulledRecord, RecordReader
from tests.fault.stock_clients import Puller
from tests.waiting import until_done

Name = tuple[int, int]  # stream, number
PROOFS = 5
RULES = (
    "lost", "invented", "doubled", "misplaced", "swapped", "undelivered", "unfinished", "early", "dead_letters", "wrong"
)  # fmt: skip


class Stored(NamedTuple):
    """A message in the log. `name`: None when no stream sends such a message."""

    topic: str
    queue: int
    offset: int
    name: Name | None


@dataclass
class ReplicatedVerdict:
    """Each broken rule with the messages that show it, and figures of the run."""

    lost: list[Any] = field(default_factory=list)
    invented: list[Any] = field(default_factory=list)
    doubled: list[Any] = field(default_factory=list)
    misplaced: list[Any] = field(default_factory=list)
    swapped: list[Any] = field(default_factory=list)
    undelivered: list[Any] = field(default_factory=list)
    unfinished: list[Any] = field(default_factory=list)
    early: list[Any] = field(default_factory=list)
    dead_letters: list[Any] = field(default_factory=list)
    wrong: list[Any] = field(default_factory=list)
    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0
    fired: int = 0
    delivered: int = 0
    again: int = 0
    """Deliveries after an acknowledgement of the same message that was answered OK."""
    graves_again: int = 0
    """Dead letters that came twice, as they may after a forgotten acknowledgement: docs/design/0010-retries.md."""
    oldest_again_ms: int = 0
    """Longest time from such an acknowledgement to the next delivery."""

    def broken(self) -> dict[str, Any]:
        """The rules that do not hold, with counts and some proofs."""
        return {name: (len(found), found[:PROOFS]) for name in RULES if (found := getattr(self, name))}

    def assert_clean(self) -> "ReplicatedVerdict":
        print(self.told())
        assert self.broken() == {}, f"{self.broken()}"
        return self

    def told(self) -> str:
        return (
            f"{self.acknowledged} acknowledged, {self.refused} refused, {self.unknown} unknown, {self.fired} delayed ones fired, "
            f"{self.delivered} deliveries, {self.again} after their acknowledgement (the oldest {self.oldest_again_ms} ms), "
            f"{self.graves_again} dead letters again"
        )


def judge(
    penstock: Any, who: Application, history: SentHistory, folder: Path, wrong: Iterable[str]
) -> ReplicatedVerdict:
    """Judge a run whose groups have acknowledged everything."""
    verdict = ReplicatedVerdict(wrong=[*wrong])
    check_log(verdict, history, read_log(penstock, who, dict.fromkeys(TOPICS, QUEUES)))
    for group in GROUPS:
        check_group(verdict, history, group, read_pulled(folder, group))
    graves = read_log(penstock, who, {dead_letter_topic(WORKERS): 1})
    check_dead_letters(verdict, history, (each.name for each in graves))
    return verdict


def read_log(penstock: Any, who: Application, queues: dict[str, int]) -> Iterator[Stored]:
    """Every stored message by its position, all queues at once; in order per queue."""
    next_of = {(topic, queue): 0 for topic, count in queues.items() for queue in range(count)}
    with Puller(penstock.consumer, who) as puller:
        while next_of:
            places = [Position(topic, queue, offset=offset) for (topic, queue), offset in next_of.items()]
            response = puller.pull("verdict", positions=places, max_messages=5000, max_bytes=8 << 20)
            assert response.code == Code.OK, response.error
            for delivery in response.deliveries:
                body = delivery.message.body or b""
                yield Stored(delivery.message.topic, delivery.queue, delivery.offset, origin(body))
            for report in response.positions:
                assert report.code == Code.OK, report
                next_of[report.topic, report.queue] = report.next_offset
                if report.next_offset >= report.end_offset:
                    del next_of[report.topic, report.queue]


def read_pulled(folder: Path, group: str) -> Iterator[PulledRecord]:
    return (PulledRecord(*each) for each in RecordReader(folder / f"pulled-{group}", PULLED).new())


def check_log(verdict: ReplicatedVerdict, history: SentHistory, log: Iterable[Stored]) -> None:
    found = [bytearray(len(stream.codes)) for stream in history.streams]
    last_of_key: dict[tuple[str, str], tuple[int, int]] = {}
    for each in log:
        if each.name is None or not _was_sent(history, each.name):
            verdict.invented.append(each)
            continue
        stream, number = each.name
        found[stream][number] = min(255, found[stream][number] + 1)
        code, place = history.streams[stream].codes[number], history.streams[stream].places[number]
        message = planned(stream, number)
        if code < 100 and place >= 0 and place != packed(each.queue, each.offset):
            verdict.misplaced.append(each)
        if code < 100 and message.key is not None and not message.delay_ms:
            before = last_of_key.get((each.topic, message.key))
            if before is not None and not (before[0] == each.queue and before[1] < number):
                verdict.swapped.append((before, each))
            last_of_key[each.topic, message.key] = each.queue, number
        verdict.fired += each.topic == REMINDERS
    _count(verdict, history, found)


def _was_sent(history: SentHistory, name: Name) -> bool:
    """Whether it was sent, and no answer said that it was not stored."""
    codes = history.streams[name[0]].codes
    code = codes[name[1]] if name[1] < len(codes) else NOT_ANSWERED
    return code < 100 or 300 <= code < 400


def _count(verdict: ReplicatedVerdict, history: SentHistory, found: list[bytearray]) -> None:
    for stream, stored in enumerate(history.streams):
        for number, code in enumerate(stored.codes):
            count = found[stream][number]
            if code < 100:
                verdict.acknowledged += 1
                if not count:
                    verdict.lost.append((stream, number))
            elif 300 <= code < 400:
                verdict.unknown += 1
            elif code != NOT_ANSWERED:
                verdict.refused += 1
            if count > 1:
                verdict.doubled.append((stream, number, count))


def check_group(verdict: ReplicatedVerdict, history: SentHistory, group: str, pulled: Iterable[PulledRecord]) -> None:
    """Deliveries to one group, in the order in which they came."""
    delivered = [bytearray(len(stream.codes)) for stream in history.streams]
    closed = [bytearray(len(stream.codes)) for stream in history.streams]
    done_ms = [array("q", bytes(8 * len(stream.codes))) for stream in history.streams]
    for each in pulled:
        if not _was_sent(history, (each.stream, each.number)):
            verdict.invented.append((group, each))
            continue
        before_ms = done_ms[each.stream][each.number]
        if each.kind != DELIVERED:
            closed[each.stream][each.number] = 1
            if each.kind == DONE:
                done_ms[each.stream][each.number] = each.at_ms
            continue
        verdict.delivered += 1
        delivered[each.stream][each.number] = 1
        if each.at_ms < history.streams[each.stream].due_ms[each.number]:
            verdict.early.append((group, each))
        if before_ms:
            verdict.again += 1
            verdict.oldest_again_ms = max(verdict.oldest_again_ms, each.at_ms - before_ms)
    for stream, number, _ in history.acknowledged():
        message = planned(stream, number)
        if not is_wanted(group, message):
            continue
        if not delivered[stream][number]:
            verdict.undelivered.append((group, stream, number))
        elif not closed[stream][number] and not (group == WORKERS and is_poison(message, number)):
            verdict.unfinished.append((group, stream, number))


def check_dead_letters(verdict: ReplicatedVerdict, history: SentHistory, graves: Iterable[Name | None]) -> None:
    found = Counter(graves)
    poison = {
        (stream, number) for stream, number, _ in history.acknowledged() if is_poison(planned(stream, number), number)
    }
    verdict.dead_letters += [("none", *name) for name in poison - found.keys()]
    for name, count in found.items():
        if name is None or not is_poison(planned(*name), name[1]) or not _was_sent(history, name):
            verdict.dead_letters.append(("not poison", name))
        verdict.graves_again += count - 1


def wait_drained(penstock: Any, groups: Iterable[str]) -> None:
    """Until every delayed message was fired, and no group lags; as long as that makes progress."""

    def left() -> int:
        waiting = len(penstock.run("timer", "list", "--topic", REMINDERS) or [])
        return waiting + sum(row["lag"] for group in groups for row in penstock.run("group", "lag", group))

    until_done(left, "the groups have acknowledged everything")

"""Repair journals of the deployment as a plan sees them: by the reports of producer proxies and by the journals' entries."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from common.config.definitions import TopicDefinition
from common.config.errors import VersionConflict
from common.config.store import COPIED, JOURNAL, SENT, Applied, ConfigStore
from migration.facts import WaitingCopies

PRODUCERS = "producer_proxy@"
KIND = "journal"
ALL_TOPICS = "*"
JOURNALS_MAX = TOPICS_MAX = 10_000
RACES_MAX = 5
MARGIN_MS = 60_000
"""A comparison from a time on covers a range that begins so much later: clocks differ."""
CompareRange = tuple[str, int, int, int]
"""Topic, queue and both times of a range, by which its journal knows it."""


class JournalFacts(NamedTuple):
    """Fields as in `Facts`."""

    producers: int
    unjournaled: tuple[str, ...]
    uncopied: tuple[str, ...]
    waiting: tuple[WaitingCopies, ...]
    doubts: tuple[str, ...]


def journal_facts(store: ConfigStore, names: Collection[str], version: Mapping[str, int]) -> JournalFacts:
    """
    Args:
        names: the plan's topics.
        version: of the configuration; reports of before it say nothing about fences of now.
    """
    reports = {name: each for name, each in store.applied().items() if name.startswith(PRODUCERS)}
    found = {name: each.value for name, each in store.entries(KIND, limit=JOURNALS_MAX)}
    wanted = {*names, ALL_TOPICS}
    return JournalFacts(
        len(reports), tuple(_unjournaled(reports, found)), _uncopied(reports, version.get("topic", 0)),
        tuple(each for value in found.values() for each in _waiting(value) if each.topic in wanted),
        tuple(sentence for value in found.values() for sentence in _doubts(value, wanted)),
    )  # fmt: skip


def unsent(store: ConfigStore, version: Mapping[str, int]) -> tuple[str, ...]:
    """Producer proxies that do not report that every send of before this configuration has its outcome."""
    wanted = version.get("topic", 0)
    found = {name: each for name, each in store.applied().items() if name.startswith(PRODUCERS)}
    return tuple(sorted(name for name, each in found.items() if each.version.get(SENT, 0) < wanted))


def _uncopied(reports: Mapping[str, Applied], wanted: int) -> tuple[str, ...]:
    return tuple(sorted(name for name, each in reports.items() if each.version.get(COPIED, 0) < wanted))


def _unjournaled(reports: Mapping[str, Applied], found: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    for name, report in sorted(reports.items()):
        if not report.version.get(JOURNAL):
            yield f"{name} has no repair journal: start it with --journal DIR"
    owners: dict[str, int] = {}
    for value in found.values():
        owners[value["process"]] = owners.get(value["process"], 0) + 1
    for value in found.values():
        process, directory = value["process"], value["directory"]
        if process not in reports:
            yield f"the journal {directory} of {process} is not at work: start its proxy, which repairs what is in it"
        elif owners[process] > 1:
            yield f"{process} has had {owners[process]} journals, and {directory} is one of them: one has to be repaired"


def _waiting(value: Mapping[str, Any]) -> Iterator[WaitingCopies]:
    for topic, each in value.get("topics", {}).items():
        ids = tuple((queue, shown) for queue, shown in each["ids"])
        yield WaitingCopies(value["process"], topic, each["messages"], ids)


def _doubts(value: Mapping[str, Any], wanted: Collection[str] | None) -> Iterator[str]:
    """Args: wanted: topics; None: all."""
    for each in value.get("ranges", ()):
        if wanted is None or each["topic"] in wanted or each["topic"] == ALL_TOPICS:
            yield f"the journal of {value['process']} misses a range of {each['topic']}: {each['reason']}"
    for topic, count in value.get("refused", {}).items():
        if wanted is None or topic in wanted:
            yield f"{count:,} messages of {topic} are refused by the secondary of {value['process']}"
    if fault := value.get("fault"):
        yield f"{value['process']}: {fault}"


def ranges_to_compare(
    store: ConfigStore, names: Collection[str], from_ms: int | None, to_ms: int | None
) -> dict[str, list[CompareRange]]:
    """By journal: the ranges that a comparison of these topics covers, if it begins now.

    A range of all topics is among them where no other topic is written to both sides.

    Args:
        from_ms, to_ms: times of the messages that are compared; None: from the first one, to the last one.
    """
    others = [
        name
        for name, each in store.entries(TopicDefinition.kind, limit=TOPICS_MAX)
        if each.value.get("secondary") and name not in names
    ]
    wanted = {*names} if others else {*names, ALL_TOPICS}
    found: dict[str, list[CompareRange]] = {}
    for journal, entry in store.entries(KIND, limit=JOURNALS_MAX):
        covered = [
            each for each in entry.value.get("ranges", ()) if each["topic"] in wanted and _covers(from_ms, to_ms, each)
        ]
        if covered:
            found[journal] = [(each["topic"], each["queue"], each["from_ms"], each["to_ms"]) for each in covered]
    return found


def _covers(from_ms: int | None, to_ms: int | None, row: Mapping[str, Any]) -> bool:
    is_begun = from_ms is None or from_ms <= row["from_ms"] - MARGIN_MS
    return is_begun and (to_ms is None or to_ms >= row["to_ms"] + MARGIN_MS)


def note_compared(store: ConfigStore, found: Mapping[str, list[CompareRange]]) -> int:
    """Tell journals that both sides are equal in these ranges: their proxies forget those that have not grown meanwhile.

    Returns the number of ranges. A journal whose entry is gone is left out. Raises ConfigError.
    """
    return sum(len(ranges) for journal, ranges in found.items() if _note(store, journal, ranges))


def _note(store: ConfigStore, journal: str, ranges: list[CompareRange]) -> bool:
    for _ in range(RACES_MAX):
        entry = store.get(KIND, journal)
        if entry is None:
            return False
        try:
            store.put(KIND, journal, {**entry.value, "compared": [[*each] for each in ranges]}, entry.version)
            return True
        except VersionConflict:
            continue
    return False


class JournalEntry(NamedTuple):
    """A journal as the configuration has it. Attributes: version: of the entry."""

    id: str
    value: Mapping[str, Any]
    version: int


def journals_of(store: ConfigStore) -> list[JournalEntry]:
    return [JournalEntry(id_, each.value, each.version) for id_, each in store.entries(KIND, limit=JOURNALS_MAX)]


def owner_at_work(store: ConfigStore, entry: JournalEntry) -> str:
    """The process that works with this journal; empty: none does, or another journal may be the one of that process."""
    process = entry.value["process"]
    owned = [each for each in journals_of(store) if each.value["process"] == process]
    return process if process in store.applied() and len(owned) == 1 else ""


def what_may_be_missing(entry: JournalEntry) -> list[str]:
    """What one side may lack if the journal is lost, one sentence each."""
    found = []
    for each in _waiting(entry.value):
        ids = ", ".join(shown for _, shown in each.ids)
        topic = "topics that are not told one by one" if each.topic == ALL_TOPICS else each.topic
        found.append(
            f"{each.messages:,} messages of {topic} waited for their second side"
            + (f", the first: {ids}" if ids else "")
        )
    found += [f"{each}" for each in _doubts(entry.value, None)]
    found.append("messages of its last seconds, which it had not told: of any topic that its proxy wrote to both sides")
    return found


def forget_journal(store: ConfigStore, entry: JournalEntry) -> None:
    """Remove a journal's entry: plans do not wait for it any more. Raises VersionConflict: it has changed meanwhile."""
    store.delete(KIND, entry.id, entry.version)

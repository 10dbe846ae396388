"""Repair journals of the deployment as a plan sees them: by the reports of producer proxies and by the journals' entries."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from common.config.store import COPIED, JOURNAL, Applied, ConfigStore
from migration.facts import WaitingCopies

PRODUCERS = "producer_proxy@"
KIND = "journal"
ALL_TOPICS = "*"
JOURNALS_MAX = 10_000


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


def _doubts(value: Mapping[str, Any], wanted: Collection[str]) -> Iterator[str]:
    for each in value.get("ranges", ()):
        if each["topic"] in wanted or each["topic"] == ALL_TOPICS:
            yield f"the journal of {value['process']} misses a range of {each['topic']}: {each['reason']}"
    for topic, count in value.get("refused", {}).items():
        if topic in wanted:
            yield f"{count:,} messages of {topic} are refused by the secondary of {value['process']}"
    if fault := value.get("fault"):
        yield f"{value['process']}: {fault}"

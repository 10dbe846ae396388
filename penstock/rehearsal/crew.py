"""The synthetic load of a rehearsal: its producers and consumers, and the wait for what is still to arrive."""

import time
from collections.abc import Callable, Mapping, Sequence

from common.kafka.base import GroupListener, GroupOptions, GroupReader
from migration.plan import DOUBLE_READ
from migration.rehearsal.ledger import LoadLedger
from migration.rehearsal.load import KafkaMember, LoadAccess, LoadThread, SyntheticConsumer, SyntheticProducer
from migration.rehearsal.names import RehearsalNames
from penstock.rehearsal.site import RehearsalSite

PRODUCERS = 2
DRAINED_S_MAX = 60.0
LOOK_S = 0.1


class RehearsalCrew:
    """
    Args:
        open_member: opens a reader of a group on Kafka.
        per_second: messages over all topics.
    """

    def __init__(
        self, site: RehearsalSite, names: RehearsalNames, access: LoadAccess, ledger: LoadLedger, per_second: float,
        open_member: Callable[[GroupOptions, GroupListener], GroupReader],
    ) -> None:  # fmt: skip
        topics = [*names.topics.values()]
        self._ledger = ledger
        self._producers = [
            SyntheticProducer(
                f"p{number}", lambda: site.address("producer_proxy"), access, topics, per_second / PRODUCERS, ledger
            )
            for number in range(PRODUCERS)
        ]
        is_double = names.plan.recipe == DOUBLE_READ
        groups = [*names.groups.values()] if is_double else [names.readers]
        self._consumers = {
            group: SyntheticConsumer(group, lambda: site.address("consumer_proxy"), access, group) for group in groups
        }
        self._members = {
            group: KafkaMember(f"{group} on Kafka", open_member, group, topics) for group in groups if is_double
        }

    @property
    def consumers(self) -> int:
        return len(self._consumers) + len(self._members)

    def start(self) -> None:
        for each in self._everyone():
            each.start()

    def leave_kafka(self) -> None:
        """End the members on Kafka: they leave their groups."""
        _end([*self._members.values()])

    def stop_sending(self) -> None:
        _end(self._producers)

    def wait_received(self) -> bool:
        """Whether every group gets all that was answered OK, within DRAINED_S_MAX."""
        wanted, deadline = self._ledger.answered, time.monotonic() + DRAINED_S_MAX
        while any(not wanted <= {each for ids in rows.values() for each in ids} for rows in self.received().values()):
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S)
        return True

    def received(self) -> dict[str, Mapping[str, Sequence[str]]]:
        """By group: the ids that each of its consumers got, in the order of arrival."""
        found: dict[str, Mapping[str, Sequence[str]]] = {}
        for group, consumer in self._consumers.items():
            member = self._members.get(group)
            found[group] = {"proxy": [*consumer.found], "kafka": [*member.found] if member is not None else []}
        return found

    def stop(self) -> None:
        """End all threads."""
        _end(self._everyone())

    def _everyone(self) -> list[LoadThread]:
        return [*self._producers, *self._consumers.values(), *self._members.values()]


def _end(threads: Sequence[LoadThread]) -> None:
    for each in threads:
        each.ask_to_stop()
    for each in threads:
        each.join()

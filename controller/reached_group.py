"""A broker group with replicas as an operator's request sees it: the record, the registered brokers, one report of each."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from common.address import engine_address
from common.cluster.coordination import Coordination, Registration
from common.cluster.group_record import GroupRecord
from common.cluster.reports import BrokerReport, BrokerView
from common.config.errors import EntryNotFound
from engine.client.controller_link import ControllerLink, RefusedRecord
from engine.link.errors import LinkError

REACH_S = 1.5


@dataclass
class ReplicaGroup:
    """One group at one moment.

    Attributes:
        version, record: 0 and None: it has no record yet.
        links: to the brokers that have reported; open as long as the group is used.
        faults: why the others have not.
    """

    name: str
    version: int
    record: GroupRecord | None
    brokers: Mapping[str, Registration]
    reports: dict[str, BrokerReport] = field(default_factory=dict)
    links: dict[str, ControllerLink] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    @property
    def views(self) -> dict[str, BrokerView]:
        """As the decision takes them."""
        return {name: BrokerView(each.incarnation, self.reports.get(name)) for name, each in self.brokers.items()}

    @property
    def names(self) -> list[str]:
        """All brokers that are registered or in the record, the master first."""
        record = self.record
        members = {} if record is None else {**record.in_sync, **record.joining, **record.before}
        return sorted({*members, *self.brokers}, key=lambda name: (record is None or name != record.master, name))

    def role(self, name: str) -> str:
        """Of one broker, in one or two words."""
        registered = self.brokers.get(name)
        if registered is None:
            return "away"
        if self.record is None:
            return "waiting"
        for role, members in (("in sync", self.record.in_sync), ("joining", self.record.joining)):
            if members.get(name) == registered.incarnation:
                return "master" if name == self.record.master else role
        return "following"


def look_at(coordination: Coordination, name: str) -> ReplicaGroup:
    """The group without reports. Raises EntryNotFound when there is none of that name; StoreUnavailable."""
    found, brokers = coordination.record(name), coordination.brokers(name)
    if found is None and not brokers:
        known = ", ".join(coordination.groups()) or "none"
        raise EntryNotFound(f"broker group {name}: no replicas were ever registered (groups with replicas: {known})")
    version, record = (found.version, found.record) if found is not None else (0, None)
    return ReplicaGroup(name, version, record, brokers)


@contextmanager
def reached(coordination: Coordination, name: str, key: bytes) -> Iterator[ReplicaGroup]:
    """The group with a report of each broker that answers in REACH_S. Raises as `look_at`."""
    group = look_at(coordination, name)
    with ExitStack() as links, ThreadPoolExecutor(max(1, len(group.brokers))) as pool:

        def ask(broker: str) -> None:
            try:
                address = engine_address(group.brokers[broker].address)
                link = links.enter_context(ControllerLink(address, key, timeout_s=REACH_S))
                group.reports[broker] = next_report(link)
                group.links[broker] = link
            except (OSError, LinkError) as error:
                group.faults[broker] = f"no answer ({error})"

        list(pool.map(ask, group.brokers))
        yield group


def next_report(link: ControllerLink) -> BrokerReport:
    """Raises OSError, LinkError; also when the broker refuses a record."""
    found = link.receive(REACH_S)
    if isinstance(found, RefusedRecord):
        raise LinkError(found.sentence)
    return found

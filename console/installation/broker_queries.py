"""Queries to the engines. What one engine does not answer is a sentence beside the answers of the others."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

from common.config.view import ConfigView
from common.contract import Code
from common.placement import PlacedTopics, Placement, topic_hash
from engine.client.admin import AdminClient, AdminError
from engine.client.joined import JoinedLink, rows_of_queues
from engine.link.errors import LinkError

Address = tuple[str, int]
TIMEOUT_S = 3.0
LOOK_UP_TIMEOUT_S = 20.0
GROUPS_MAX = 200
NO_GROUP = "No broker group is known to the console: start it with --engine, or see broker-group add."
NOT_HERE = (Code.UNKNOWN_TOPIC, Code.UNKNOWN_GROUP)


class BrokerLinks(NamedTuple):
    """Links to the leading brokers by broker group, and sentences about those without one."""

    links: dict[str, AdminClient]
    faults: list[str]


class Answers(NamedTuple):
    """Rows, and sentences about what is missing among them."""

    rows: list[dict[str, Any]]
    faults: list[str]


class BrokerState(NamedTuple):
    """One broker. `status` is {} where it does not answer; `fault` says why."""

    group: str
    address: str
    role: str
    status: dict[str, Any]
    fault: str


class BrokerQueries:
    """
    Args:
        admin_key: of the engines' admin role; b"": the console may not ask them.
        brokers: addresses of the only broker group; empty: the configuration names the groups.
    """

    def __init__(self, view: ConfigView, admin_key: bytes, brokers: Sequence[Address] = ()) -> None:
        self._view, self._key, self._brokers = view, admin_key, tuple(brokers)

    def places(self) -> dict[str, tuple[Address, ...]]:
        """The brokers of each broker group."""
        if self._brokers:
            return {"main": self._brokers}
        return {group.name: group.addresses for group in self._view.broker_groups()}

    @property
    def placed_topics(self) -> PlacedTopics:
        """The topics that are placed on some of the broker groups."""
        return self._view.placed_topics

    def placement(self) -> Placement:
        """The homes of queues among `places`."""
        return Placement(list(self.places()), self.placed_topics)

    def leader(self) -> Address | None:
        """The broker that leads the only broker group, or its first one; None: the configuration names the groups."""
        for address in self._brokers if len(self._brokers) > 1 else ():
            with suppress(OSError, LinkError), AdminClient(address, self._key, timeout_s=TIMEOUT_S) as link:
                if link.hello.leads:
                    return address
        return self._brokers[0] if self._brokers else None

    @contextmanager
    def open(self, timeout_s: float = TIMEOUT_S) -> Iterator[BrokerLinks]:
        """Links to the leading broker of each group, for one request of a page."""
        with ExitStack() as held:
            links, faults = {}, []
            for name, addresses in self.places().items():
                try:
                    links[name] = held.enter_context(self._leading(addresses, timeout_s))
                except (OSError, LinkError) as error:
                    faults.append(f"{_engine(name)} does not answer: {error}")
            if not links and not faults:
                faults = [NO_GROUP]
            yield BrokerLinks(links, faults)

    def _leading(self, addresses: Sequence[Address], timeout_s: float) -> AdminClient:
        """The leading broker's link; the first one that answers where none says that it leads."""
        if not self._key:
            raise LinkError("the console has no admin key: start it with --admin-key")
        spare: AdminClient | None = None
        last: Exception | None = None
        for address in addresses:
            try:
                link = AdminClient(address, self._key, timeout_s=timeout_s)
            except (OSError, LinkError) as error:
                last = error
                continue
            if link.hello.leads:
                if spare is not None:
                    spare.close()
                return link
            if spare is None:
                spare = link
            else:
                link.close()
        if spare is None:
            raise LinkError(str(last)) from last
        return spare

    def ask(self, opened: BrokerLinks, verb: str, rows: str, topic: str | None = None, **options: Any) -> Answers:
        """Rows of one verb from all engines, each queue's from its home."""
        found: dict[str, list[dict[str, Any]]] = {}
        faults = list(opened.faults)
        for name, link in opened.links.items():
            try:
                found[name] = link.ask(verb, topic=topic, **options)[rows]
            except AdminError as error:
                if error.code not in NOT_HERE:
                    faults.append(f"{_engine(name)}: {error}")
            except (OSError, LinkError) as error:
                faults.append(f"{_engine(name)}: {error}")
        return Answers(rows_of_queues(found, list(self.places()), topic, self.placed_topics) if found else [], faults)

    def home(self, topic: str, queue: int) -> str:
        """The broker group that has the queue. Raises LinkError when the console knows none."""
        names = list(self.places())
        if not names:
            raise LinkError(NO_GROUP)
        return names[Placement(names, self.placed_topics).home(topic_hash(topic.encode()), queue)]

    def groups(self, opened: BrokerLinks, prefix: str = "", after: str = "", limit: int = GROUPS_MAX) -> list[str]:
        """Groups that have pulled from one of the engines, by name."""
        found: set[str] = set()
        for link in opened.links.values():
            try:
                found.update(link.ask("groups", prefix=prefix, after=after, limit=limit)["groups"])
            except (OSError, LinkError, AdminError):
                continue  # the rows of the other engines say what is missing
        return sorted(found)[:limit]

    @contextmanager
    def joined(self) -> Iterator[AdminClient | JoinedLink]:
        """All engines as one, for look-ups. Raises LinkError when one is missing: an answer would look complete."""
        with self.open(LOOK_UP_TIMEOUT_S) as opened:
            if opened.faults:
                raise LinkError(" ".join(opened.faults))
            yield (
                JoinedLink(opened.links, self.placed_topics)
                if len(opened.links) > 1
                else next(iter(opened.links.values()))
            )

    @contextmanager
    def complete(self, timeout_s: float = LOOK_UP_TIMEOUT_S) -> Iterator[dict[str, AdminClient]]:
        """Links to all engines by broker group, for changes. Raises LinkError when one is missing; nothing was changed."""
        with self.open(timeout_s) as opened:
            if opened.faults:
                raise LinkError(" ".join(opened.faults))
            yield opened.links

    def states(self) -> list[BrokerState]:
        """Every broker of every group, as it describes itself."""
        return [self._state(name, each) for name, addresses in self.places().items() for each in addresses]

    def _state(self, group: str, address: Address) -> BrokerState:
        shown = f"{address[0]}:{address[1]}"
        if not self._key:
            return BrokerState(group, shown, "unknown", {}, "the console has no admin key")
        try:
            with AdminClient(address, self._key, timeout_s=TIMEOUT_S) as link:
                role = "leads" if link.hello.leads else "follows"
                return BrokerState(group, shown, role, link.ask("status"), "")
        except AdminError as error:
            return BrokerState(group, shown, role, {}, "" if role == "follows" else str(error))
        except (OSError, LinkError) as error:
            return BrokerState(group, shown, "no answer", {}, str(error))


def _engine(group: str) -> str:
    return "The engine" if group == "main" else f"The engine of {group}"

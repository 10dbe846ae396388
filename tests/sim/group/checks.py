"""Checks over all brokers at each turn, and of their logs at the end.

C2: one broker confirms per epoch. C3 and C4: what is confirmed is on all in-sync members of the newest record, and below
the start of every later epoch. C8: the files of all replicas are equal.
"""

import re
from typing import TYPE_CHECKING

from engine.broker.life import BrokerLife
from engine.errors import CorruptionError
from engine.log.format import SEGMENT_HEADER_SIZE, split_records
from tests.sim.group.broker import DIRECTORY, GROUP, Broker
from tests.sim.group.invariants import Invariants, history_of
from tests.sim.group.ledger import Place
from tests.sim.sent import Broken

if TYPE_CHECKING:
    from tests.sim.group.cluster import Cluster

SEGMENT = re.compile(rf"{DIRECTORY}/log/(\d{{20}})\.seg$")

FETCH_MS, FETCHES_MAX = 20, 1_000
"""Time in which cold bytes are fetched; how often the check waits for them."""


class Checks:
    """
    Attributes:
        confirmed: the greatest position that any broker has shown as confirmed, and that a batch ends at. A start
            leaves out a last segment that has only its header, and the log goes on at the end of the one before.
        confirmers: name and incarnation of the broker that has confirmed something, by epoch.
        states: changes of the group's record that were seen: (state before, state after).
    """

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self.invariants = Invariants(cluster)
        self.confirmed = 0
        self.confirmers: dict[int, tuple[str, int]] = {}
        self.states: dict[tuple[str, str], int] = {}
        self._shown: dict[BrokerLife, int] = {}
        self._epochs: dict[BrokerLife, int] = {}
        self._state = ""
        self._master = ""

    # -- events

    def turn(self, broker: Broker) -> None:
        """A broker's turn has ended."""
        life = None if broker.core is None else broker.core.life
        if life is None:
            return
        self.invariants.turn(broker, life)
        if broker.has_new_link:
            broker.has_new_link = False
            self.invariants.links(broker)
        if life.lead_at is None:
            return
        epoch = life.group.epoch
        if self._epochs.get(life, 0) != epoch:
            self._epochs[life] = epoch
            self._begins(broker, life, epoch)
        shown = life.hold.confirmed
        if shown > self._shown.get(life, 0):
            self._shown[life] = shown
            self._confirms(broker, life, epoch, shown)

    def _begins(self, broker: Broker, life: BrokerLife, epoch: int) -> None:
        self._cluster.world.note(broker.name, "leads", epoch, life.store.end_position)
        self._cluster.faulted.ends_ms.append(self._cluster.world.now_ms)
        self.invariants.begins(broker, life)
        start = max((each.start for each in history_of(broker, life).starts if each.epoch == epoch), default=0)
        if start < self.confirmed and not self._cluster.faulted.cut:
            raise Broken(f"broker {broker.name} begins epoch {epoch} at {start}, and {self.confirmed} was confirmed")

    def _confirms(self, broker: Broker, life: BrokerLife, epoch: int, position: int) -> None:
        assert broker.core is not None
        own = broker.name, broker.core.incarnations.present
        first = self.confirmers.setdefault(epoch, own)
        if first != own:
            raise Broken(f"epoch {epoch}: brokers {first[0]} and {own[0]} both confirm")
        if life.store.segments.at(position - SEGMENT_HEADER_SIZE) is None:  # else only the header of a new segment
            self.confirmed = max(self.confirmed, position)
        self.invariants.confirms(broker, life, position)
        if position > life.store.end_position:
            raise Broken(f"broker {broker.name} confirms {position}, and its log ends at {life.store.end_position}")
        found = self._cluster.server.record(GROUP)
        for name, incarnation in {} if found is None else found.record.in_sync.items():
            core = self._cluster.brokers[name].core
            if core is None or core.incarnations.present != incarnation or core.life is None:
                continue
            end = core.life.store.end_position
            if end < position:
                raise Broken(f"epoch {epoch}: broker {broker.name} confirms {position}, and {name}, in sync, has {end}")

    def leaves(self, broker: Broker, op: int, code: int, payload: bytes, end: int) -> None:
        """A frame leaves a broker. `end`: of the log when it was made, if it is held; else 0."""
        self.invariants.leaves(broker, op, code, payload, end)

    def power_cut(self, broker: Broker) -> None:
        """A machine has lost power."""
        self._cluster.faulted.cut.add(broker.name)

    def ended(self, broker: Broker) -> None:
        """A process has ended."""
        self._cluster.faulted.ends_ms.append(self._cluster.world.now_ms)

    def record_changed(self) -> None:
        """The record of the group is another one."""
        found = self._cluster.server.record(GROUP)
        if found is None:
            return
        self.invariants.record_changed(found.version, found.record)
        edge = self._state, found.record.state.value
        self.states[edge] = self.states.get(edge, 0) + 1
        self._state = found.record.state.value
        self._cluster.world.note("record", found.version, found.record.epoch, self._state, found.record.reason)

    # -- the end

    def check_equal(self) -> None:
        """The files of all brokers have the same bytes."""
        found = {name: _segments(broker) for name, broker in self._cluster.brokers.items()}
        (first, bytes_of_first), *others = found.items()
        for name, segments in others:
            if segments == bytes_of_first:
                continue
            for base in sorted({*segments, *bytes_of_first}):
                one, other = bytes_of_first.get(base, b""), segments.get(base, b"")
                if one != other:
                    at = next(
                        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
                        min(len(one), len(other)),
                    )
                    raise Broken(f"the logs of {first} and {name} differ from position {base + at} on")

    def check_progress(self, broker: Broker) -> None:
        """The log has the progress of the group, if something was acknowledged that no power cut can have taken."""
        assert broker.core is not None and broker.core.life is not None
        has_any = any(key.startswith(b"greaders") for key, _ in broker.core.life.store.progress())
        if self._cluster.ledger.done_ms and not self._cluster.faulted.cut and not has_any:
            raise Broken("deliveries were acknowledged, and the log has no progress of the group")

    def messages(self, broker: Broker) -> dict[Place, bytes]:
        """All messages of a broker's log."""
        assert broker.core is not None and broker.core.life is not None
        store, found, waits = broker.core.life.store, {}, FETCHES_MAX
        for topic in store.topics():
            for queue in range(topic.queues):
                offset, end = store.bounds(topic.id, queue)
                while offset < end:
                    try:
                        pieces = store.read(topic.id, queue, offset, 1000, 1 << 20)
                    except CorruptionError as damage:
                        if damage.next_offset is None or not self._cluster.faulted.cut:
                            raise Broken(f"broker={broker.name} topic={topic.name}: {damage}") from damage
                        offset = max(damage.next_offset, offset + 1)
                        continue
                    if not pieces and waits and store.is_fetching(topic.id, queue):
                        waits -= 1
                        self._cluster.world.run(FETCH_MS)
                        continue
                    if not pieces:
                        raise Broken(
                            f"broker={broker.name} topic={topic.name}: nothing can be read at {offset} of {end}"
                        )
                    for piece in pieces:
                        for number, message in enumerate(split_records(piece.records)):
                            found[topic.name, queue, piece.first_offset + number] = bytes(message)
                        offset = piece.first_offset + piece.count
        return found


def _segments(broker: Broker) -> dict[int, bytes]:
    assert broker.core is not None and broker.core.life is not None
    end = broker.core.life.store.end_position
    return {
        int(match[1]): bytes(content.seen[: max(0, end - int(match[1]))]).rstrip(b"\0")
        for path, content in broker.env.files.items()
        if (match := SEGMENT.match(path)) and int(match[1]) < end
    }

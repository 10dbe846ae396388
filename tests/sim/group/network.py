"""Connections between simulated processes, as TCP makes them.

A direction keeps its frames in order and doubles none. They are late by a few milliseconds, or by much on a slow
network. A direction that is cut keeps them: once it is healed they arrive, or the connection breaks and all of them are
lost. The end of a process is told to its peers in order, or with the loss of what was under way; a power cut is told to
none of them before the machine runs again. Doubled and reordered requests come from those who send again over another
connection.
"""

import zlib
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from engine.link import layout

if TYPE_CHECKING:
    from tests.sim.group.process import Process
    from tests.sim.world import World

DIAL_MS = 1_000
"""Time after which a dialled address that does not answer counts as unreachable."""
AGAIN_MS_MAX = 200
"""Time until the kernel sends again what a cut has kept."""
BREAK_SHARE = 0.4
"""Share of the connections that a cut breaks for good."""
LOSS_SHARE = 0.3
"""Share of the connections of a killed process whose last frames are lost with it."""
END = b""


class End:
    """One end of a connection, held by one start of a process.

    Attributes:
        on_frame: called with each frame; on_closed: called once the other end has closed, or the network has.
    """

    def __init__(self, network: "Network", process: "Process") -> None:
        self.network, self.process, self.number = network, process, process.number
        self.other: End
        self.is_open = True
        self.on_frame: Callable[[bytes], None] = lambda frame: None
        self.on_closed: Callable[[], None] = lambda: None
        self.under_way: deque[tuple[int, bytes]] = deque()  # to this end
        self.due_ms = 0
        self.arrive = partial(network.arrive, self)
        self.queued_ms: dict[int, int] = {}  # of a broker: when answers were made, by request id
        self.is_kept = False  # a cut keeps what is under way to this end
        self.is_broken = False  # nothing arrives any more, though the process may not have learnt it yet

    def send(self, frames: bytes) -> None:
        """Send whole frames. A closed end sends nothing."""
        if self.is_open:
            self.network.transmit(self, frames)

    def close(self) -> None:
        """Close; the other end learns it after all that was sent."""
        if self.is_open:
            self.is_open = False
            self.network.forget(self)
            self.network.transmit(self, END)

    def lost(self) -> None:
        """The kernel closes this end: the process is told."""
        if self.is_open:
            self.is_open = False
            self.network.forget(self)
            self.process.run(self.number, self.on_closed)


class Network:
    """
    Attributes:
        slow_ms: longest time of a frame on its way.
        cuts: directions that are cut now: (from, to).
        frames: number of frames that have arrived.
    """

    def __init__(self, world: "World") -> None:
        self.world = world
        self.random = world.random_of("network")
        self.slow_ms = 2
        self.cuts: dict[tuple[str, str], int] = {}
        self.processes: dict[str, Process] = {}
        self.ends: dict[End, None] = {}
        self.frames = 0

    def is_cut(self, source: "Process", target: "Process") -> bool:
        """Whether nothing arrives in this direction."""
        return (source.name, target.name) in self.cuts

    # -- opening

    def dial(self, process: "Process", target: str, opened: Callable[[End], None], refused: Callable[[], None]) -> None:
        """Connect to a process by its name; one of the two is called in the dialling process."""
        number = process.number

        def arrive() -> None:
            other = self.processes.get(target)
            if other is None or not other.has_power or self.is_cut(process, other) or self.is_cut(other, process):
                self.world.after(DIAL_MS, lambda: process.run(number, refused))
            elif not other.is_up:
                self.world.after(self._latency_ms(), lambda: process.run(number, refused))
            elif process.number == number:
                self._connect(process, other, opened)

        self.world.after(self._latency_ms(), arrive)

    def _connect(self, process: "Process", other: "Process", opened: Callable[[End], None]) -> None:
        near, far = End(self, process), End(self, other)
        near.other, far.other = far, near
        self.ends[near] = self.ends[far] = None
        other.run(other.number, lambda: other.accept(far))
        self.world.after(self._latency_ms(), lambda: process.run(near.number, lambda: opened(near)))

    # -- frames

    def transmit(self, source: End, frames: bytes) -> None:
        """Bring frames to the other end."""
        target, world = source.other, self.world
        if target.is_broken:
            return
        due_ms = world.now_ms + self._latency_ms()
        if due_ms > target.due_ms:
            target.due_ms = due_ms
        target.under_way.append((target.due_ms, frames))
        world.at(target.due_ms, target.arrive)

    def _latency_ms(self) -> int:
        return int(self.random.random() * (self.slow_ms + 1))

    def arrive(self, target: End) -> None:
        """Deliver what is due; each item has its own call, which may find that an earlier one has taken it."""
        while target.under_way and target.under_way[0][0] <= self.world.now_ms:
            if not target.is_open or not target.process.has_power:
                target.under_way.clear()
                return
            if self.is_cut(target.other.process, target.process):
                target.is_kept = True
                return
            _, frames = target.under_way.popleft()
            self._deliver(target, frames)

    def _deliver(self, target: End, frames: bytes) -> None:
        self.frames += 1
        names = target.other.process.name, target.process.name
        if frames == END:
            self.world.note(*names, "end")
            target.lost()
            return
        self.world.note(*names, frames[4], len(frames), zlib.crc32(frames))

        def take() -> None:
            if target.is_open:
                target.on_frame(frames)

        target.process.run(target.number, take)

    # -- faults

    def heal(self, pairs: list[tuple[str, str]]) -> None:
        """End cuts: what they have kept goes on, or its connection breaks."""
        for pair in pairs:
            left = self.cuts.get(pair, 1) - 1
            if left > 0:
                self.cuts[pair] = left
            else:
                self.cuts.pop(pair, None)
        for end in list(self.ends):
            if end.is_kept and end.is_open and not self.is_cut(end.other.process, end.process):
                end.is_kept = False
                if self.random.random() < BREAK_SHARE:
                    self.break_connection(end)
                else:
                    self._resume(end)

    def _resume(self, end: End) -> None:
        end.due_ms = max(end.due_ms, self.world.now_ms + self.random.randint(0, AGAIN_MS_MAX))
        end.under_way = deque((end.due_ms, frames) for _, frames in end.under_way)
        self.world.at(end.due_ms, end.arrive)

    def cut(self, pairs: list[tuple[str, str]]) -> None:
        """Begin cuts."""
        for pair in pairs:
            self.cuts[pair] = self.cuts.get(pair, 0) + 1

    def break_connection(self, end: End) -> None:
        """End a connection from within the network: what is under way is lost."""
        for each in (end, end.other):
            each.under_way.clear()
            each.is_broken = True
            self.world.after(self._latency_ms(), each.lost)

    def break_between(self, one: str, other: str) -> int:
        """Break all connections between two processes; returns their number."""
        found = [end for end in self.ends if (end.process.name, end.other.process.name) == (one, other)]
        for end in found:
            self.break_connection(end)
        return len(found)

    def break_one_side(self, one: str, other: str) -> list[End]:
        """One process loses its connections to another one, which does not learn it. What it has sent still arrives.

        Returns the ends that stay.
        """
        found = [end for end in self.ends if (end.process.name, end.other.process.name) == (one, other)]
        for end in found:
            end.under_way.clear()
            end.lost()
        return [end.other for end in found]

    def process_ended(self, process: "Process", *, is_silent: bool) -> None:
        """Close the ends of a process. Silent: its peers learn nothing before its machine runs again."""
        for end in [end for end in self.ends if end.process is process]:
            end.is_open = False
            self.forget(end)
            end.under_way.clear()
            if not is_silent:
                if self.random.random() < LOSS_SHARE:
                    end.other.under_way.clear()
                self.transmit(end, END)

    def machine_started(self, process: "Process") -> None:
        """Its kernel resets the connections that it does not know."""
        for end in [end for end in self.ends if end.other.process is process and not end.other.is_open]:
            self.world.after(self.random.randint(0, AGAIN_MS_MAX), end.lost)

    def forget(self, end: End) -> None:
        """The end is closed."""
        self.ends.pop(end, None)


def frames_of(data: bytes) -> list[bytes]:
    """The single frames of bytes that were sent together."""
    found, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        found.append(data[at:end])
        at = end
    return found


def parsed(frame: bytes) -> tuple[int, int, int, bytes]:
    """(operation, request id, code, payload)."""
    _, op, _, code, request_id, _ = layout.HEADER.unpack_from(frame)
    return op, request_id, code, frame[layout.HEADER_SIZE :]


def framed(op: int, request_id: int, code: int, payload: bytes) -> bytes:
    """An answer as an engine sends it."""
    return layout.HEADER.pack(layout.HEADER_SIZE - 4 + len(payload), op, 0, code, request_id, 0) + payload

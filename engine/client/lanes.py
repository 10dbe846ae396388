"""Lanes of the same durability to all broker groups: choice of the lane that takes a message.

The reference of `_lanes`.
"""

from collections.abc import Callable, Sequence

from common.placement import ID_SLOTS
from engine.client.append_request import AppendRequest, Result, Waiter
from engine.client.destination import Destination
from engine.client.lane import Lane
from engine.link import layout

RECORD_MORE = 96  # maximum bytes of a record beside its message
ONLY_HOME = b"\0"  # number of the only broker

AppendMessage = tuple[Destination, bytes | int | None, bytes | None, bytes]
"""(destination, key, queue's number or None, assigned id or None, encoded message)."""


class Lanes:
    """See `_lanes.Lanes`."""

    def __init__(self, number: int, only: Lane | None = None) -> None:
        self.number, self.only, self.id_homes = number, only, bytes(ID_SLOTS)
        self.lanes: list[Lane | None] = [] if only is None else [only]

    def put(self, group: int, lane: Lane | None) -> None:
        """The lane of the group of this number, or None when the group has gone."""
        self.lanes += [None] * (group + 1 - len(self.lanes))
        self.lanes[group] = lane
        if lane is not None:
            lane.rescue = self.rescue

    @property
    def up(self) -> bool:
        return any(lane.up for lane in self.lanes if lane is not None)

    @property
    def appends(self) -> int:
        return sum(lane.appends for lane in self.lanes if lane is not None)

    @property
    def messages(self) -> int:
        return sum(lane.messages for lane in self.lanes if lane is not None)

    def lets_in(self, destination: Destination, key: bytes | int | None, taken: int, asked: int) -> bool:
        """See `_lanes.Lanes.lets_in`."""
        homes = destination.homes
        if homes is None:
            homes = ONLY_HOME
        elif isinstance(key, int):
            homes = homes[key : key + 1]
        elif key is not None:
            homes = homes[destination.queue_of_key(key) :][:1]
        else:
            homes = homes[destination.first_queue :]
        open_lanes = [lane for each in set(homes) if self._is_open(lane := self.lanes[each], destination) and lane]
        if not open_lanes:
            return True
        return any(lane.limit.admits(lane.waiting + taken, asked, destination.grade) for lane in open_lanes)

    def submit(self, messages: Sequence[AppendMessage], callback: Callable[[list[Result]], object]) -> Waiter | bool:
        """See `_lanes.Lanes.submit`."""
        waiter = Waiter(len(messages), callback)
        total = sum(len(encoded) + RECORD_MORE for _, _, _, encoded in messages)
        for index, (destination, key, id16, encoded) in enumerate(messages):
            queue = self._choose(destination, key)
            lane = None if queue is None else self._home(destination, queue)
            if lane is None or queue is None:
                waiter.results[index] = (layout.UNAVAILABLE, 0, -1)
            elif not lane.has_room(total):
                waiter.results[index] = (layout.OVERLOADED, 0, -1)
            else:
                body = bytes([0 if id16 is None else 1]) + (id16 or b"") + encoded
                lane.add(destination, queue, layout.U32.pack(len(body)) + body, waiter, index, key is not None)
                total -= len(encoded) + RECORD_MORE  # has_room() counts it from now on
        if waiter.waiting == 0:
            waiter.done()
            return False
        return waiter

    def ask(
        self, destination: Destination, key: bytes | int | None, id16: bytes | None, encoded: bytes,
        token_for: Callable[[int], bytes | None], callback: Callable[[list[Result]], object],
    ) -> None:  # fmt: skip
        """See `_lanes.Lanes.ask`."""
        waiter = Waiter(1, callback)
        queue = self._choose(destination, key)
        lane = None if queue is None else self._home(destination, queue)
        if lane is None or queue is None:
            callback([(layout.UNAVAILABLE, 0, -1)])
            return
        token = token_for(lane.group) if lane.has_room(len(encoded) + RECORD_MORE) else None
        if token is None:
            callback([(layout.OVERLOADED, 0, -1)])
            return
        flags = layout.HAS_TRAILER | (0 if id16 is None else layout.HAS_ID)
        body = bytes([flags]) + (id16 or b"") + encoded + token
        lane.add(destination, queue, layout.U32.pack(len(body)) + body, waiter, 0, True)

    def rescue(self, append: AppendRequest, group: int) -> None:
        """Move messages without a key to queues of other broker groups than this one.

        What none takes stays in the append.
        """
        for run in append.runs:
            for item in run.items:
                if item.bound or item.waiter is None or item.waiter.expired:
                    continue
                queue = self._choose(item.destination, None)
                lane = None if queue is None else self._home(item.destination, queue)
                if lane is None or queue is None or lane.group == group or not lane.has_room(len(item.record)):
                    continue
                lane.add(item.destination, queue, item.record, item.waiter, item.index, False)
                item.waiter = None
        append.forget_moved()

    def _home(self, destination: Destination, queue: int) -> Lane | None:
        if self.only is not None or destination.homes is None:
            return self.only
        return self.lanes[destination.homes[queue]]

    def _choose(self, destination: Destination, key: bytes | int | None) -> int | None:
        if isinstance(key, int):
            return key if self._is_open(self._home(destination, key), destination) else None
        if self.only is not None:
            number = self.only.append_number
            return destination.choose_queue(self.number, number, key) if self.only.up else None
        if key is not None:
            own = destination.queue_of_key(key)
            return own if self._is_open(self._home(destination, own), destination) else None
        append, sticky = destination.sticky.get(self.number, (0, destination.first_queue))
        lane = self._home(destination, sticky)
        is_filling = lane is not None and lane.share and lane.link is not None and append == lane.append_number
        if is_filling and lane is not None and lane.lets_in(1, destination.grade):
            return sticky
        queue = self._next_of(destination, False)
        if queue is None:
            queue = self._next_of(destination, True)
        if queue is not None:
            lane = self._home(destination, queue)
            destination.sticky[self.number] = (0 if lane is None else lane.append_number, queue)
        return queue

    def _next_of(self, destination: Destination, any_share: bool) -> int | None:
        for _ in range(destination.queues - destination.first_queue):
            queue = destination.next_queue
            destination.next_queue = destination.queue_after(queue)
            lane = self._home(destination, queue)
            if lane is None or not self._is_open(lane, destination):
                continue
            if any_share or (lane.lets_in(1, destination.grade) and lane.admits()):
                return queue
        return None

    @staticmethod
    def _is_open(lane: Lane | None, destination: Destination) -> bool:
        """Whether the lane takes a message of this topic that has nowhere else to go."""
        return lane is not None and lane.up and destination.id_at(lane.group) != 0

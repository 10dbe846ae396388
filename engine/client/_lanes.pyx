# cython: language_level=3, boundscheck=False, wraparound=False
"""Lanes of the same durability to all broker groups: choose the lane of each message, and another when it fails.

A message with a key has one queue, which has one home. One without a key takes the next queue whose home takes it. A
group that fails, or has enough waiting, only changes the order in which queues are taken. The reference is lanes.py.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from common.wire._walk cimport HAS_ID, HAS_KEY, Message, murmur2
from engine.client._append_request cimport MOVED, AppendItem, AppendRequest, AppendRun, Waiter
from engine.client._destination cimport Destination, queue_after, queue_of_key, topic_id_at
from engine.client._lane cimport Lane
from engine.link.constants cimport CODE_OVERLOADED, CODE_UNAVAILABLE

cdef enum:
    ID_SLOTS = 256                    # as in common/placement.py
    RECORD_MORE = 96                  # maximum bytes of a record beside its message

cdef bytes ONLY_HOME = b"\0"          # number of the only broker


cdef class CallbackWaiter(Waiter):
    """For the rare path: calls `callback([(code, queue, offset), …])` once, in a loop callback, unless it is withdrawn."""

    cdef list results
    cdef object callback

    def __init__(self, int count, callback):
        self.results = [None] * count
        self.callback = callback
        self.deadline = 1e18                # the caller has a timeout of its own

    cdef int result(self, uint32_t index, int code, uint32_t queue, int64_t offset) except -1:
        self.results[index] = (code, queue, offset)
        return 0

    cdef int done(self) except -1:
        self.callback(self.results)
        return 0

    def withdraw(self):
        """Wait no longer: what was not sent will not be. Returns the results so far; None: the message may be stored."""
        self.expired = True
        return self.results


cdef class Lanes:
    """
    Args:
        number: row of durability.LANES.
        only: the lane of the only broker; None: `put` says which there are, and destinations have homes.
    """

    def __init__(self, int number, Lane only=None):
        self.number, self.only, self.id_homes = number, only, bytes(ID_SLOTS)
        self.lanes = [] if only is None else [only]

    def put(self, int group, Lane lane):
        """The lane of the group of this number, or None when the group has gone."""
        self.lanes += [None] * (group + 1 - len(self.lanes))
        self.lanes[group] = lane
        if lane is not None:
            lane.rescue = self.rescue

    @property
    def up(self):
        """Whether any broker takes messages now."""
        cdef Lane lane
        for lane in self.lanes:
            if lane is not None and lane.is_up():
                return True
        return False

    @property
    def appends(self):
        """Appends sent so far by the present lanes."""
        return sum([lane.appends for lane in self.lanes if lane is not None])

    @property
    def messages(self):
        """Messages sent so far by the present lanes."""
        return sum([lane.messages for lane in self.lanes if lane is not None])

    def lets_in(self, Destination destination, key, uint64_t taken, uint64_t asked):
        """Whether `asked` messages of a topic may join what waits, after `taken` others of their call.

        Args:
            key: ties them to a queue, or is the queue's number; None: any will do.
        A broker that takes nothing sets no bound: `submit` reports its fault.
        """
        cdef Lane lane
        cdef bint is_crowded = False
        homes = destination.homes
        if homes is None:
            homes = ONLY_HOME
        elif type(key) is int:
            homes = homes[key:key + 1]
        elif key is not None:
            homes = homes[queue_of_key(destination, <bytes>key, len(key)):][:1]
        elif destination.first_queue:
            homes = homes[destination.first_queue:]
        for group in set(homes):
            lane = self.lanes[group]
            if takes(lane, destination):
                if lane.limit.lets_in(lane.waiting + taken, asked, destination.grade):
                    return True
                is_crowded = True
        return not is_crowded

    def submit(self, messages, callback):
        """Append (destination, key, queue's number or None, assigned id or None, encoded message) tuples; the rare
        path's entry.

        `callback([(code, queue, offset), …])` comes once: later in a loop callback, or at once when nothing was taken.
        UNAVAILABLE: no broker takes this message now; OVERLOADED: too much waits already. Neither is stored. Returns the
        waiter of what was taken, which can be withdrawn; False: nothing was.
        """
        cdef CallbackWaiter waiter = CallbackWaiter(len(messages), callback)
        cdef Destination destination
        cdef Lane lane
        cdef bytes encoded
        cdef size_t total = 0
        cdef Py_ssize_t found
        cdef uint32_t index = 0, queue
        for _, _, _, encoded in messages:
            total += len(encoded) + RECORD_MORE
        for destination, key, id16, encoded in messages:
            queue = self.bound_queue(destination, key)
            if queue == NO_QUEUE:
                waiter.results[index] = (CODE_UNAVAILABLE, 0, -1)
            else:
                lane = self.home(destination, queue)
                if lane.has_room(total):
                    lane.enter(waiter)
                    lane.add(destination, queue, NULL if id16 is None else <const unsigned char*><bytes>id16, encoded,
                             <uint32_t>len(encoded), NULL, key is not None, index)
                    if destination.tap is not None and type(key) is bytes:
                        found = encoded.find(<bytes>key)      # any bytes that are equal will do
                        if found >= 0:
                            lane.note_key(<uint32_t>found, <uint32_t>len(<bytes>key))
                    total -= len(encoded) + RECORD_MORE     # has_room() counts it from now on
                else:
                    waiter.results[index] = (CODE_OVERLOADED, 0, -1)
            index += 1
        if waiter.waiting == 0:
            waiter.done()
            return False
        return waiter

    def ask(self, Destination destination, key, id16, bytes encoded, token_for, callback):
        """As submit(), of one request: `token_for(group)` gives the message's trailer, or None when too many wait
        already.
        """
        cdef CallbackWaiter waiter = CallbackWaiter(1, callback)
        cdef uint32_t queue
        cdef Lane lane
        cdef bytes token
        queue = self.bound_queue(destination, key)
        if queue == NO_QUEUE:
            waiter.results[0] = (CODE_UNAVAILABLE, 0, -1)
            waiter.done()
            return
        lane = self.home(destination, queue)
        token = token_for(lane.group) if lane.has_room(len(encoded) + RECORD_MORE) else None
        if token is None:
            waiter.results[0] = (CODE_OVERLOADED, 0, -1)
            waiter.done()
            return
        lane.enter(waiter)
        lane.add(destination, queue, NULL if id16 is None else <const unsigned char*><bytes>id16, encoded,
                 <uint32_t>len(encoded), token, True, 0)

    def rescue(self, AppendRequest append, int group):
        """Move messages without a key to queues of other broker groups than this one. What none takes stays in the
        append.

        The loops follow the append's links: see the invariants in _append_request.pxd.
        """
        cdef Destination destination
        cdef Waiter waiter
        cdef Lane lane
        cdef AppendItem* item
        cdef AppendRun* run
        cdef uint32_t r, i, queue
        for r in range(append.run_count):
            run = &append.runs[r]
            i = run.head
            while i:
                item = &append.items[i - 1]
                i = item.next
                if item.bound or item.waiter == MOVED:
                    continue
                waiter = <Waiter>append.waiters[item.waiter]
                if waiter.expired:
                    continue
                destination = <Destination>append.destinations[run.destination - 1]
                queue = self.choose(destination, NULL, -1)
                lane = None if queue == NO_QUEUE else self.home(destination, queue)
                if lane is None or lane.group == group or not lane.has_room(item.size + RECORD_MORE):
                    continue
                lane.enter(waiter)
                lane.move(append, item, destination, topic_id_at(destination, lane.group), queue, waiter)
                item.waiter = MOVED
        append.forget_moved()

    cdef bint take_all(self, size_t bytes):
        """Whether there is room for this many bytes at each lane that is up."""
        cdef Lane lane
        if self.only is not None:
            return self.only.is_up() and self.only.has_room(bytes)
        for lane in self.lanes:
            if lane is not None and lane.is_up() and not lane.has_room(bytes):
                return False
        return True

    cdef Lane home(self, Destination destination, uint32_t queue):
        """The lane that holds the queue."""
        if self.only is not None:
            return self.only
        return <Lane>self.lanes[<unsigned char>destination.homes[queue]]

    cdef uint32_t choose(self, Destination destination, const unsigned char* key, Py_ssize_t key_size) except? 0:
        """The queue for a message whose lane takes it now, or NO_QUEUE."""
        cdef uint32_t queue
        cdef Lane lane
        if self.only is not None:
            return self.only.choose_queue(destination, key, key_size) if self.only.is_up() else NO_QUEUE
        if key_size >= 0:
            queue = queue_of_key(destination, key, key_size)
            lane = self.home(destination, queue)
            return queue if takes(lane, destination) else NO_QUEUE
        queue = destination.sticky_queue[self.number]
        lane = self.home(destination, queue)
        if lane is not None and lane.share and lane.link is not None and lane.lets_in(1, destination.grade) and \
                destination.sticky_append[self.number] == <uint32_t>lane.append_number:
            return queue
        queue = self.next_of(destination, False)
        if queue == NO_QUEUE:
            queue = self.next_of(destination, True)
        if queue != NO_QUEUE:
            lane = self.home(destination, queue)
            destination.sticky_queue[self.number] = queue
            destination.sticky_append[self.number] = <uint32_t>lane.append_number
        return queue

    cdef uint32_t choose_for(self, Destination destination, const unsigned char* frame, const Message* message) except? 0:
        """choose() by the message's key, or by its own id where ids are checked: a copy must reach the home of the
        first one.

        NO_QUEUE also where the queue is not at the id's home, which has to be asked first: the rare path does that.
        """
        cdef uint32_t queue
        cdef unsigned char home
        if message.flags & HAS_ID and destination.id_window_ms:
            home = self.home_of_id(frame + message.id_start, message.id_size)
            if message.flags & HAS_KEY:
                queue = queue_of_key(destination, frame + message.key_start, message.key_size)
            else:
                queue = self.queue_of_id(destination, frame + message.id_start, message.id_size)
            if <unsigned char>destination.homes[queue] != home:
                return NO_QUEUE
            return queue if takes(self.home(destination, queue), destination) else NO_QUEUE
        if message.flags & HAS_KEY:
            return self.choose(destination, frame + message.key_start, message.key_size)
        return self.choose(destination, NULL, -1)

    cdef unsigned char home_of_id(self, const unsigned char* shown, Py_ssize_t size) noexcept:
        """The group that decides about an id; see common/placement.py."""
        return (<const unsigned char*>self.id_homes)[(murmur2(shown, size) & 0x7FFFFFFF) % ID_SLOTS]

    cdef uint32_t queue_of_id(self, Destination destination, const unsigned char* shown, Py_ssize_t size) noexcept:
        """The queue of a checked id; see common/placement.py. Destinations have a home per queue here."""
        cdef const unsigned char* homes = destination.homes
        cdef const unsigned char* id_homes = self.id_homes
        cdef uint32_t hashed = murmur2(shown, size) & 0x7FFFFFFF
        cdef unsigned char home = id_homes[hashed % ID_SLOTS]
        cdef uint32_t count = destination.queues - destination.first_queue
        cdef uint32_t first = destination.first_queue + hashed // ID_SLOTS % count
        cdef uint32_t queue = first
        for _ in range(count):
            if homes[queue] == home:
                return queue
            queue = queue_after(destination, queue)
        return first

    cdef uint32_t bound_queue(self, Destination destination, key) except? 0:
        """choose() for the rare path: by a key, or the queue of that number."""
        if key is None:
            return self.choose(destination, NULL, -1)
        if type(key) is int:
            return key if takes(self.home(destination, key), destination) else NO_QUEUE
        return self.choose(destination, <bytes>key, len(key))

    cdef uint32_t next_of(self, Destination destination, bint any_share):
        """The next queue whose lane takes a message that could go elsewhere; with `any_share` also one that takes only
        what could not.
        """
        cdef uint32_t queue
        cdef Lane lane
        for _ in range(destination.queues - destination.first_queue):
            queue = destination.next_queue
            destination.next_queue = queue_after(destination, queue)
            lane = self.home(destination, queue)
            if takes(lane, destination) and (any_share or (lane.lets_in(1, destination.grade) and lane.admits())):
                return queue
        return NO_QUEUE


cdef bint takes(Lane lane, Destination destination):
    """Whether the lane takes a message of this topic that has nowhere else to go."""
    return lane is not None and lane.is_up() and topic_id_at(destination, lane.group) != 0

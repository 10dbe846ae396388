# cython: language_level=3, boundscheck=False, wraparound=False
"""Destinations of topics at the engine, and the bounded table of those in use. The reference is destination.py."""

cimport cython
from libc.stdint cimport uint32_t

from cpython.dict cimport PyDict_DelItem, PyDict_GetItem, PyDict_Next
from cpython.object cimport PyObject
from engine.client._durability cimport LANE_COUNT
from engine.link.constants cimport DURABILITY_MAX


@cython.no_gc                          # in no cycle; collecting over a million of them paused the proxy for 0.5 s
cdef class Destination:
    """A topic as its brokers know it. Made when the first message for it comes; void when a broker's log_id or epoch changes.

    Args:
        topic_id: the only broker's; with several broker groups they are in `ids`.
        durability: number of the topic's durability class.
        homes, ids: with several broker groups, the home of each queue and the topic id at each group; see
            _destination.pxd.
        first_queue: of those that take new messages.
    """

    def __init__(self, bytes name, uint32_t topic_id, uint32_t queues, unsigned char durability, uint32_t body_bytes_max,
                 uint32_t id_window_ms=0, bytes homes=None, bytes ids=None, uint32_t first_queue=0):
        cdef int lane
        self.name, self.topic_id, self.queues = name, topic_id, queues
        self.durability, self.body_bytes_max = durability, body_bytes_max
        self.id_window_ms = id_window_ms
        if not 1 <= durability <= DURABILITY_MAX:
            raise ValueError(f"durability class {durability}: use 1 to {DURABILITY_MAX}")
        # Native code reads homes[0..queues) and ids[home] without a check of its own.
        if homes is not None and (len(homes) != <Py_ssize_t>queues or len(ids) % 4 or max(homes) >= len(ids) // 4):
            raise ValueError("homes and ids: one home per queue, one topic id per home")
        self.homes, self.ids = homes, ids
        if first_queue and first_queue >= queues:
            raise ValueError(f"first queue {first_queue} of {queues}: one at least has to take messages")
        self.first_queue = self.next_queue = first_queue
        for lane in range(LANE_COUNT):
            self.sticky_queue[lane] = first_queue

    def queue_of_key(self, bytes key not None):
        """The queue of a key."""
        return queue_of_key(self, key, len(key))

    def with_tap(self, tap):
        """This destination if it has this tap, else a copy with it; None: without one."""
        cdef Destination made
        if self.tap is tap:
            return self
        made = Destination(
            self.name, self.topic_id, self.queues, self.durability, self.body_bytes_max, self.id_window_ms, self.homes, self.ids,
            self.first_queue,
        )
        made.meter, made.grade, made.made_ms, made.tap, made.is_doubled = self.meter, self.grade, self.made_ms, tap, self.is_doubled
        made.next_queue = self.next_queue
        return made


cdef class Destinations:
    """Destinations by name, at most `count_max`. A full table evicts one that was not used lately (the clock
    algorithm).

    The clock hand goes round the dict and spares each destination that was found since it passed. A destination costs
    about 200 bytes with a name of 20 characters, which is its key too.
    """

    def __init__(self, Py_ssize_t count_max):
        self.by_name, self.count_max = {}, count_max

    def __len__(self):
        return len(self.by_name)

    def get(self, bytes name):
        """The destination, or None."""
        return self.find(name, len(name))

    def put(self, Destination destination):
        """Keep the destination, in place of the one with the same name."""
        if destination.name not in self.by_name and len(self.by_name) >= self.count_max:
            self.make_room()
        self.by_name.pop(destination.name, None)        # or the key would be the old one's bytes
        self.by_name[destination.name] = destination

    def discard(self, bytes name):
        """Forget the destination, if it is there."""
        self.by_name.pop(name, None)

    def discard_id(self, int group, uint32_t topic_id):
        """Forget the destinations with that topic id at that broker group; returns their number. Searches all."""
        cdef Destination each
        found = []
        for name, destination in self.by_name.items():
            each = destination
            # Bounds: topic_id_at() reads `ids` without a check, and this destination may not have the group.
            if (each.ids is None or 4 * group < len(each.ids)) and topic_id_at(each, group) == topic_id:
                found.append(name)
        for name in found:
            del self.by_name[name]
        return len(found)

    def clear(self):
        self.by_name.clear()

    cdef Destination find(self, const unsigned char* name, Py_ssize_t size):
        cdef PyObject* found = PyDict_GetItem(self.by_name, name[:size])
        if found == NULL:
            return None
        (<Destination>found).used = True
        return <Destination>found

    cdef int make_room(self) except -1:
        """Evict one. Positions shift when the dict is resized, so the hand may pass some twice and some not: those only
        stay longer.
        """
        cdef PyObject* key
        cdef PyObject* value
        while True:
            if not PyDict_Next(self.by_name, &self.hand, &key, &value):
                self.hand = 0
            elif not (<Destination>value).used:
                return PyDict_DelItem(self.by_name, <object>key)
            else:
                (<Destination>value).used = False

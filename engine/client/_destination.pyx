# cython: language_level=3, boundscheck=False, wraparound=False
"""Where the messages of a topic go, and the bounded table of all topics in use."""

cimport cython
from libc.stdint cimport uint32_t

from cpython.dict cimport PyDict_DelItem, PyDict_GetItem, PyDict_Next
from cpython.object cimport PyObject


@cython.no_gc                          # it can be in no cycle, and walking a million of them stood the proxy still for half a second
cdef class Destination:
    """A topic as its brokers know it. Made when the first message for it comes; void when a broker's log_id changes.

    Args:
        topic_id: the only broker's; with several they are in `ids`.
        homes, ids: where there are several broker groups, each queue's and each group's topic id; see _batcher.pxd.
    """

    def __init__(self, bytes name, uint32_t topic_id, uint32_t queues, unsigned char durability, uint32_t body_bytes_max,
                 uint32_t id_window_ms=0, bytes homes=None, bytes ids=None):
        self.name, self.topic_id, self.queues = name, topic_id, queues
        self.durability, self.body_bytes_max = durability, body_bytes_max
        self.id_window_ms = id_window_ms
        if homes is not None and (len(homes) != <Py_ssize_t>queues or len(ids) % 4 or max(homes) >= len(ids) // 4):
            raise ValueError("a home for each queue, an id for each home")
        self.homes, self.ids = homes, ids


cdef class Destinations:
    """Destinations by name, at most `count_max`. When it is full, one that was not asked for lately makes room (the clock algorithm).

    A hand goes round the dict and spares whoever was found since it came by last. A destination costs about 200 bytes with a name of
    20 characters, which is its key too.
    """

    def __init__(self, Py_ssize_t count_max):
        self.by_name, self.count_max = {}, count_max

    def __len__(self):
        return len(self.by_name)

    def get(self, bytes name):
        """The destination, or None."""
        return self.find(name, len(name))

    def put(self, Destination destination):
        """Keep it, in place of the one of the same name."""
        if destination.name not in self.by_name and len(self.by_name) >= self.count_max:
            self.make_room()
        self.by_name.pop(destination.name, None)        # or the key would be the old one's bytes
        self.by_name[destination.name] = destination

    def discard(self, bytes name):
        """Forget it, if it is there."""
        self.by_name.pop(name, None)

    def clear(self):
        self.by_name.clear()

    cdef Destination find(self, const unsigned char* name, Py_ssize_t size):
        cdef PyObject* found = PyDict_GetItem(self.by_name, name[:size])
        if found == NULL:
            return None
        (<Destination>found).used = True
        return <Destination>found

    cdef int make_room(self) except -1:
        """Positions shift when the dict is laid out anew, so a turn of the hand may pass some twice and some not: they only live longer."""
        cdef PyObject* key
        cdef PyObject* value
        while True:
            if not PyDict_Next(self.by_name, &self.hand, &key, &value):
                self.hand = 0
            elif not (<Destination>value).used:
                return PyDict_DelItem(self.by_name, <object>key)
            else:
                (<Destination>value).used = False

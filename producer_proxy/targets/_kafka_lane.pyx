# cython: language_level=3, boundscheck=False, wraparound=False
"""Hot path to a Kafka cluster: the messages of all calls of a loop turn in one PRODUCE, without an object per message.

See docs/design/0040-kafka-natively.md; bytes: engine/link/produce.py. The reference is KafkaTarget.submit.
"""

from libc.stdint cimport int32_t, uint16_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from engine.link.constants cimport ASSIGNED_ID_SIZE, CODE_OK, CODE_TIMEOUT

import time

from engine.link.codes import OK
from engine.link.produce import PRODUCE_HEAD, PRODUCE_NAME, decode_produced

cdef enum:
    MESSAGE_HEAD = 16
    RESULT_SIZE = 16
    HAS_ID = 1
    ROOM_MIN = 65536
    REQUEST_BYTES = 1 << 22           # from which on further calls go into another request
    ROOM_KEPT = 1 << 22

cdef class ToldWaiter(Waiter):
    """A call whose refusals may have sentences of their own."""


cdef class HotProduce:
    """A request that the bridge has not answered: the native form of kafka.OpenProduce, for whole calls."""

    cdef readonly bint is_settled
    cdef readonly Py_ssize_t size
    cdef readonly double started
    cdef readonly uint32_t count
    cdef list waiters
    cdef str lost

    def read(self, int code, bytes payload):
        """An answer, for `settle`. Raises PayloadError."""
        return (payload, sentences_of(payload, self.count)) if code == OK else None

    def settle(self, tuple answer):
        """Give the calls the results of an answer; None: the link has broken."""
        cdef ToldWaiter waiter
        cdef uint32_t at = 0
        cdef bytes payload
        cdef dict sentences
        if self.is_settled:
            return
        if answer is None:
            self.settle_all(CODE_TIMEOUT, self.lost)
            return
        payload, sentences = answer
        self.is_settled = True
        for waiter in self.waiters:
            give(waiter, <const unsigned char*>PyBytes_AS_STRING(payload) + RESULT_SIZE * at, at, sentences)
            at += waiter.told_count
            waiter.done()

    def settle_all(self, int code, str sentence):
        """Give every message this code."""
        cdef ToldWaiter waiter
        cdef uint32_t each
        cdef bytes told = sentence.encode()
        if self.is_settled:
            return
        self.is_settled = True
        for waiter in self.waiters:
            for each in range(waiter.told_count):
                waiter.result(each, code, 0, -1)
            waiter.told = dict.fromkeys(range(waiter.told_count), told)
            waiter.done()

    def expire(self, double now):
        """Answer TIMEOUT to the calls whose deadline has passed; their messages may still be stored.

        Calls that have their results are answered, and may be other calls of their connections by now.
        """
        cdef ToldWaiter waiter
        if self.is_settled:
            return
        for waiter in self.waiters:
            if now > waiter.deadline and not waiter.expired:
                waiter.expired = True
                waiter.expire()


cdef dict sentences_of(bytes payload, uint32_t count):
    """Sentences of refusals by index. Checks that there is a result per message. Raises PayloadError."""
    if PyBytes_GET_SIZE(payload) == <Py_ssize_t>RESULT_SIZE * count:
        return {}
    found = decode_produced(payload, count)
    return {index: each.sentence.encode() for index, each in enumerate(found) if each.sentence}


cdef int give(ToldWaiter waiter, const unsigned char* results, uint32_t first, dict sentences) except -1:
    """Give a call its results, which begin at `results`; `sentences_of` has checked that all are there."""
    cdef uint32_t each, partition
    cdef uint16_t code
    cdef bytes told
    for each in range(waiter.told_count):
        memcpy(&code, results, 2)
        memcpy(&partition, results + 4, 4)
        waiter.result(each, code, partition, no_place() if code == CODE_OK else -1)
        if code != CODE_OK and sentences:
            told = sentences.get(first + each)
            if told is not None:
                waiter.told = waiter.told or {}
                waiter.told[each] = told
        results += RESULT_SIZE
    return 0


cdef class KafkaLane:
    """
    Args:
        target: the KafkaTarget: its `state` is asked for each call, `flush_soon` called with the first message of a
            turn, `flush_lane` when enough waits for a request.
        patience_ms: for the bridge. lost: the sentence of TIMEOUT when the link breaks.
    """

    def __init__(self, target, uint32_t patience_ms, str lost):
        self.target, self.patience_ms, self.lost = target, patience_ms, lost
        self.numbers, self.waiters = {}, []

    def __dealloc__(self):
        free(self.arena)

    @property
    def home(self):
        """The name of its cluster, as definitions have it."""
        return self.target.name

    @property
    def is_empty(self):
        return self.count == 0

    cdef int state(self) except -1:
        return self.target.state()

    cdef int join(self, ToldWaiter waiter, uint32_t count) except -1:
        """Enter a call, whose `count` messages are then added."""
        if self.used >= REQUEST_BYTES:
            self.target.flush_lane()
        if not self.waiters:
            self.target.flush_soon()
        waiter.told, waiter.told_count, waiter.expired = None, count, False
        self.waiters.append(waiter)
        return 0

    cdef int add(self, bytes topic, const unsigned char* id16, const unsigned char* message, uint32_t size) except -1:
        """Take one message of the call that joined last; its bytes are copied."""
        cdef uint32_t number, head = MESSAGE_HEAD + (ASSIGNED_ID_SIZE if id16 != NULL else 0)
        cdef int32_t partition = -1
        cdef unsigned char* out
        found = self.numbers.get(topic)
        if found is None:
            found = self.numbers[topic] = len(self.numbers)
        number = found
        self.make_room(head + size)
        out = self.arena + self.used
        memset(out, 0, MESSAGE_HEAD)
        memcpy(out, &number, 4)
        memcpy(out + 4, &partition, 4)
        memcpy(out + 8, &size, 4)
        if id16 != NULL:
            out[12] = HAS_ID
            memcpy(out + MESSAGE_HEAD, id16, ASSIGNED_ID_SIZE)
        memcpy(out + head, message, size)
        self.used += head + size
        self.count += 1
        return 0

    cdef int make_room(self, size_t more) except -1:
        cdef size_t wanted
        cdef unsigned char* grown
        if self.used + more <= self.room:
            return 0
        wanted = max(2 * self.room, self.used + more, <size_t>ROOM_MIN)
        grown = <unsigned char*>realloc(self.arena, wanted)
        if grown == NULL:
            raise MemoryError()
        self.arena, self.room = grown, wanted
        return 0

    def take(self, str cluster):
        """The waiting messages as (payload of PRODUCE, HotProduce)."""
        cdef HotProduce request = HotProduce.__new__(HotProduce)
        cdef list parts = [PRODUCE_HEAD.pack(self.patience_ms, self.count, len(self.numbers))]
        for name in (cluster.encode(), *self.numbers):
            parts += (PRODUCE_NAME.pack(len(name)), name)
        parts.append(PyBytes_FromStringAndSize(<char*>self.arena, self.used))
        request.waiters, request.count, request.size = self.waiters, self.count, self.used
        request.lost, request.started = self.lost, time.monotonic()
        self.waiters, self.numbers, self.count, self.used = [], {}, 0, 0
        if self.room > ROOM_KEPT:
            free(self.arena)
            self.arena, self.room = NULL, 0
        return b"".join(parts), request

# cython: language_level=3, boundscheck=False, wraparound=False
"""PRODUCE of batches of a tap, and its answer. The reference is engine/link/produce.py."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from engine.link.constants cimport ASSIGNED_ID_SIZE, RECORD_HAS_ID

from producer_proxy.journal._tapped_batch cimport TappedBatch, TappedEntry, TappedRun

cdef enum:
    PRODUCE_HEAD = 12
    PRODUCE_MESSAGE = 16
    PRODUCE_RESULT = 16
    PRODUCE_HAS_ID = 1


def encode_produce_of(list batches, str cluster, int patience_ms):
    """PRODUCE of all messages of these batches, each bound to the queue of its outcome; see engine/link/produce.py.

    Bounds: `made` has room for all records, whose sizes are those of the entries.
    """
    cdef TappedBatch batch
    cdef TappedRun* run
    cdef TappedEntry* entry
    cdef const unsigned char* raw
    cdef dict numbers = {}
    cdef list places, names = [cluster.encode()]
    cdef bytes name, made
    cdef size_t size = PRODUCE_HEAD
    cdef uint32_t count = 0, r, k, n, topic, message_size, patience = patience_ms
    cdef int32_t partition
    cdef uint16_t topic_count, name_size
    cdef unsigned char* out
    for batch in batches:
        count += batch.count
        for destination in batch.topics:
            if destination.name not in numbers:
                numbers[destination.name] = len(numbers)
                names.append(destination.name.encode())
        for n in range(batch.count):
            size += PRODUCE_MESSAGE + batch.entries[n].record_size - 1
    for name in names:
        size += 2 + len(name)
    made = PyBytes_FromStringAndSize(NULL, size)
    out = <unsigned char*>PyBytes_AS_STRING(made)
    topic_count = <uint16_t>len(numbers)
    memset(out, 0, PRODUCE_HEAD)
    memcpy(out, &patience, 4)
    memcpy(out + 4, &count, 4)
    memcpy(out + 8, &topic_count, 2)
    out += PRODUCE_HEAD
    for name in names:
        name_size = <uint16_t>len(name)
        memcpy(out, &name_size, 2)
        memcpy(out + 2, PyBytes_AS_STRING(name), name_size)
        out += 2 + name_size
    for batch in batches:
        raw, n, places = batch.blocks, 0, [numbers[each.name] for each in batch.topics]
        for r in range(batch.run_count):
            run = &batch.runs[r]
            topic, partition = places[run.topic], <int32_t>run.queue
            for k in range(run.count):
                entry = &batch.entries[n]
                n += 1
                memset(out, 0, PRODUCE_MESSAGE)
                out[12] = PRODUCE_HAS_ID if raw[entry.record_at] & RECORD_HAS_ID else 0
                message_size = entry.record_size - 1 - (ASSIGNED_ID_SIZE if out[12] else 0)
                memcpy(out, &topic, 4)
                memcpy(out + 4, &partition, 4)
                memcpy(out + 8, &message_size, 4)
                memcpy(out + PRODUCE_MESSAGE, raw + entry.record_at + 1, entry.record_size - 1)
                out += PRODUCE_MESSAGE + entry.record_size - 1
    return made


def all_stored(bytes payload, uint32_t count):
    """Whether an answer to a PRODUCE of `count` messages says OK to each."""
    cdef const unsigned char* raw = <const unsigned char*>PyBytes_AS_STRING(payload)
    cdef uint32_t n
    if <size_t>len(payload) != <size_t>PRODUCE_RESULT * count:
        return False
    for n in range(count):
        if raw[PRODUCE_RESULT * n] or raw[PRODUCE_RESULT * n + 1]:
            return False
    return True

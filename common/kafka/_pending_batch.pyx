# cython: language_level=3
"""A batch of records that Kafka's client has, until each has its result. Reference: pending_batch.py.

Callbacks of several threads take turns by the GIL: no step here gives it away between reading and writing `left`.
"""

from common.kafka._request_records cimport RequestRecords

from common.contract import Code
from common.kafka.records import NO_OFFSET, ProduceResults

cdef int OK = int(Code.OK)


cdef class PendingBatch:
    """See the reference."""

    cdef list codes, offsets
    cdef dict sentences
    cdef object on_done
    cdef Py_ssize_t left              # records without a result

    def __init__(self, Py_ssize_t size, on_done):
        self.codes, self.offsets, self.sentences = [OK] * size, [NO_OFFSET] * size, {}
        self.on_done, self.left = on_done, size

    def stored(self, Py_ssize_t index, offset):
        self.offsets[index] = offset
        self.settle()

    def refuse(self, Py_ssize_t index, code, sentence):
        self.codes[index] = code
        self.sentences[index] = sentence
        self.settle()

    def stored_as(self, Py_ssize_t index, record):
        self.stored(index, record.offset)

    def failed(self, outcome, Py_ssize_t index, fault):
        code, sentence = outcome(fault)
        self.refuse(index, code, sentence)

    cdef int settle(self) except -1:
        self.left -= 1
        if self.left == 0:
            self.on_done(ProduceResults(self.codes, self.offsets, dict(sorted(self.sentences.items()))))
        return 0


cdef class RecordReport:
    """The delivery report of one record."""

    cdef PendingBatch pending
    cdef Py_ssize_t index
    cdef object outcome

    def __call__(self, error, message):
        if error is None:
            self.pending.offsets[self.index] = message.offset()
            self.pending.settle()
        else:
            self.pending.failed(self.outcome, self.index, error)


def send_each(send, records, PendingBatch pending, skipped, outcome, on_fault):
    """See the reference."""
    cdef list topics = list(records.topics), partitions = list(records.partitions), timestamps = list(records.timestamps)
    cdef list keys = list(records.keys), values = list(records.values), headers = list(records.headers)
    cdef RecordReport report
    cdef Py_ssize_t index
    for index in range(len(topics)):
        if skipped and index in skipped:
            pending.refuse(index, *skipped[index])
            continue
        report = RecordReport.__new__(RecordReport)
        report.pending, report.index, report.outcome = pending, index, outcome
        try:
            send(
                topics[index], values[index], keys[index], partitions[index], report, None, timestamps[index],
                headers[index] or None,
            )
        except Exception as fault:
            on_fault(index, fault)


def payload_bytes(records):
    """See the reference."""
    cdef Py_ssize_t size = 0
    if type(records) is RequestRecords:
        return (<RequestRecords>records).payload_bytes
    for column in (records.keys, records.values):
        for data in column:
            if data is not None:
                size += len(<bytes>data)
    for headers in records.headers:
        for _, data in headers:
            if data is not None:
                size += len(<bytes>data)
    return size

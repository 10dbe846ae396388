# cython: language_level=3, boundscheck=False, wraparound=False
"""librdkafka's producer by its C functions: a batch is handed over at once, and reported without an object per record.

confluent-kafka's own producer makes a callback, a message and its texts for each record. This one calls the library that
lies in that package. Delivery reports come as events, so the library never calls Python.

All that batches share between threads is read and written under the GIL.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from common.kafka._request_records cimport RequestHeader, RequestRecord, RequestRecords
from common.kafka.librdkafka._functions cimport (
    ARGUMENT_HEADERS, ARGUMENT_KEY, ARGUMENT_OPAQUE, ARGUMENT_PARTITION, ARGUMENT_TIMESTAMP, ARGUMENT_TOPIC,
    ARGUMENT_VALUE, ARGUMENTS, CONF_OK, EVENT_ERROR, EVENT_REPORTS, PRODUCER, PURGE_ALL, Argument, Handle, Memory, Metadata,
    Report, lib,
)

from common.contract import Code
from common.kafka.records import NO_OFFSET, ProduceResults

cdef enum:
    TEXT_SIZE = 512
    FATAL = -150                      # RD_KAFKA_RESP_ERR__FATAL
    INVALID_ARGUMENT = -186
    UNKNOWN_TOPIC = -188

cdef object KafkaError = None, KafkaException = None
cdef int OK = int(Code.OK)


def use_errors(error, exception):
    """Tell confluent-kafka's classes of errors, before all else: this module can be imported without that package."""
    global KafkaError, KafkaException
    KafkaError, KafkaException = error, exception


cdef struct Slot:                     # of one record in flight; librdkafka keeps its address
    void* batch
    Py_ssize_t index

cdef struct Record:                   # one to hand over
    Handle topic
    Handle headers
    int32_t partition
    int error
    int64_t timestamp
    Memory key, value


cdef class SentBatch:
    """Records that the library has, until each has its result; then `on_done` gets all of them."""

    cdef object on_done, outcome, records
    cdef Py_ssize_t size, left        # left: records without a result
    cdef Slot* slots
    cdef int64_t* offsets
    cdef dict refusals                # code and sentence by index

    def __cinit__(self, records, on_done, outcome):
        cdef Py_ssize_t index
        self.records, self.on_done, self.outcome = records, on_done, outcome  # values are not copied: they stay here
        self.size = self.left = len(records.topics)
        self.refusals = {}
        self.slots = <Slot*>calloc(self.size + 1, sizeof(Slot))
        self.offsets = <int64_t*>calloc(self.size + 1, sizeof(int64_t))
        if self.slots == NULL or self.offsets == NULL:
            raise MemoryError()
        for index in range(self.size):
            self.slots[index].batch, self.slots[index].index = <void*>self, index

    def __dealloc__(self):
        free(self.slots)
        free(self.offsets)

    cdef int refuse(self, Py_ssize_t index, tuple code_and_sentence) except -1:
        self.offsets[index] = NO_OFFSET
        self.refusals[index] = code_and_sentence
        return self.settle()

    cdef int settle(self) except -1:
        cdef Py_ssize_t index
        self.left -= 1
        if self.left:
            return 0
        codes, sentences = [OK] * self.size, {}
        for index in sorted(self.refusals):
            codes[index], sentences[index] = self.refusals[index]
        self.records = None
        on_done, self.on_done = self.on_done, None
        Py_DECREF(self)  # of `send`
        on_done(ProduceResults(codes, [self.offsets[index] for index in range(self.size)], sentences))
        return 0


cdef class LibraryProducer:
    """A producer of librdkafka. Thread-safe, but for `poll`, which belongs to one thread.

    Args:
        options: of the library; `error_cb` is called in `poll`, with a KafkaError.
    Raises:
        KafkaException: an option that the library does not take.
    """

    cdef Handle client, queue
    cdef object on_error

    def __cinit__(self, dict options):
        cdef char text[TEXT_SIZE]
        cdef Handle conf = lib.conf_new()
        for name, value in options.items():
            if name == "error_cb":
                self.on_error = value
                continue
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            if lib.conf_set(conf, name.encode(), shown.encode(), text, TEXT_SIZE) != CONF_OK:
                lib.conf_destroy(conf)
                raise refused_options(text)
        lib.conf_set_events(conf, EVENT_REPORTS | EVENT_ERROR)
        lib.conf_set_log_cb(conf, NULL)
        self.client = lib.new(PRODUCER, conf, text, TEXT_SIZE)
        if self.client == NULL:
            lib.conf_destroy(conf)
            raise refused_options(text)
        self.queue = lib.queue_get_main(self.client)

    def __dealloc__(self):
        if self.client != NULL:
            with nogil:
                lib.queue_destroy(self.queue)
                lib.destroy(self.client)

    def cluster_id(self, double timeout):
        """The cluster's id, or None within the time."""
        cdef int timeout_ms = <int>(timeout * 1000)
        cdef char* found
        with nogil:
            found = lib.clusterid(self.client, timeout_ms)
        if found == NULL:
            return None
        try:
            return found.decode("utf-8", "replace")
        finally:
            lib.mem_free(self.client, found)

    def partition_count(self, str topic, double timeout_s):
        """A topic's number of partitions, and a KafkaError or None. Asks a broker."""
        cdef int timeout_ms = <int>(timeout_s * 1000), error = 0, count = 0
        cdef const Metadata* found = NULL
        cdef bytes name = topic.encode()
        cdef const char* text = name
        cdef Handle handle
        with nogil:
            handle = lib.topic_new(self.client, text, NULL)
            if handle == NULL:
                error = lib.last_error()
            else:
                error = lib.metadata(self.client, 0, handle, &found, timeout_ms)
                lib.topic_destroy(handle)
        if not error:
            error = UNKNOWN_TOPIC
            if found.topics == 1:
                error, count = found.topic_list[0].error, found.topic_list[0].partitions
            lib.metadata_destroy(found)
        return count, KafkaError(error) if error else None

    def send(self, records, on_done, outcome, dict skipped):
        """Hand records to the library, in order. Does not wait.

        Args:
            on_done: called once, with the results, in this thread or in `poll`.
            outcome: code and sentence for a KafkaError.
            skipped: results of records that are not sent, by index.
        """
        if type(records) is RequestRecords and skipped:
            records = records.columns()
        cdef SentBatch batch = SentBatch(records, on_done, outcome)
        cdef Record* made = <Record*>calloc(batch.size + 1, sizeof(Record))
        cdef dict topics = {}
        cdef Py_ssize_t index
        if made == NULL:
            raise MemoryError()
        try:
            if type(records) is RequestRecords:
                self.lay_out_request(records, made, topics)
            else:
                self.lay_out(records, made, topics, skipped)
            Py_INCREF(batch)  # until it is settled
            with nogil:
                for index in range(batch.size):
                    if made[index].topic != NULL:
                        made[index].error = self.produce(&made[index], &batch.slots[index])
            for index in range(batch.size):
                if made[index].topic == NULL:
                    batch.refuse(index, skipped[index])
                elif made[index].error:
                    batch.refuse(index, outcome(KafkaError(made[index].error)))
        finally:
            for index in range(batch.size):
                if made[index].headers != NULL:
                    lib.headers_destroy(made[index].headers)
            free(made)
            for address in topics.values():
                lib.topic_destroy(<Handle><size_t>address)

    cdef int lay_out(self, records, Record* made, dict topics, dict skipped) except -1:
        """Fill `made` from the columns; `topics` gets a handle by name. A skipped record has no topic."""
        cdef list names = list(records.topics), partitions = list(records.partitions), times = list(records.timestamps)
        cdef list keys = list(records.keys), values = list(records.values), headers = list(records.headers)
        cdef Py_ssize_t index
        cdef Record* record
        known, handle = None, 0
        for index in range(len(names)):
            if skipped and index in skipped:
                continue
            record = &made[index]
            name = names[index]
            if name is not known:
                known, handle = name, topics.get(name)
                if handle is None:
                    handle = topics[name] = self.topic(name)
            record.partition, record.timestamp = partitions[index], times[index]
            record.key, record.value = memory_of(keys[index]), memory_of(values[index])
            if headers[index]:
                record.headers = made_headers(headers[index])
            record.topic = <Handle><size_t>handle
        return 0

    cdef int lay_out_request(self, RequestRecords records, Record* made, dict topics) except -1:
        """As `lay_out`, of records without objects."""
        cdef RequestRecord* row
        cdef RequestHeader* header
        cdef Record* record
        cdef uint32_t index, each
        cdef Handle handle = NULL
        cdef uint32_t known = 0
        for index in range(records.count):
            row, record = &records.rows[index], &made[index]
            if handle == NULL or row.topic != known:
                known, name = row.topic, records.names[row.topic]
                if name not in topics:
                    topics[name] = self.topic(name)
                handle = <Handle><size_t>topics[name]
            record.partition, record.timestamp = row.partition, records.timestamp
            record.key.data, record.key.size = row.key.data, row.key.size
            record.value.data, record.value.size = row.value.data, row.value.size
            if row.header_count:
                record.headers = lib.headers_new(row.header_count)
            for each in range(row.header_count):
                header = &records.row_headers[row.first_header + each]
                if lib.header_add(
                    record.headers, <const char*>header.name.data, header.name.size, header.value.data, header.value.size
                ):
                    raise MemoryError()
            record.topic = handle
        return 0

    cdef object topic(self, str name):
        cdef bytes text = name.encode()
        cdef Handle found
        if b"\0" in text:
            raise ValueError(f"topic {name}: a name with a zero byte")
        found = lib.topic_new(self.client, text, NULL)
        if found == NULL:
            raise ValueError(f"topic {name}: {KafkaError(lib.last_error()).str()}")
        return <size_t>found

    cdef int produce(self, Record* record, Slot* slot) noexcept nogil:
        """Returns an error of the library, or 0: then it has the headers, and will report."""
        cdef Argument arguments[ARGUMENTS]
        cdef Handle refusal
        cdef int error
        arguments[0].kind, arguments[0].given.handle = ARGUMENT_TOPIC, record.topic
        arguments[1].kind, arguments[1].given.number = ARGUMENT_PARTITION, record.partition
        arguments[2].kind, arguments[2].given.memory = ARGUMENT_VALUE, record.value
        arguments[3].kind, arguments[3].given.memory = ARGUMENT_KEY, record.key
        arguments[4].kind, arguments[4].given.long_number = ARGUMENT_TIMESTAMP, record.timestamp
        arguments[5].kind, arguments[5].given.handle = ARGUMENT_OPAQUE, <Handle>slot
        arguments[6].kind, arguments[6].given.handle = ARGUMENT_HEADERS, record.headers
        refusal = lib.produceva(self.client, arguments, ARGUMENTS - (record.headers == NULL))
        if refusal == NULL:
            record.headers = NULL
            return 0
        error = lib.error_code(refusal)
        lib.error_destroy(refusal)
        return error

    def poll(self, double timeout_s):
        """Wait for events, and serve all that there are."""
        cdef int timeout_ms = <int>(timeout_s * 1000), kind
        cdef Handle event
        while True:
            with nogil:
                event = lib.queue_poll(self.queue, timeout_ms)
            if event == NULL:
                return
            try:
                kind = lib.event_type(event)
                if kind == EVENT_REPORTS:
                    self.take_reports(event)
                elif kind == EVENT_ERROR:
                    self.take_error(event)
            finally:
                lib.event_destroy(event)
            timeout_ms = 0

    cdef int take_reports(self, Handle event) except -1:
        cdef Py_ssize_t count = lib.event_message_count(event), each
        cdef const Report** reports = <const Report**>calloc(count + 1, sizeof(void*))
        cdef Slot* slot
        cdef SentBatch batch
        if reports == NULL:
            raise MemoryError()
        try:
            count = lib.event_message_array(event, reports, count)
            for each in range(count):
                slot = <Slot*>reports[each].opaque
                batch = <SentBatch>slot.batch
                if reports[each].error:
                    batch.refuse(slot.index, batch.outcome(fault_of(reports[each])))
                else:
                    batch.offsets[slot.index] = reports[each].offset
                    batch.settle()
        finally:
            free(reports)
        return 0

    cdef int take_error(self, Handle event) except -1:
        cdef char text[TEXT_SIZE]
        cdef int number = lib.event_error(event)
        if number == FATAL:
            memset(text, 0, TEXT_SIZE)
            number = lib.fatal_error(self.client, text, TEXT_SIZE)
            self.on_error(KafkaError(number, text.decode("utf-8", "replace"), True))
        else:
            self.on_error(KafkaError(number, lib.event_error_string(event).decode("utf-8", "replace")))
        return 0

    def flush(self, double timeout_s):
        """Wait until all records are reported, for at most this time. Another thread has to `poll`."""
        cdef int timeout_ms = <int>(max(timeout_s, 0.0) * 1000)
        with nogil:
            lib.flush(self.client, timeout_ms)

    def purge(self):
        """Give up what waits and what is on its way: `poll` gets reports of all of it."""
        with nogil:
            lib.purge(self.client, PURGE_ALL)


cdef object refused_options(const char* text):
    return KafkaException(KafkaError(INVALID_ARGUMENT, text.decode("utf-8", "replace")))


cdef object fault_of(const Report* report):
    cdef const char* text = lib.message_errstr(report)
    return KafkaError(report.error, None if text == NULL else text.decode("utf-8", "replace"))


cdef inline Memory memory_of(data):
    """Bytes of an object that the batch keeps; Kafka's null for None, which differs from empty."""
    cdef Memory found
    found.data, found.size = NULL, 0
    if data is not None:
        found.data, found.size = PyBytes_AS_STRING(<bytes?>data), PyBytes_GET_SIZE(data)
    return found


cdef Handle made_headers(headers) except NULL:
    cdef Handle made = lib.headers_new(len(headers))
    cdef const char* text
    cdef Py_ssize_t size
    cdef Memory value
    try:
        for name, data in headers:
            text = PyUnicode_AsUTF8AndSize(name, &size)
            value = memory_of(data)
            if lib.header_add(made, text, size, value.data, value.size):
                raise MemoryError()
    except BaseException:
        lib.headers_destroy(made)
        raise
    return made

"""Functions, structs and numbers of librdkafka's public header, as far as they are called. They are the same in all of its
versions 1 and 2. `lib` is empty before `load`.
"""

from libc.stdint cimport int32_t, int64_t

cdef enum:
    PRODUCER = 0
    CONF_OK = 0
    EVENT_REPORTS = 0x1
    EVENT_ERROR = 0x8
    ARGUMENT_TOPIC = 2
    ARGUMENT_PARTITION = 3
    ARGUMENT_VALUE = 4
    ARGUMENT_KEY = 5
    ARGUMENT_OPAQUE = 6
    ARGUMENT_TIMESTAMP = 8
    ARGUMENT_HEADERS = 10
    ARGUMENTS = 7
    PURGE_ALL = 3                     # what is queued, and what is on its way

ctypedef void* Handle


cdef struct Report:                   # rd_kafka_message_t
    int error
    Handle topic
    int32_t partition
    void* value
    size_t value_size
    void* key
    size_t key_size
    int64_t offset
    void* opaque

cdef struct Memory:
    const void* data
    size_t size

cdef union Given:
    Handle handle
    int32_t number
    int64_t long_number
    Memory memory
    char padding[64]

cdef struct Argument:                 # rd_kafka_vu_t
    int kind
    Given given

cdef struct TopicMetadata:            # rd_kafka_metadata_topic_t
    char* name
    int partitions
    void* partition_list
    int error

cdef struct Metadata:                 # rd_kafka_metadata_t
    int brokers
    void* broker_list
    int topics
    TopicMetadata* topic_list
    int32_t origin
    char* origin_name

cdef struct Functions:
    int (*version)() noexcept nogil
    Handle (*conf_new)() noexcept nogil
    void (*conf_destroy)(Handle conf) noexcept nogil
    int (*conf_set)(Handle conf, const char* name, const char* value, char* text, size_t size) noexcept nogil
    void (*conf_set_events)(Handle conf, int events) noexcept nogil
    void (*conf_set_log_cb)(Handle conf, void* callback) noexcept nogil
    Handle (*new)(int kind, Handle conf, char* text, size_t size) noexcept nogil
    void (*destroy)(Handle client) noexcept nogil
    Handle (*queue_get_main)(Handle client) noexcept nogil
    void (*queue_destroy)(Handle queue) noexcept nogil
    Handle (*queue_poll)(Handle queue, int timeout_ms) noexcept nogil
    int (*event_type)(Handle event) noexcept nogil
    size_t (*event_message_count)(Handle event) noexcept nogil
    size_t (*event_message_array)(Handle event, const Report** reports, size_t size) noexcept nogil
    int (*event_error)(Handle event) noexcept nogil
    const char* (*event_error_string)(Handle event) noexcept nogil
    void (*event_destroy)(Handle event) noexcept nogil
    const char* (*message_errstr)(const Report* report) noexcept nogil
    int (*fatal_error)(Handle client, char* text, size_t size) noexcept nogil
    Handle (*topic_new)(Handle client, const char* name, Handle conf) noexcept nogil
    void (*topic_destroy)(Handle topic) noexcept nogil
    int (*last_error)() noexcept nogil
    Handle (*headers_new)(size_t count) noexcept nogil
    int (*header_add)(Handle headers, const char* name, ssize_t size, const void* value, ssize_t value_size) noexcept nogil
    void (*headers_destroy)(Handle headers) noexcept nogil
    Handle (*produceva)(Handle client, const Argument* arguments, size_t count) noexcept nogil
    int (*error_code)(Handle error) noexcept nogil
    void (*error_destroy)(Handle error) noexcept nogil
    int (*flush)(Handle client, int timeout_ms) noexcept nogil
    int (*purge)(Handle client, int flags) noexcept nogil
    int (*metadata)(Handle client, int all_topics, Handle topic, const Metadata** found, int timeout_ms) noexcept nogil
    void (*metadata_destroy)(const Metadata* found) noexcept nogil
    char* (*clusterid)(Handle client, int timeout_ms) noexcept nogil
    void (*mem_free)(Handle client, void* memory) noexcept nogil

cdef Functions lib

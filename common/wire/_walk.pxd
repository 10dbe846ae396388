"""Walker for `cimport`: one pass over the bytes of a call fills structs with offsets into the frame.

A frame is one strict binary Thrift message without the framing's length. All functions are pure: no allocation, no
Python, and no read outside p[0..n), whatever the frame contains.

They return 0 or a `WireFault` number (common/wire/faults.py). The struct repeats it as `error`, with `error_at` (offset
of the offending byte) and `error_field` (see faults.FIELDS; 0 without a known field). `seqid` is valid once the header
was read, so a rejected call can be answered with it. After a non-zero return nothing else in the struct or the arrays
may be used.

A start/size pair is a slice of the frame. It is 0/0 for an unset field, so check the flag where empty and unset differ.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef enum:
    # Message.flags
    HAS_TOPIC = 1
    HAS_BODY = 2
    HAS_KEY = 4
    HAS_TAG = 8
    HAS_PROPERTIES = 16
    HAS_ID = 32
    HAS_DELIVER_AT = 64
    HAS_DELAY = 128
    HAS_OPERATION = 256
    HAS_REPLY_TO = 512
    HAS_LOOP = 1024           # a property's name begins as those of loops

cdef enum:
    # PullCall.flags
    HAS_TOPICS = 1
    HAS_ACKS = 2
    HAS_POSITIONS = 4
    HAS_INVISIBLE = 8
    HAS_TOPICS_AFTER = 16

cdef enum:
    # Ack.flags
    HAS_RECEIPT = 1
    HAS_VERDICT = 2
    HAS_ACK_DELAY = 4
    HAS_REASON = 8

cdef enum:
    PULL_TOPICS_MAX = 256
    POSITIONS_MAX = 1000
    BODY_BYTES_MAX_DEFAULT = 4194304

cdef struct Span:
    uint32_t start
    uint32_t size

cdef struct Header:
    int32_t error
    uint32_t error_at
    uint32_t error_field
    int32_t seqid
    int32_t kind              # 1 CALL, 2 REPLY, 3 EXCEPTION, 4 ONEWAY
    uint32_t name_start
    uint32_t name_size
    uint32_t body_start       # of the argument struct

cdef struct SendCall:
    int32_t error             # WireFault: the call cannot be parsed, answer with a TApplicationException
    uint32_t error_at
    uint32_t error_field
    int32_t seqid
    uint32_t credential_start # the bytes of the Credential's fields with its STOP
    uint32_t credential_size
    uint32_t message_count    # 0..messages_max; more is WireFault LIST_TOO_LONG
    int32_t timeout_ms        # 0: unset
    int32_t durability        # 0: unset, the topic's default
    int32_t reply_wait_ms     # 0: unset, no request
    int32_t fault             # CallFault: parsed, but every message must be answered with faults.CALL_FAULTS[fault]

cdef struct Message:
    uint32_t start            # the bytes of the Message's fields with its STOP: what is stored
    uint32_t size
    uint32_t flags
    # MessageFault: answer only this message with MESSAGE_FAULTS[fault]; other fields are valid only at 0.
    int32_t fault
    uint32_t topic_start
    uint32_t topic_size
    uint32_t body_start
    uint32_t body_size
    uint32_t key_start
    uint32_t key_size
    uint32_t tag_start
    uint32_t tag_size
    uint32_t id_start
    uint32_t id_size
    uint32_t reply_to_start
    uint32_t reply_to_size
    int32_t operation         # 0 SEND, 1 CANCEL
    int64_t deliver_at_ms     # 0 when unset
    int64_t delay_ms          # 0 when unset

cdef struct PullCall:
    int32_t error
    uint32_t error_at
    uint32_t error_field
    int32_t seqid
    uint32_t credential_start
    uint32_t credential_size
    uint32_t group_start
    uint32_t group_size
    uint32_t flags
    int32_t fault             # CallFault: parsed, but the response's code must be that of faults.CALL_FAULTS[fault]
    int32_t max_messages      # the contract's default when unset: 32
    int32_t max_bytes         # likewise: 1 MiB
    int32_t wait_ms           # likewise: 0. Not yet cut to the contract's 30,000
    int32_t invisible_ms      # -1 when unset
    uint32_t ack_count        # 0..acks_max; more is WireFault LIST_TOO_LONG
    # Positions are well formed with all required fields, but their values are unchecked: decode them.
    uint32_t position_count
    uint32_t topic_count
    Span topics[PULL_TOPICS_MAX]

cdef struct Ack:
    uint32_t flags
    int32_t fault             # AckFault: answer only this ack with ACK_FAULTS[fault]; other fields are valid only at 0
    uint32_t receipt_start
    uint32_t receipt_size
    int32_t verdict           # 0 DONE when unset
    int32_t delay_ms          # -1 when unset
    uint32_t reason_start
    uint32_t reason_size

cdef int walk_header(const unsigned char* p, size_t n, Header* header) noexcept nogil
cdef int walk_send(
    const unsigned char* p, size_t n, SendCall* call, Message* messages, uint32_t messages_max, uint32_t body_bytes_max
) noexcept nogil
cdef int walk_pull(const unsigned char* p, size_t n, PullCall* call, Ack* acks, uint32_t acks_max) noexcept nogil

# Kafka's murmur2. queue = (murmur2(key) & 0x7fffffff) % queues
cdef uint32_t murmur2(const unsigned char* p, size_t n) noexcept nogil
cdef bint valid_utf8(const unsigned char* p, size_t n) noexcept nogil
cdef bint valid_name(const unsigned char* p, size_t n) noexcept nogil   # topics and groups

# cython: language_level=3
"""Constants of the link and of stored batches, for native code. Sizes in bytes.

Described in docs/design/0001-seams.md and docs/format/log.md.

Each has the same value as its namesake in a module of engine/link (OP_ in operations.py, CODE_ in codes.py);
tests/unit/engine/link/test_constants.py compares them.
"""

cdef enum:
    # frame
    FRAME_HEADER_SIZE = 16
    FRAME_REST_SIZE = 12              # of the header, after the size field
    # operations
    OP_HELLO = 1
    OP_AUTH = 2
    OP_APPEND = 10
    OP_TOPIC = 11
    OP_CLAIM = 12
    OP_RESEND = 13
    OP_COPY = 14
    OP_SOURCE_STATE = 15
    OP_SOURCE_ACCEPT = 16
    OP_PULL = 20
    OP_READ = 21
    OP_CANCEL = 22
    OP_WINDOW = 23
    OP_ADMIN = 30
    OP_TIMER_ADD = 40
    OP_TIMER_CANCEL = 41
    OP_TIMER_LIST = 42
    OP_REPLY = 45
    OP_FORWARD = 46
    OP_LISTEN = 47
    OP_FORWARDED = 48
    OP_OUTCOME = 49
    OP_LOOK_UP_ID = 50
    OP_LOOK_UP_KEY = 51
    OP_LEASE = 60
    OP_BACKLOG = 61
    OP_FOLLOW = 70
    OP_SEGMENT = 71
    OP_BYTES = 72
    OP_STORED = 73
    OP_FETCH = 74
    OP_SYNC = 75
    OP_RECORD = 80
    OP_REPORT = 81
    # codes
    CODE_OK = 0
    CODE_DUPLICATE = 2
    CODE_INVALID = 100
    CODE_TOO_LARGE = 101
    CODE_UNKNOWN_TOPIC = 102
    CODE_STALE_RECEIPT = 106
    CODE_OVERLOADED = 201
    CODE_CLAIMED = 210
    CODE_NOT_MASTER = 211
    CODE_STALE_EPOCH = 212
    CODE_SOURCE_MOVED = 214
    CODE_UNAVAILABLE = 203
    CODE_DISK_FULL = 205
    CODE_TIMEOUT = 300
    CODE_NO_REPLY = 501
    # APPEND
    APPEND_HEAD_SIZE = 8
    APPEND_RESULT_SIZE = 16
    DURABILITY_MEMORY = 1
    DURABILITY_FSYNC = 2
    DURABILITY_REPLICATED = 3
    DURABILITY_REPLICATED_FSYNC = 4
    DURABILITY_MAX = 4
    # stored batches and records
    BATCH_MAGIC = 0x5042
    BATCH_HEADER_SIZE = 48
    BATCH_CHECK_IDS = 1               # flags of a batch
    BATCH_COPIED = 2
    CLAIM_QUEUE = 0x40000000          # queues of claims begin here
    RECORD_HEAD_SIZE = 5              # u32 size, u8 flags
    RECORD_HAS_ID = 1                 # flags of a record
    RECORD_HAS_TRAILER = 2
    RECORD_HAS_SOURCE_OFFSET = 4
    SOURCE_OFFSET_SIZE = 8            # the trailer of a copied record
    ASSIGNED_ID_SIZE = 16
    REPLY_TOKEN_SIZE = 40             # the trailer of a request
    REPLY_BY_AT = 16                  # in it
    REPLY_TOKEN_MAC_AT = 24           # in it
    REPLY_TOKEN_VERSION = 1           # as stored
    REPLY_TOKEN_BOUND = 2             # for one application
    KIND_MESSAGES = 0                 # kinds of a batch
    KIND_FIRED = 10
    KIND_MAX = 15
    SEGMENT_HEADER_SIZE = 64
    KIND_TIMER = 8
    # PULL
    TOKEN_SIZE = 48
    TOKEN_VERSION = 1
    RECEIPT_SIZE = 52
    PIECE_SIZE = 88
    ACK_SIZE = 66                     # without the reason, which follows
    TOPIC_SIZE_MIN = 6                # size of the name ‖ name ‖ queues
    VERDICT_DONE = 0
    VERDICT_RETRY = 1
    VERDICT_REJECT = 2
    VERDICT_EXTEND = 3
    VERDICT_RELEASE = 4
    ACK_COUNT_AT = 52                 # in a range
    ACK_VERDICT_AT = 56
    ACK_DELAY_AT = 60
    ACK_REASON_SIZE_AT = 64

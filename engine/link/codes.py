"""Codes of answers: those of the contract that an engine gives. A payload with a code other than OK is a sentence,
except where the operation's module says otherwise."""

OK = 0
AT_BOUND = 3
"""Of a PULL, on the link only: as OK, and empty because the group holds as many messages as it may."""
NO_ROOM = 4
"""Of a PULL, on the link only: as OK, and empty because the next message does not fit into the link's window now."""
DUPLICATE = 2
INVALID = 100
TOO_LARGE = 101
UNKNOWN_TOPIC = 102
UNAUTHENTICATED, FORBIDDEN = 104, 105
STALE_RECEIPT = 106
OFFSET_OUT_OF_RANGE = 107
NOT_CANCELLABLE = 108
QUOTA_EXCEEDED = 109
OVERLOADED = 201
CLAIMED = 210
"""Of an APPEND, TIMER_ADD or CLAIM, on the link only: not stored, because the id belongs to another queue, which is given."""
NOT_MASTER, STALE_EPOCH = 211, 212
"""On the link only: this broker is not the master of its group; the sender's epoch is over."""
AT_SLAVE = 213
"""Of a READ, on the link only: nothing is read, because the sender can have it from a slave."""
SOURCE_MOVED = 214
"""Of a COPY or SOURCE_ACCEPT, on the link only: not stored, because the queue expects another source or offset, which is
told."""
UNAVAILABLE = 203
DISK_FULL = 205
TIMEOUT = 300
SHUTTING_DOWN = 400
NO_CONSUMER, NO_REPLY, CONSUMER_FAILED = 500, 501, 502

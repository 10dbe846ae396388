"""Codes of answers: those of the contract that an engine gives. A payload with a code other than OK is a sentence,
except where the operation's module says otherwise."""

OK = 0
DUPLICATE = 2
INVALID = 100
TOO_LARGE = 101
UNKNOWN_TOPIC = 102
UNAUTHENTICATED = 104
STALE_RECEIPT = 106
OFFSET_OUT_OF_RANGE = 107
NOT_CANCELLABLE = 108
OVERLOADED = 201
UNAVAILABLE = 203
TIMEOUT = 300
SHUTTING_DOWN = 400
NO_CONSUMER, NO_REPLY, CONSUMER_FAILED = 500, 501, 502

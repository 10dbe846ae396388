"""Numbers of the link's operations (docs/design/0001-seams.md section 5)."""

HELLO, AUTH, APPEND, TOPIC, PULL, READ, ADMIN = 1, 2, 10, 11, 20, 21, 30
RESEND = 13
"""An APPEND whose answer was lost: docs/design/0031-switch-over.md."""

COPY, SOURCE_STATE, SOURCE_ACCEPT = 14, 15, 16
"""Records of a foreign source, stored exactly once: docs/design/0036-copied-batches.md."""

CLAIM = 12
"""The queue of an id: docs/design/0028-ids-over-broker-groups.md."""

CANCEL = 22
"""Its request id is that of a waiting PULL or READ, which is then answered at once with the records found so far."""

WINDOW = 23
"""Up to which position the sender takes answers of PULL and READ; it has no answer: docs/design/0023-flow-control.md."""

TIMER_ADD, TIMER_CANCEL, TIMER_LIST = 40, 41, 42
TIMER_ADD_AGAIN = 43
"""A TIMER_ADD whose answer was lost: docs/design/0031-switch-over.md."""

REPLY, FORWARD, LISTEN, FORWARDED, OUTCOME = 45, 46, 47, 48, 49
"""Request-reply: docs/design/0013-request-reply.md."""

LOOK_UP_ID, LOOK_UP_KEY = 50, 51
LEASE, BACKLOG = 60, 61
"""Quota slices of cluster-wide limits, and backlogs of topics: docs/design/0014-limits.md."""

FOLLOW, SEGMENT, BYTES, STORED, FETCH, SYNC = 70, 71, 72, 73, 74, 75
"""Replication of the log, with the role `replica`: docs/design/0030-replication.md."""

RECORD, REPORT, HAND_OVER = 80, 81, 82
"""A group's record to its brokers, their reports, and what an operator asks a master before a planned switch, with the
role `controller`: docs/design/0031-switch-over.md."""

PRODUCE = 90
"""Sends to Kafka; served by a Kafka bridge alone, with the role `kafka_bridge`: docs/design/0034-kafka.md."""

FIND = 95
"""Records of a Kafka topic by their ids; served by a Kafka bridge alone: docs/dual-write.md."""

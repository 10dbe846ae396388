# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Token buckets of one limit: the native form of meter.py, for the hot path."""

from libc.math cimport INFINITY

from common.limits.meter import BURST_S, STALLED_S, PROMISED_S

cdef double BURST = BURST_S
cdef double STALLED = STALLED_S
cdef double PROMISED = PROMISED_S


cdef inline void set_rate(Bucket* bucket, object rate) except *:
    cdef double wanted
    if rate is None:
        bucket.limited = False
        return
    wanted = rate
    bucket.rate = wanted if wanted > 0 else 0
    bucket.burst = bucket.rate * BURST if bucket.rate * BURST > 1 else 1
    if not bucket.limited or bucket.tokens > bucket.burst:
        bucket.tokens = bucket.burst
    bucket.promised = min(bucket.promised, bucket.rate * PROMISED)
    bucket.limited = True


cdef inline void redeem(Bucket* bucket, double amount) noexcept:
    if bucket.promised > 0:
        bucket.promised = bucket.promised - amount if bucket.promised > amount else 0


cdef inline void fill(Bucket* bucket, double seconds) noexcept:
    cdef double over
    bucket.tokens += bucket.rate * seconds
    over = bucket.tokens - bucket.burst
    if over > 0:
        bucket.tokens = bucket.burst
        redeem(bucket, over)


cdef inline double wait_of(Bucket* bucket, double amount) noexcept:
    cdef double missing
    if not bucket.limited:
        return 0
    missing = (amount if amount < bucket.burst else bucket.burst) - bucket.tokens
    if missing <= 0:
        return 0
    return missing / bucket.rate if bucket.rate > 0 else STALLED


cdef inline double slot_of(Bucket* bucket, double amount) noexcept:
    cdef double wait = wait_of(bucket, amount)
    return wait + bucket.promised / bucket.rate if wait > 0 and bucket.rate > 0 else wait


cdef inline double promise_of(Bucket* bucket, double amount) noexcept:
    cdef double slot = slot_of(bucket, amount)
    if bucket.limited:
        bucket.promised = min(bucket.promised + amount, bucket.rate * PROMISED)
    return slot


cdef class Meter:
    """See meter.Meter."""

    def set_rates(self, messages, bytes, double now):
        """See meter.Meter.set_rates."""
        self.refill(now)
        set_rate(&self.messages, messages)
        set_rate(&self.bytes, bytes)

    def wait_s(self, double messages, double bytes, double now):
        """See meter.Meter.wait_s."""
        return self.wait_for(messages, bytes, now)

    def room(self, double now):
        """See meter.Meter.room."""
        self.refill(now)
        return self.messages.tokens if self.messages.limited else INFINITY, self.bytes.tokens if self.bytes.limited else INFINITY

    def take(self, double messages, double bytes):
        """See meter.Meter.take."""
        self.spend(messages, bytes)

    def slot_s(self, double messages, double bytes, double now):
        """See meter.Meter.slot_s."""
        return self.slot_for(messages, bytes, now)

    def take_behind(self, double messages, double bytes):
        """See meter.Meter.take_behind."""
        self.spend_behind(messages, bytes)

    def promise(self, double messages, double bytes, double now):
        """See meter.Meter.promise."""
        return self.promise_slot(messages, bytes, now)

    def refuse(self, double messages, double bytes):
        """See meter.Meter.refuse."""
        self.turn_away(messages, bytes)

    def read_demand(self):
        """See meter.Meter.read_demand."""
        demand = self.asked_messages, self.asked_bytes, self.messages_short, self.bytes_short
        self.asked_messages = self.asked_bytes = 0
        self.messages_short = self.bytes_short = False
        return demand

    cdef int note(self) except -1:
        self.noted = True
        if self.used is not None:
            self.used.append(self)
        return 0

    cdef int refill(self, double now) noexcept:
        cdef double seconds = now - self.refilled_at
        if seconds > 0:
            fill(&self.messages, seconds)
            fill(&self.bytes, seconds)
            self.refilled_at = now
        return 0

    cdef double wait_for(self, double messages, double bytes, double now) noexcept:
        cdef double one, other
        self.refill(now)
        one, other = wait_of(&self.messages, messages), wait_of(&self.bytes, bytes)
        return one if one > other else other

    cdef double slot_for(self, double messages, double bytes, double now) noexcept:
        self.refill(now)
        return max(slot_of(&self.messages, messages), slot_of(&self.bytes, bytes))

    cdef double promise_slot(self, double messages, double bytes, double now) except -1:
        cdef double one, other
        self.refill(now)
        self.turn_away(messages, bytes)
        one, other = promise_of(&self.messages, messages), promise_of(&self.bytes, bytes)
        return max(one, other)

    cdef double wait_with(self, uint64_t call, double bytes, double now) noexcept:
        """Like wait_s for one more message of a call.

        The call's messages so far are kept until `commit` or the next call.
        """
        if self.call != call:
            self.call, self.pending_messages, self.pending_bytes = call, 0, 0
        self.pending_messages += 1
        self.pending_bytes += bytes
        return self.wait_for(self.pending_messages, self.pending_bytes, now)

    cdef int commit(self, uint64_t call) except -1:
        """Take the amount that the call has asked for; a second commit of the call does nothing."""
        if self.call == call:
            self.spend(self.pending_messages, self.pending_bytes)
            self.call = 0
        return 0

    cdef int spend(self, double messages, double bytes) except -1:
        redeem(&self.messages, messages)
        redeem(&self.bytes, bytes)
        return self.spend_behind(messages, bytes)

    cdef int spend_behind(self, double messages, double bytes) except -1:
        if not self.noted:
            self.note()
        self.asked_messages += messages
        self.asked_bytes += bytes
        self.messages.tokens -= messages
        self.bytes.tokens -= bytes
        return 0

    cdef int turn_away(self, double messages, double bytes) except -1:
        if not self.noted:
            self.note()
        self.asked_messages += messages
        self.asked_bytes += bytes
        self.messages_short = self.messages_short or wait_of(&self.messages, messages) > 0
        self.bytes_short = self.bytes_short or wait_of(&self.bytes, bytes) > 0
        return 0

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Rate-limit admission on the hot path: admits a whole call, refuses a whole call, or leaves it to the rare path.

It never holds and never splits a call. The reference, producer_proxy/admission/rate_limits.py, does both.
"""

from libc.math cimport ceil

from common.limits.retry_slot import HOLD_S, RetrySlot

cdef double HOLD = HOLD_S


cdef class HotAdmission:
    """Admission of one call at a time.

    Sequence: begin, weigh each message whose topic has a limit, verdict, and commit when the call is taken.
    """

    cdef int begin(self, double now) noexcept:
        self.call += 1
        self.now, self.wait = now, 0
        self.first, self.is_mixed = None, False
        return 0

    cdef int weigh(self, Meter meter, uint32_t size, uint32_t index) except -1:
        cdef double wait = meter.wait_with(self.call, size, self.now)
        if index == 0:
            self.first = meter
        elif self.first is not meter:
            self.is_mixed = True
        if wait > self.wait:
            self.wait = wait
        return 0

    cdef int verdict(self, Meter application, uint32_t count, size_t bytes, uint32_t first_size, slot) except -1:
        """ADMIT when no limit asks to wait, REFUSE when not even the first message could be held, else LEAVE.

        `slot`: that the connection was given; None: it has none.
        """
        cdef double wait = self.wait
        if application is not None:
            wait = max(wait, application.wait_for(count, bytes, self.now))
        if self.own is not None:
            wait = max(wait, self.own.wait_for(count, bytes, self.now))
        if wait == 0:
            return ADMIT
        if self.is_mixed or self.first_wait(application, first_size, slot) <= HOLD:
            return LEAVE
        self.refuse(application, count, bytes, slot)
        return REFUSE

    cdef double first_wait(self, Meter application, uint32_t size, slot) except -1:
        cdef double wait = 0
        for meter in (self.first, application, self.own):
            if meter is None:
                continue
            if slot is not None and slot.is_due(meter, self.now):
                wait = max(wait, (<Meter>meter).wait_for(1, size, self.now))
            else:
                wait = max(wait, (<Meter>meter).slot_for(1, size, self.now))
        return wait

    cdef int refuse(self, Meter application, uint32_t count, size_t bytes, slot) except -1:
        """Promise the call its slot at each limit without room for it. A caller that came too early keeps its slot."""
        cdef double wait = 0
        cdef bint is_ahead = slot is not None and slot.is_ahead(self.now)
        cdef list meters = []
        for meter in (self.first, application, self.own):
            if meter is None:
                continue
            if (<Meter>meter).wait_for(count, bytes, self.now) == 0:
                (<Meter>meter).turn_away(count, bytes)
                continue
            meters.append(meter)
            if is_ahead and meter in slot.meters:
                (<Meter>meter).turn_away(count, bytes)
                # It may ask for more than it was promised.
                wait = max(wait, slot.at - self.now, (<Meter>meter).wait_for(count, bytes, self.now))
            else:
                wait = max(wait, (<Meter>meter).promise_slot(count, bytes, self.now))
        self.slot = RetrySlot(self.now + wait, meters)
        self.retry_after_ms = max(1, <int32_t>ceil(wait * 1000))
        return 0

    cdef int commit(self, Meter application, uint32_t count, size_t bytes) except -1:
        """Charge all limits except the topics', whose messages are committed one by one."""
        if application is not None:
            application.spend(count, bytes)
        if self.own is not None:
            self.own.spend(count, bytes)
        return 0

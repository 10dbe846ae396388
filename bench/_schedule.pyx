"""Planned send times: even spacing, or exponential gaps (a Poisson process), which is how independent callers arrive.

The schedule never slips. When no connection is free, planned times pile up, and each call's latency counts from its
planned time. So a stall of the server shows in every call that fell due during it, not only in the call in flight.
"""

from libc.math cimport log


cdef int64_t due_ns(Schedule* schedule) noexcept nogil:
    """The planned time of the next call."""
    return <int64_t>schedule.next_ns


cdef void advance(Schedule* schedule) noexcept nogil:
    """Plan the next call."""
    cdef double uniform
    if not schedule.poisson:
        schedule.next_ns += schedule.interval_ns
        return
    schedule.random ^= schedule.random >> 12
    schedule.random ^= schedule.random << 25
    schedule.random ^= schedule.random >> 27
    uniform = <double>((schedule.random * <uint64_t>2685821657736338717 >> 11) + 1) / 9007199254740993.0
    schedule.next_ns -= log(uniform) * schedule.interval_ns


def planned_times(rate: float, poisson: bool, count: int, seed: int = 1) -> list[int]:
    """The first planned times in ns from 0. For tests."""
    cdef Schedule schedule
    schedule.interval_ns, schedule.poisson, schedule.next_ns, schedule.random = 1e9 / rate, poisson, 0, seed
    times = []
    for _ in range(count):
        times.append(due_ns(&schedule))
        advance(&schedule)
    return times

# cython: language_level=3, boundscheck=False, wraparound=False
"""Native form of requests.py: same names and answers, tokens made and checked in C.

requests.py documents all of it.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

import os
from heapq import heappop, heappush

from common._blake2b cimport penstock_blake2b, penstock_blake2b_finish, penstock_blake2b_start, penstock_blake2b_update
from common.net._reactor cimport monotonic_s
from engine.link.constants cimport (
    CODE_DUPLICATE as DUPLICATE, CODE_INVALID as INVALID, CODE_NO_REPLY as NO_REPLY, CODE_OK as OK, CODE_STALE_RECEIPT as STALE_RECEIPT,
    CODE_TIMEOUT as TIMEOUT, CODE_UNAVAILABLE as UNAVAILABLE, OP_FORWARDED, OP_LISTEN, OP_OUTCOME, OP_REPLY,
    REPLY_TOKEN_BOUND, REPLY_TOKEN_MAC_AT, REPLY_TOKEN_SIZE, REPLY_TOKEN_VERSION,
)
from producer_proxy.requests._clock cimport unix_ms
from producer_proxy.requests._token cimport MAC_SIZE, ReplyTokenBytes, bound_mac

from common.clock import SystemClock
from common.reply_token import key_of
from engine.client.rpc import LOST
from engine.link import layout
from engine.link.errors import LinkDown
from producer_proxy.requests import requests as reference

cdef enum:
    TOKEN_SIZE = REPLY_TOKEN_SIZE
    VERSION = REPLY_TOKEN_VERSION
    BOUND_VERSION = REPLY_TOKEN_BOUND
    FORWARD_HEAD = 8                  # number, code
    NONE = -1                         # no outcome yet

cdef int64_t TICK_MS = reference.TICK_MS
cdef int64_t CLOCKS_MS = reference.CLOCKS_MS
cdef int64_t OUTCOME_MS_MAX = reference.OUTCOME_MS_MAX


cdef class RequestTimer:
    """A timer of a request."""

    cdef int due(self) except -1:
        raise NotImplementedError


cdef class OpenRequest(RequestTimer):
    """As the reference's."""

    cdef OpenRequests requests
    cdef object asker
    cdef list followers               # None: there are none
    cdef uint32_t number
    cdef int outcome
    cdef uint64_t links
    cdef bint is_stored, is_over
    cdef Py_ssize_t kept_bytes
    cdef tuple place
    cdef readonly bytes token, reply

    @property
    def code(self):
        return None if self.outcome == NONE else self.outcome

    @property
    def waits(self):
        return self.is_waiting()

    cdef bint is_waiting(self) except -1:
        return self.outcome == NONE and not self.is_over and self.has_listener()

    cdef bint has_listener(self) except -1:
        cdef OpenRequest each
        if not self.asker.is_gone:
            return True
        if self.followers is not None:
            for each in self.followers:
                if each.is_waiting():
                    return True
        return False

    def stored(self, tuple place=None, bint is_duplicate=False):
        """As the reference's."""
        self.is_stored = True
        if is_duplicate:
            self.requests.repeated(self, place)
            return
        if place is not None and not self.is_over:
            self.place = place
            self.requests.by_place[place] = self
        if self.outcome != NONE:
            self.tell()
        elif self.is_over:
            self.requests.ask_outcome(self)

    def end(self):
        """As the reference's."""
        self.is_over = True
        if self.outcome == NONE:
            self.outcome = NO_REPLY

    def settle(self, int code, bytes reply=None):
        """As the reference's."""
        self.end_with(code, reply)

    cdef int end_with(self, int code, bytes reply) except -1:
        if self.outcome == NONE:
            self.outcome, self.reply = code, reply
            if self.is_stored:
                self.tell()
        return 0

    cdef int take(self, bytes reply) except -1:
        if self.outcome == OK:
            return DUPLICATE
        if not self.is_waiting():
            return STALE_RECEIPT
        self.end_with(OK, reply)
        return OK

    cdef int due(self) except -1:
        """The deadline has passed."""
        cdef OpenRequests requests = self.requests
        del requests.calls[self.number]
        self.is_over = True
        if self.is_stored and self.outcome == NONE:
            if self.has_listener():
                requests.ask_outcome(self)
            else:
                self.end_with(NO_REPLY, None)
        if self.place is not None:
            requests.by_place.pop(self.place, None)
            requests.kept_bytes -= self.kept_bytes
        return 0

    cdef int follow(self, OpenRequest first) except -1:
        if first.outcome != NONE:
            return self.end_with(first.outcome, first.reply)
        self.token, self.links = first.token, first.links
        if first.followers is None:
            first.followers = []
        first.followers.append(self)
        return 0

    cdef int tell(self) except -1:
        cdef OpenRequest each
        self.asker.tell(self.outcome, self.reply)
        followers, self.followers = self.followers, None
        if followers is not None:
            for each in followers:
                each.end_with(self.outcome, self.reply)
        if self.reply is not None and not self.requests.keeps(self):
            self.reply = None
        return 0


cdef class OutcomeDue(RequestTimer):
    """The engine has not reported the outcome in time."""

    cdef OpenRequest over

    cdef int due(self) except -1:
        return self.over.end_with(NO_REPLY, None)


cdef class ReplyInFlight(RequestTimer):
    """A reply in transit to its asker's proxy."""

    cdef object told                  # None: already called

    def answered(self, int code, sentence):
        """The broker's answer."""
        self.end_with(TIMEOUT if sentence is LOST else code)

    cdef int due(self) except -1:
        return self.end_with(TIMEOUT)

    cdef int end_with(self, int code) except -1:
        told, self.told = self.told, None
        if told is not None:
            told(code)
        return 0


cdef class OpenRequests:
    """As the reference's."""

    cdef object rpc, clock, wake
    cdef bint is_system_clock
    cdef penstock_blake2b keyed
    cdef uint64_t instance, links
    cdef uint32_t last_call
    cdef dict calls                   # by number
    cdef dict by_place
    cdef Py_ssize_t kept_bytes
    cdef dict ticks                   # tick -> list of RequestTimer
    cdef list order                   # heap of ticks
    cdef readonly uint64_t asked, late, replies

    def __init__(self, rpc, bytes cluster_key, clock, wake=lambda: None, random_bytes=os.urandom):
        cdef bytes key = key_of(cluster_key)
        self.rpc, self.clock, self.wake, self.is_system_clock = rpc, clock, wake, type(clock) is SystemClock
        penstock_blake2b_start(&self.keyed, <const unsigned char*>key, len(key), MAC_SIZE)
        self.instance = int.from_bytes(random_bytes(8), "little")
        self.calls, self.by_place, self.ticks, self.order = {}, {}, {}, []
        rpc.attend(self.listen, self.on_forward)

    def move_to(self, rpc):
        """As the reference's."""
        self.rpc = rpc
        rpc.attend(self.listen, self.on_forward)

    @property
    def waiting(self):
        """As the reference's."""
        return len(self.calls)

    @property
    def is_idle(self):
        """As the reference's."""
        cdef OpenRequest each
        for each in self.calls.values():
            if each.is_waiting():
                return False
        return True

    # -- the asker's side

    def open(self, asker, int64_t wait_ms):
        """As the reference's."""
        cdef OpenRequest opened
        cdef ReplyTokenBytes token
        if len(self.calls) >= reference.OPEN_MAX:
            return None
        self.asked += 1
        self.last_call = self.last_call % 0xFFFFFFFF + 1
        memset(&token, 0, sizeof(token))
        token.version, token.call, token.instance = VERSION, self.last_call, self.instance
        token.reply_by_ms = self.wall_ms() + wait_ms
        token.wait_ms[0], token.wait_ms[1], token.wait_ms[2] = wait_ms & 255, wait_ms >> 8 & 255, wait_ms >> 16 & 255
        self.sign(&token, token.mac)
        opened = OpenRequest.__new__(OpenRequest)
        opened.requests, opened.asker, opened.number, opened.links = self, asker, self.last_call, self.links
        opened.outcome = NONE
        opened.token = (<unsigned char*>&token)[:TOKEN_SIZE]
        self.calls[self.last_call] = opened
        self.after(wait_ms, opened)
        return opened

    def release(self):
        """As the reference's."""
        cdef OpenRequest each
        for each in list(self.calls.values()):
            if each.is_waiting():
                each.end_with(TIMEOUT, None)

    def on_time(self):
        """As the reference's."""
        cdef int64_t now_ms = self.now_ms()
        cdef RequestTimer each
        while self.order and <int64_t>self.order[0] * TICK_MS <= now_ms:
            for each in self.ticks.pop(heappop(self.order)):
                each.due()
        return len(self.order) > 0

    cdef int after(self, int64_t wait_ms, RequestTimer item) except -1:
        """Schedule the item's due(); up to TICK_MS late, never early."""
        cdef int64_t tick = (self.now_ms() + wait_ms + TICK_MS - 1) // TICK_MS
        cdef list items = self.ticks.get(tick)
        if items is None:
            self.ticks[tick] = [item]
            heappush(self.order, tick)
        else:
            items.append(item)
        self.wake()
        return 0

    cdef int64_t now_ms(self) except -1:
        return <int64_t>((monotonic_s() if self.is_system_clock else <double>self.clock.monotonic_s()) * 1000)

    cdef int64_t wall_ms(self) except? -1:
        return <int64_t>unix_ms() if self.is_system_clock else <int64_t>self.clock.now_ms()

    cdef void sign(self, const ReplyTokenBytes* token, uint8_t* mac) noexcept:
        cdef penstock_blake2b state = self.keyed
        penstock_blake2b_update(&state, token, REPLY_TOKEN_MAC_AT)
        penstock_blake2b_finish(&state, mac, MAC_SIZE)

    # -- called by open requests

    cdef bint keeps(self, OpenRequest answered) except -1:
        cdef Py_ssize_t size = len(answered.reply)
        if answered.place is None or answered.is_over or self.kept_bytes + size > reference.KEPT_BYTES_MAX:
            return False
        answered.kept_bytes = size
        self.kept_bytes += size
        return True

    cdef int repeated(self, OpenRequest copy, tuple place) except -1:
        cdef OpenRequest first = None if place is None else self.by_place.get(place)
        if first is not None and (first.outcome == NONE or first.reply is not None):
            return copy.follow(first)
        return copy.end_with(DUPLICATE, None)

    cdef int ask_outcome(self, OpenRequest over) except -1:
        cdef OutcomeDue due
        if over.links != self.links:
            return over.end_with(NO_REPLY, None)

        def answered(int code, bytes answer):
            over.end_with(layout.U16.unpack(answer)[0] if code == OK else NO_REPLY, None)

        try:
            self.rpc.send(OP_OUTCOME, over.token, answered)
        except LinkDown:
            return over.end_with(NO_REPLY, None)
        due = OutcomeDue.__new__(OutcomeDue)
        due.over = over
        return self.after(OUTCOME_MS_MAX, due)

    # -- messages from the broker

    def listen(self):
        """The link is up."""
        self.links += 1
        self.rpc.send(OP_LISTEN, layout.INSTANCE.pack(self.instance), lambda code, answer: None)

    def on_forward(self, bytes payload):
        """Take a reply, or the report that the consumer has failed.

        Bounds: all reads lie within the size that is checked first.
        """
        cdef const unsigned char* p = payload
        cdef uint32_t number, told
        cdef unsigned short code
        cdef ReplyTokenBytes token
        cdef OpenRequest found = None
        if len(payload) < FORWARD_HEAD + TOKEN_SIZE:
            raise ValueError(f"FORWARD: {len(payload)} bytes: at least {FORWARD_HEAD + TOKEN_SIZE}")
        memcpy(&number, p, 4)
        memcpy(&code, p + 4, 2)
        memcpy(&token, p + FORWARD_HEAD, TOKEN_SIZE)
        if token.version == VERSION:
            found = self.calls.get(token.call)
        if code == OK:
            told = STALE_RECEIPT if found is None else found.take(payload[FORWARD_HEAD + TOKEN_SIZE:])
            self.late += told == STALE_RECEIPT
            self.rpc.tell(OP_FORWARDED, layout.FORWARDED_BODY.pack(number, told))
        elif found is not None and found.is_waiting():
            found.end_with(code, None)

    # -- the replier's side

    def pass_on(self, bytes data, bytes reply_key, bytes reply, told, int64_t timeout_ms):
        """As the reference's."""
        cdef ReplyTokenBytes token
        cdef ReplyInFlight passing
        cdef uint8_t mac[16]
        cdef uint8_t differing = 0
        cdef int i
        if len(data) != TOKEN_SIZE:
            return INVALID
        memcpy(&token, <const unsigned char*>data, TOKEN_SIZE)
        if token.version == BOUND_VERSION:
            bound_mac(&token, reply_key, len(reply_key), mac)
        else:
            self.sign(&token, mac)
        # Compare all bytes: the duration must not reveal which byte of a wrong token differs.
        for i in range(MAC_SIZE):
            differing |= mac[i] ^ token.mac[i]
        if differing or token.version not in (VERSION, BOUND_VERSION):
            return INVALID
        if token.version == BOUND_VERSION:
            token.version = VERSION
            self.sign(&token, token.mac)
            data = (<unsigned char*>&token)[:TOKEN_SIZE]
        if token.reply_by_ms + CLOCKS_MS <= self.wall_ms():
            self.late += 1
            return STALE_RECEIPT
        passing = ReplyInFlight.__new__(ReplyInFlight)
        passing.told = told
        try:
            self.rpc.send(OP_REPLY, data + reply, passing.answered)
        except LinkDown:
            return UNAVAILABLE
        self.after(timeout_ms, passing)
        self.replies += 1
        return None

"""Request frames from parts that were encoded before the clock started: a call is a few copies and some patched fields.

A frame is the head (header, credential), then the messages or acknowledgements, then the tail; only the frame's length,
the sequence number, counts, topic, key and the body's place in a pool of random bytes differ from call to call.
"""

import os

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from bench._bytes cimport patch_u32, put, put_field, put_u8, put_u32, reserve

cdef enum:
    SEQID_AT = 16                      # 4 length, 4 version, 4 + 4 name
    POOL_SIZE = 1 << 20
    KEY_SIZE = 9                       # "k" and 8 hexadecimal digits
    MESSAGE_OVERHEAD = 7 + 7 + KEY_SIZE + 1

cdef const char* HEX = b"0123456789abcdef"


cdef inline uint64_t _next(uint64_t* state) noexcept nogil:
    """xorshift64*: a few cycles, and good enough to spread messages over topics and keys."""
    state[0] ^= state[0] >> 12
    state[0] ^= state[0] << 25
    state[0] ^= state[0] >> 27
    return state[0] * <uint64_t>2685821657736338717


cdef inline uint64_t _below(uint64_t* state, uint64_t bound) noexcept nogil:
    return ((_next(state) >> 32) * bound) >> 32


cdef int _fill(Buffer* buffer, bytes data) except -1:
    buffer.size = 0
    if reserve(buffer, len(data)) < 0:
        raise MemoryError
    put(buffer, <const char*>data, len(data))
    return 0


cdef bytes _call_head(bytes name, bytes credential):
    """Through the credential: length and sequence number are zero until a call patches them."""
    header = bytes(4) + b"\x80\x01\x00\x01" + b"\x00\x00\x00\x04" + name + bytes(4)
    return header + b"\x0c\x00\x01\x0c\x00\x01" + credential


cdef bytes _string(bytes text):
    return len(text).to_bytes(4, "big") + text


cdef class SendFrames:
    """Frames of `send`.

    Args:
        topics: names; messages go to them at random, or in their order when `sequential`.
        body_size: bytes per body. From 16 on, it begins with the run's mark and the send time (monotonic, native
            order).
        key_count: distinct keys; 0 sends none.
        durability: the contract's number; 0 leaves the field unset.
        seed: same seed, same topics and keys. The pool of bodies is random anyway.
    """

    def __cinit__(self, topics: list[bytes], body_size: int, *, key_count: int = 0, durability: int = 0,
                  timeout_ms: int = 0, sequential: bool = False, seed: int = 1):
        cdef Py_ssize_t index
        cdef uint32_t at = 0
        self.topic_count, self.next_topic, self.key_count = len(topics), 0, key_count
        self.body_size, self.sequential = body_size, sequential
        self.random = seed * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF | 1
        self.starts = <uint32_t*>malloc((len(topics) + 1) * sizeof(uint32_t))
        if self.starts == NULL:
            raise MemoryError
        encoded = [b"\x0b\x00\x01" + _string(topic) for topic in topics]
        for index in range(len(encoded)):
            self.starts[index] = at
            at += <uint32_t>len(encoded[index])
        self.starts[len(encoded)] = at
        _fill(&self.topics, b"".join(encoded))
        _fill(&self.pool, os.urandom(POOL_SIZE + body_size))
        self.mark = int.from_bytes(os.urandom(8), "little") | 1 if body_size >= 16 else 0
        fields = b"\x08\x00\x03" + timeout_ms.to_bytes(4, "big") if timeout_ms else b""
        fields += b"\x08\x00\x04" + durability.to_bytes(4, "big") if durability else b""
        _fill(&self.tail, fields + b"\x00\x00")

    def __dealloc__(self):
        free(self.starts)
        free(self.head.data)
        free(self.tail.data)
        free(self.topics.data)
        free(self.pool.data)

    def set_credential(self, credential: bytes) -> None:
        """Use this encoded Credential struct from the next call on."""
        _fill(&self.head, _call_head(b"send", credential) + b"\x0f\x00\x02\x0c" + bytes(4))

    cdef void _message(self, Buffer* out, int64_t stamp_ns) noexcept nogil:
        cdef uint64_t topic, key
        cdef int digit
        cdef size_t body_at
        if self.sequential:
            topic = self.next_topic
            self.next_topic = topic + 1 if topic + 1 < self.topic_count else 0
        else:
            topic = _below(&self.random, self.topic_count)
        put(out, self.topics.data + self.starts[topic], self.starts[topic + 1] - self.starts[topic])
        put_field(out, 11, 2)
        put_u32(out, self.body_size)
        body_at = out.size
        put(out, self.pool.data + _below(&self.random, POOL_SIZE), self.body_size)
        if self.mark:
            memcpy(out.data + body_at, &self.mark, 8)
            memcpy(out.data + body_at + 8, &stamp_ns, 8)
        if self.key_count:
            key = _below(&self.random, self.key_count)
            put_field(out, 11, 3)
            put_u32(out, KEY_SIZE)
            put_u8(out, c"k")
            for digit in range(8):
                put_u8(out, <unsigned char>HEX[(key >> (28 - 4 * digit)) & 15])
        put_u8(out, 0)

    cdef int write(self, Buffer* out, uint32_t seqid, uint32_t messages, int64_t stamp_ns) noexcept nogil:
        """Replace `out` by a whole frame. -1 when memory is out."""
        cdef uint32_t index
        cdef size_t longest = 0
        cdef uint64_t topics_size = self.starts[self.topic_count]
        out.size = 0
        # A topic is at most 249 bytes; for few topics the sum of all is the tighter bound.
        longest = (topics_size if topics_size < 256 else 256) + self.body_size + MESSAGE_OVERHEAD
        if reserve(out, self.head.size + messages * longest + self.tail.size) < 0:
            return -1
        put(out, self.head.data, self.head.size)
        patch_u32(out, out.size - 4, messages)
        for index in range(messages):
            self._message(out, stamp_ns)
        put(out, self.tail.data, self.tail.size)
        patch_u32(out, 0, <uint32_t>(out.size - 4))
        patch_u32(out, SEQID_AT, seqid)
        return 0

    def frame(self, seqid: int, messages: int, stamp_ns: int = 0) -> bytes:
        """One frame as the load loop writes it. For tests."""
        cdef Buffer out
        out.data, out.size, out.capacity = NULL, 0, 0
        if self.write(&out, seqid, messages, stamp_ns) < 0:
            raise MemoryError
        made = out.data[:out.size]
        free(out.data)
        return made


cdef class PullFrames:
    """Frames of `pull`: the same group and topics in each, with the acknowledgements of the pull before."""

    def __cinit__(self, group: bytes, topics: list[bytes], *, max_messages: int = 32, max_bytes: int = 0,
                  wait_ms: int = 0, invisible_ms: int = 0):
        self.max_messages, self.wait_ms = max_messages, wait_ms
        parts = [b"\x0b\x00\x02", _string(group)]
        if topics:
            parts += [b"\x0f\x00\x03\x0b", len(topics).to_bytes(4, "big"), *map(_string, topics)]
        if max_bytes:
            parts += [b"\x08\x00\x05", max_bytes.to_bytes(4, "big")]
        if invisible_ms:
            parts += [b"\x08\x00\x09", invisible_ms.to_bytes(4, "big")]
        self._subscription = b"".join(parts)

    def __dealloc__(self):
        free(self.head.data)

    def set_credential(self, credential: bytes) -> None:
        """Use this encoded Credential struct from the next call on."""
        _fill(&self.head, _call_head(b"pull", credential) + self._subscription)

    cdef int write(self, Buffer* out, uint32_t seqid, const Buffer* acks, uint32_t ack_count, bint last) noexcept nogil:
        """Replace `out` by a whole frame; `last` asks for no messages and only delivers the acknowledgements."""
        out.size = 0
        if reserve(out, self.head.size + acks.size + 32) < 0:
            return -1
        put(out, self.head.data, self.head.size)
        put_field(out, 8, 4)
        put_u32(out, 0 if last else self.max_messages)
        put_field(out, 8, 6)
        put_u32(out, 0 if last else self.wait_ms)
        if ack_count:
            put_field(out, 15, 7)
            put_u8(out, 12)
            put_u32(out, ack_count)
            put(out, acks.data, acks.size)
        put_u8(out, 0)
        put_u8(out, 0)
        patch_u32(out, 0, <uint32_t>(out.size - 4))
        patch_u32(out, SEQID_AT, seqid)
        return 0

    def frame(self, seqid: int, receipts: tuple = (), last: bool = False) -> bytes:
        """One frame as the load loop writes it. For tests."""
        cdef Buffer out, acks
        out.data, out.size, out.capacity = NULL, 0, 0
        acks.data, acks.size, acks.capacity = NULL, 0, 0
        _fill(&acks, b"".join(b"\x0b\x00\x01" + _string(receipt) + b"\x00" for receipt in receipts))
        if self.write(&out, seqid, &acks, len(receipts), last) < 0:
            raise MemoryError
        made = out.data[:out.size]
        free(out.data)
        free(acks.data)
        return made

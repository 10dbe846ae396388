# cython: language_level=3, boundscheck=False, wraparound=False
"""One PRODUCE as columns for a Kafka client, without a Python object per message but those that the client takes.

Reference: batch.py; bytes: engine/link/produce.py. A message that is not plain takes the reference's way through
`record_of`: a field of a type beside texts, numbers and the properties, a name twice, or whatever is refused.

Bounds: a message lies within the payload, which `__init__` has checked; each read is preceded by a comparison with the
message's end.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from common.wire._walk cimport murmur2, valid_utf8
from engine.link.constants cimport ASSIGNED_ID_SIZE, CODE_OK

import json

from common.contract import Code
from common.kafka.errors import KafkaFault
from common.kafka.records import OutgoingRecords
from engine.link.errors import PayloadError
from engine.link.produce import decode_produce_head
from kafka_bridge.mapping import ID_HEADER, TAG_HEADER, UnmappableMessage, record_of

cdef enum:
    MESSAGE_HEAD = 16
    RESULT_SIZE = 16
    HAS_ID = 1
    STRING = 11
    MAP = 13
    BODY_FIELD = 2
    KEY_FIELD = 3
    TAG_FIELD = 4
    PROPERTIES_FIELD = 5
    ID_FIELD = 6
    PROPERTIES_MAX = 16

cdef const char* HEX = b"0123456789abcdef"
cdef int INVALID = int(Code.INVALID), UNAVAILABLE = int(Code.UNAVAILABLE)


cdef struct Part:
    const unsigned char* data         # NULL: the field is unset
    uint32_t size

cdef struct Fields:                   # of one message
    Part texts[ID_FIELD + 1]          # by field
    Part names[PROPERTIES_MAX]
    Part values[PROPERTIES_MAX]
    uint32_t property_count

cdef struct Outgoing:                 # one message
    const unsigned char* id           # NULL: it has its own
    const unsigned char* data
    uint32_t size
    uint32_t topic
    int32_t partition
    int code                          # of a message that is no record


cdef class OutgoingBatch:
    """See the reference."""

    cdef bytes payload
    cdef readonly str cluster
    cdef readonly uint32_t patience_ms
    cdef readonly Py_ssize_t size
    cdef readonly dict counts
    cdef list topics, names, partitions, keys, values, headers
    cdef dict refusals                # sentences by index, of messages that are no records
    cdef dict known                   # number of partitions, or why it is not known, by index of the topic
    cdef uint32_t count
    cdef Outgoing* items

    def __init__(self, bytes payload):
        head = decode_produce_head(payload)
        self.payload, self.size = payload, len(payload)
        self.cluster, self.topics, self.patience_ms, self.count = head.cluster, head.topics, head.patience_ms, head.message_count
        self.names, self.partitions, self.keys, self.values, self.headers = [], [], [], [], []
        self.counts, self.refusals, self.known = {}, {}, {}
        if self.count > (self.size - head.at) // MESSAGE_HEAD:
            raise PayloadError(f"PRODUCE: {self.count} messages in {self.size} bytes")
        self.items = <Outgoing*>calloc(self.count + 1, sizeof(Outgoing))
        if self.items == NULL:
            raise MemoryError()
        self.walk(head.at)

    def __dealloc__(self):
        free(self.items)

    cdef int walk(self, Py_ssize_t at) except -1:
        """Find the messages."""
        cdef const unsigned char* raw = <const unsigned char*>PyBytes_AS_STRING(self.payload)
        cdef Outgoing* item
        cdef uint32_t each, head
        for each in range(self.count):
            item = &self.items[each]
            if self.size - at < MESSAGE_HEAD:
                raise self.cut_off()
            memcpy(&item.topic, raw + at, 4)
            memcpy(&item.partition, raw + at + 4, 4)
            memcpy(&item.size, raw + at + 8, 4)
            head = ASSIGNED_ID_SIZE if raw[at + 12] & HAS_ID else 0
            at += MESSAGE_HEAD
            if self.size - at < <Py_ssize_t>head + item.size:
                raise self.cut_off()
            if item.topic >= <uint32_t>len(self.topics):
                raise PayloadError(f"PRODUCE: topic {item.topic} of {len(self.topics)}")
            if item.partition < -1:
                raise PayloadError(f"PRODUCE: partition {item.partition}")
            item.id = raw + at if head else NULL
            item.data = raw + at + head
            at += head + item.size
        if at != self.size:
            raise PayloadError(f"PRODUCE: {self.size} bytes where its messages take {at}")
        return 0

    def cut_off(self):
        return PayloadError(f"PRODUCE: {self.size} bytes are cut off or damaged")

    def map(self, partitions_of, now_ms, uint32_t turn):
        """See the reference."""
        cdef Outgoing* item
        cdef uint32_t each, count
        for each in range(self.count):
            item = &self.items[each]
            count = self.partition_count(item.topic, partitions_of)
            if not count:
                item.code, self.refusals[each] = UNAVAILABLE, self.known[item.topic]
            else:
                self.add(each, item, count, turn)
        times = [now_ms] * len(self.names)
        return OutgoingRecords(self.names, self.partitions, times, self.keys, self.values, self.headers)

    cdef uint32_t partition_count(self, uint32_t topic, partitions_of) except? 0:
        """Number of a topic's partitions; 0: `known` has the reason why it has none."""
        found = self.known.get(topic)
        if found is None:
            try:
                found = partitions_of(self.topics[topic])
            except KafkaFault as fault:
                found = f"{fault}; nothing was stored"
            self.known[topic] = found
        return 0 if type(found) is str else found

    cdef int add(self, uint32_t index, Outgoing* item, uint32_t count, uint32_t turn) except -1:
        cdef Fields fields
        cdef int32_t partition = item.partition
        cdef Part key
        if read_fields(item.data, item.data + item.size, &fields):
            headers = headers_of(&fields, item.id)
            key = fields.texts[KEY_FIELD]
            key_bytes, value = bytes_of(key), bytes_of(fields.texts[BODY_FIELD]) or b""
        else:
            try:
                own = item.data[:item.size]
                key_bytes, value, headers = record_of(own, None if item.id == NULL else item.id[:ASSIGNED_ID_SIZE])
            except UnmappableMessage as fault:
                item.code, self.refusals[index] = INVALID, str(fault)
                return 0
            key.data, key.size = NULL, 0
            if key_bytes is not None:
                key.data, key.size = <const unsigned char*>PyBytes_AS_STRING(key_bytes), <uint32_t>PyBytes_GET_SIZE(key_bytes)
        if partition == -1:
            partition = turn % count if key.data == NULL else (murmur2(key.data, key.size) & 0x7FFFFFFF) % count
        self.names.append(self.topics[item.topic])
        self.partitions.append(partition)
        self.keys.append(key_bytes)
        self.values.append(value)
        self.headers.append(headers)
        return 0

    def settle(self, found):
        """See the reference."""
        cdef bytes made = PyBytes_FromStringAndSize(NULL, RESULT_SIZE * <Py_ssize_t>self.count)
        cdef unsigned char* out = <unsigned char*>PyBytes_AS_STRING(made)
        cdef list codes = list(found.codes), offsets = list(found.offsets)
        cdef dict told = found.sentences, sentences = {}
        cdef uint32_t each, at = 0, stored = 0
        cdef int code
        for each in range(self.count):
            code = self.items[each].code
            if code:
                put_result(out, code, 0, -1)
                sentences[str(each)] = self.refusals[each]
            else:
                code = codes[at]
                put_result(out, code, self.partitions[at], offsets[at])
                if told and told.get(at):
                    sentences[str(each)] = told[at]
                at += 1
            out += RESULT_SIZE
            if code == CODE_OK:
                stored += 1
            else:
                self.counts[code] = self.counts.get(code, 0) + 1
        if stored:
            self.counts[CODE_OK] = stored
        return made + json.dumps(sentences).encode() if sentences else made

    def refused(self, int code, str sentence):
        """See the reference."""
        cdef bytes made = PyBytes_FromStringAndSize(NULL, RESULT_SIZE * <Py_ssize_t>self.count)
        cdef unsigned char* out = <unsigned char*>PyBytes_AS_STRING(made)
        cdef uint32_t each
        for each in range(self.count):
            put_result(out + RESULT_SIZE * each, code, 0, -1)
        self.counts = {code: self.count} if self.count else {}
        if not sentence or not self.count:
            return made
        return made + json.dumps({str(number): sentence for number in range(self.count)}).encode()


cdef inline void put_result(unsigned char* out, int code, uint32_t partition, int64_t offset) noexcept:
    cdef uint16_t short_code = <uint16_t>code
    memset(out, 0, RESULT_SIZE)
    memcpy(out, &short_code, 2)
    memcpy(out + 4, &partition, 4)
    memcpy(out + 8, &offset, 8)


cdef inline object bytes_of(Part part):
    return None if part.data == NULL else PyBytes_FromStringAndSize(<const char*>part.data, part.size)


cdef list headers_of(const Fields* fields, const unsigned char* id16):
    cdef char shown[2 * ASSIGNED_ID_SIZE]
    cdef uint32_t each
    cdef list headers = []
    if id16 != NULL:
        for each in range(ASSIGNED_ID_SIZE):
            shown[2 * each], shown[2 * each + 1] = HEX[id16[each] >> 4], HEX[id16[each] & 15]
        headers.append((ID_HEADER, PyBytes_FromStringAndSize(shown, 2 * ASSIGNED_ID_SIZE)))
    elif fields.texts[ID_FIELD].data != NULL:
        headers.append((ID_HEADER, bytes_of(fields.texts[ID_FIELD])))
    if fields.texts[TAG_FIELD].data != NULL:
        headers.append((TAG_HEADER, bytes_of(fields.texts[TAG_FIELD])))
    for each in range(fields.property_count):
        name = PyUnicode_DecodeUTF8(<const char*>fields.names[each].data, fields.names[each].size, NULL)
        headers.append((name, bytes_of(fields.values[each])))
    return headers


cdef bint read_fields(const unsigned char* at, const unsigned char* end, Fields* fields) noexcept:
    """Find the fields of a message; False: it is not plain."""
    cdef int kind, skipped
    cdef uint32_t field
    cdef Part text
    memset(fields, 0, sizeof(Fields))
    while at < end:
        kind = at[0]
        if kind == 0:
            return True
        if end - at < 3:
            return False
        field = <uint32_t>at[1] << 8 | at[2]
        at += 3
        if kind == STRING:
            at = read_text(at, end, &text)
            if at == NULL:
                return False
            if field <= ID_FIELD:
                fields.texts[field] = text
        elif kind == MAP and field == PROPERTIES_FIELD:
            at = read_properties(at, end, fields)
            if at == NULL:
                return False
        else:
            skipped = size_of_number(kind)
            if not skipped or end - at < skipped:
                return False
            at += skipped
    return False


cdef inline int size_of_number(int kind) noexcept:
    """Bytes of a field of this type; 0: it is no number."""
    if kind == 2 or kind == 3:
        return 1
    if kind == 6:
        return 2
    if kind == 8:
        return 4
    return 8 if kind == 4 or kind == 10 else 0


cdef inline const unsigned char* read_text(const unsigned char* at, const unsigned char* end, Part* text) noexcept:
    """Read a text; returns its end, or NULL where it is cut off."""
    cdef uint32_t size
    if end - at < 4:
        return NULL
    size = <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]
    if size > <size_t>(end - at - 4):
        return NULL
    text.data, text.size = at + 4, size
    return at + 4 + size


cdef const unsigned char* read_properties(const unsigned char* at, const unsigned char* end, Fields* fields) noexcept:
    """Read the properties; returns their end, or NULL where they are not plain."""
    cdef uint32_t count, each, other
    cdef Part* name
    if end - at < 6 or at[0] != STRING or at[1] != STRING:
        return NULL
    count = <uint32_t>at[2] << 24 | <uint32_t>at[3] << 16 | <uint32_t>at[4] << 8 | at[5]
    if count > PROPERTIES_MAX:
        return NULL
    at += 6
    for each in range(count):
        name = &fields.names[each]
        at = read_text(at, end, name)
        if at == NULL or not valid_utf8(name.data, name.size) or is_reserved(name):
            return NULL
        at = read_text(at, end, &fields.values[each])
        if at == NULL:
            return NULL
        for other in range(each):
            if fields.names[other].size == name.size and memcmp(fields.names[other].data, name.data, name.size) == 0:
                return NULL
    fields.property_count = count
    return at


cdef inline bint is_reserved(const Part* name) noexcept:
    return name.size >= 9 and memcmp(name.data, b"penstock-", 9) == 0

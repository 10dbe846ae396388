# cython: language_level=3, boundscheck=False, wraparound=False
"""One PRODUCE as records for a Kafka client, without a Python object per message.

Reference: batch.py; bytes: engine/link/produce.py. A message that is not plain takes the reference's way through
`record_of`: a field of a type beside texts, numbers and the properties, a name twice, or whatever is refused.

Bounds: a message lies within the payload, which `__init__` has checked; each read is preceded by a comparison with the
message's end.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from common.kafka._request_records cimport RequestRecords, Text
from common.wire._walk cimport murmur2, valid_utf8
from engine.link.constants cimport ASSIGNED_ID_SIZE, CODE_OK

import json

from common.contract import Code
from common.kafka.errors import KafkaFault
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
cdef bytes ID_NAME = ID_HEADER.encode(), TAG_NAME = TAG_HEADER.encode()


cdef struct Fields:                   # of one message; without data: unset
    Text texts[ID_FIELD + 1]          # by field
    Text names[PROPERTIES_MAX]
    Text values[PROPERTIES_MAX]
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
    cdef list topics
    cdef RequestRecords records
    cdef unsigned char* ids           # texts of assigned ids, which the records point to
    cdef dict refusals                # sentences by index, of messages that are no records
    cdef dict known                   # number of partitions, or why it is not known, by index of the topic
    cdef uint32_t count
    cdef Outgoing* items

    def __init__(self, bytes payload):
        head = decode_produce_head(payload)
        self.payload, self.size = payload, len(payload)
        self.cluster, self.topics, self.patience_ms, self.count = head.cluster, head.topics, head.patience_ms, head.message_count
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
        cdef bytes ids = PyBytes_FromStringAndSize(NULL, 2 * ASSIGNED_ID_SIZE * <Py_ssize_t>self.count)
        self.records = RequestRecords(self.topics, self.payload, self.count, now_ms)
        self.records.kept.append(ids)
        self.ids = <unsigned char*>PyBytes_AS_STRING(ids)
        for each in range(self.count):
            item = &self.items[each]
            count = self.partition_count(item.topic, partitions_of)
            if not count:
                item.code, self.refusals[each] = UNAVAILABLE, self.known[item.topic]
            else:
                self.add(each, item, count, turn)
        return self.records

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
        cdef bint is_plain = read_fields(item.data, item.data + item.size, &fields)
        cdef Text key, value
        cdef int32_t partition = item.partition
        cdef list headers = []
        if is_plain:
            key, value = fields.texts[KEY_FIELD], fields.texts[BODY_FIELD]
        else:
            try:
                own = item.data[:item.size]
                key_bytes, body, headers = record_of(own, None if item.id == NULL else item.id[:ASSIGNED_ID_SIZE])
            except UnmappableMessage as fault:
                item.code, self.refusals[index] = INVALID, str(fault)
                return 0
            key, value = self.records.text_of(key_bytes), self.records.text_of(body)
        if value.data == NULL and is_plain:
            value.data = item.data  # empty, which is not null
        if partition == -1:
            partition = turn % count if key.data == NULL else (murmur2(key.data, <uint32_t>key.size) & 0x7FFFFFFF) % count
        self.records.add(item.topic, partition, key, value)
        if is_plain:
            return self.add_headers(&fields, index, item.id)
        for name, data in headers:
            self.records.add_header(self.records.text_of(name.encode()), self.records.text_of(data))
        return 0

    cdef int add_headers(self, const Fields* fields, uint32_t index, const unsigned char* id16) except -1:
        """The headers of a plain message."""
        cdef unsigned char* shown = self.ids + 2 * ASSIGNED_ID_SIZE * <Py_ssize_t>index
        cdef Text id_text = fields.texts[ID_FIELD]
        cdef uint32_t each
        if id16 != NULL:
            for each in range(ASSIGNED_ID_SIZE):
                shown[2 * each], shown[2 * each + 1] = HEX[id16[each] >> 4], HEX[id16[each] & 15]
            id_text.data, id_text.size = shown, 2 * ASSIGNED_ID_SIZE
        if id_text.data != NULL:
            self.records.add_header(constant(ID_NAME), id_text)
        if fields.texts[TAG_FIELD].data != NULL:
            self.records.add_header(constant(TAG_NAME), fields.texts[TAG_FIELD])
        for each in range(fields.property_count):
            self.records.add_header(fields.names[each], fields.values[each])
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
                put_result(out, code, self.records.rows[at].partition, offsets[at])
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


cdef inline Text constant(bytes text):
    """The bytes of an object that lives as long as the module."""
    cdef Text found
    found.data, found.size = <const unsigned char*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
    return found


cdef bint read_fields(const unsigned char* at, const unsigned char* end, Fields* fields) noexcept:
    """Find the fields of a message; False: it is not plain."""
    cdef int kind, skipped
    cdef uint32_t field
    cdef Text text
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


cdef inline const unsigned char* read_text(const unsigned char* at, const unsigned char* end, Text* text) noexcept:
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
    cdef Text* name
    if end - at < 6 or at[0] != STRING or at[1] != STRING:
        return NULL
    count = <uint32_t>at[2] << 24 | <uint32_t>at[3] << 16 | <uint32_t>at[4] << 8 | at[5]
    if count > PROPERTIES_MAX:
        return NULL
    at += 6
    for each in range(count):
        name = &fields.names[each]
        at = read_text(at, end, name)
        if at == NULL or not valid_utf8(name.data, <uint32_t>name.size) or is_reserved(name):
            return NULL
        at = read_text(at, end, &fields.values[each])
        if at == NULL:
            return NULL
        for other in range(each):
            if fields.names[other].size == name.size and memcmp(fields.names[other].data, name.data, name.size) == 0:
                return NULL
    fields.property_count = count
    return at


cdef inline bint is_reserved(const Text* name) noexcept:
    return name.size >= 9 and memcmp(name.data, b"penstock-", 9) == 0

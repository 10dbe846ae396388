# Thrift-binary helpers inlined by native modules that read replies and messages. Each takes a pointer and the end of
# what may be read; none reads past that end.

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint32_t be32(const unsigned char* p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
    static inline uint16_t be16(const unsigned char* p) { uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v); }
    static inline void put_be32(unsigned char* p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
    static inline void put_be64(unsigned char* p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }
    static inline uint32_t le32(const unsigned char* p) { uint32_t v; memcpy(&v, p, 4); return v; }
    static inline uint16_t le16(const unsigned char* p) { uint16_t v; memcpy(&v, p, 2); return v; }
    static inline uint64_t le64(const unsigned char* p) { uint64_t v; memcpy(&v, p, 8); return v; }

    /* Size of one value of a fixed-size type, 0 for the others. */
    static inline int fixed_size(unsigned char type) {
        switch (type) {
            case 2: case 3: return 1;
            case 6: return 2;
            case 8: return 4;
            case 4: case 10: return 8;
            default: return 0;
        }
    }

    /* Step over one value; NULL when it is malformed or runs past the end. */
    static const unsigned char* skip_value(const unsigned char* p, const unsigned char* end, unsigned char type,
                                           int depth) {
        int fixed = fixed_size(type);
        uint32_t count, i;
        unsigned char inner, other;
        if (fixed) return end - p < fixed ? NULL : p + fixed;
        if (depth > 16) return NULL;
        switch (type) {
            case 11:
                if (end - p < 4) return NULL;
                count = be32(p);
                return count > (uint64_t)(end - p - 4) ? NULL : p + 4 + count;
            case 12:
                for (;;) {
                    if (end - p < 1) return NULL;
                    inner = *p++;
                    if (inner == 0) return p;
                    if (end - p < 2) return NULL;
                    p = skip_value(p + 2, end, inner, depth + 1);
                    if (p == NULL) return NULL;
                }
            case 13:
                if (end - p < 6) return NULL;
                inner = p[0]; other = p[1]; count = be32(p + 2); p += 6;
                if (count > (uint64_t)(end - p) / 2) return NULL;
                for (i = 0; i < count; i++) {
                    p = skip_value(p, end, inner, depth + 1);
                    if (p == NULL) return NULL;
                    p = skip_value(p, end, other, depth + 1);
                    if (p == NULL) return NULL;
                }
                return p;
            case 14: case 15:
                if (end - p < 5) return NULL;
                inner = p[0]; count = be32(p + 1); p += 5;
                if (count > (uint64_t)(end - p)) return NULL;
                for (i = 0; i < count; i++) {
                    p = skip_value(p, end, inner, depth + 1);
                    if (p == NULL) return NULL;
                }
                return p;
            default:
                return NULL;
        }
    }
    """
    uint32_t be32(const unsigned char* p) nogil
    uint16_t be16(const unsigned char* p) nogil
    void put_be32(unsigned char* p, uint32_t v) nogil
    void put_be64(unsigned char* p, uint64_t v) nogil
    uint32_t le32(const unsigned char* p) nogil
    uint16_t le16(const unsigned char* p) nogil
    uint64_t le64(const unsigned char* p) nogil
    const unsigned char* skip_value(const unsigned char* p, const unsigned char* end, unsigned char type,
                                    int depth) nogil

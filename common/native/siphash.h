/* SipHash-2-4 with 128 bits of output (Aumasson, Bernstein 2012): a keyed hash for tables whose keys clients choose. */
#ifndef PENSTOCK_SIPHASH_H
#define PENSTOCK_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PENSTOCK_ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
#define PENSTOCK_SIPROUND                                                                   \
    do {                                                                                    \
        v0 += v1; v1 = PENSTOCK_ROTL(v1, 13); v1 ^= v0; v0 = PENSTOCK_ROTL(v0, 32);         \
        v2 += v3; v3 = PENSTOCK_ROTL(v3, 16); v3 ^= v2;                                     \
        v0 += v3; v3 = PENSTOCK_ROTL(v3, 21); v3 ^= v0;                                     \
        v2 += v1; v1 = PENSTOCK_ROTL(v1, 17); v1 ^= v2; v2 = PENSTOCK_ROTL(v2, 32);         \
    } while (0)

/* Little-endian machines only, like all of Penstock. */
static inline void siphash128(uint64_t k0, uint64_t k1, const unsigned char* data, size_t size, uint64_t* low, uint64_t* high)
{
    uint64_t v0 = UINT64_C(0x736f6d6570736575) ^ k0, v1 = UINT64_C(0x646f72616e646f6d) ^ k1 ^ 0xee;
    uint64_t v2 = UINT64_C(0x6c7967656e657261) ^ k0, v3 = UINT64_C(0x7465646279746573) ^ k1;
    uint64_t word, last = (uint64_t)size << 56;
    const unsigned char* end = data + (size & ~(size_t)7);
    size_t i;
    for (; data != end; data += 8) {
        memcpy(&word, data, 8);
        v3 ^= word;
        PENSTOCK_SIPROUND; PENSTOCK_SIPROUND;
        v0 ^= word;
    }
    for (i = 0; i < (size & 7); i++)
        last |= (uint64_t)data[i] << (8 * i);
    v3 ^= last;
    PENSTOCK_SIPROUND; PENSTOCK_SIPROUND;
    v0 ^= last;
    v2 ^= 0xee;
    PENSTOCK_SIPROUND; PENSTOCK_SIPROUND; PENSTOCK_SIPROUND; PENSTOCK_SIPROUND;
    *low = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    PENSTOCK_SIPROUND; PENSTOCK_SIPROUND; PENSTOCK_SIPROUND; PENSTOCK_SIPROUND;
    *high = v0 ^ v1 ^ v2 ^ v3;
}

#endif

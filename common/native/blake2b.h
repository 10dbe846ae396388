/* BLAKE2b (RFC 7693), keyed or not, digest of 16 bytes: the part of it that receipts need. hashlib has the same function, but its
   objects cost several times the one compression that a receipt's MAC takes. tests/unit/engine/delivery/test_parts.py
   compares it with hashlib. */
#ifndef PENSTOCK_BLAKE2B_H
#define PENSTOCK_BLAKE2B_H

#include <stdint.h>
#include <string.h>

#define PENSTOCK_BLAKE2B_BLOCK 128

typedef struct {
    uint64_t h[8];
    uint64_t counter;
    uint8_t block[PENSTOCK_BLAKE2B_BLOCK];
    size_t filled;
} penstock_blake2b;

static const uint64_t penstock_blake2b_iv[8] = {
    0x6a09e667f3bcc908ULL, 0xbb67ae8584caa73bULL, 0x3c6ef372fe94f82bULL, 0xa54ff53a5f1d36f1ULL,
    0x510e527fade682d1ULL, 0x9b05688c2b3e6c1fULL, 0x1f83d9abfb41bd6bULL, 0x5be0cd19137e2179ULL,
};

static const uint8_t penstock_blake2b_sigma[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};

static inline uint64_t penstock_rotate(uint64_t x, int n) { return (x >> n) | (x << (64 - n)); }

static inline void penstock_blake2b_compress(penstock_blake2b *s, int last) {
    uint64_t v[16], m[16];
    int i, r;
    memcpy(m, s->block, sizeof m); /* little-endian machines only, like all of Penstock */
    for (i = 0; i < 8; i++) {
        v[i] = s->h[i];
        v[i + 8] = penstock_blake2b_iv[i];
    }
    v[12] ^= s->counter;
    if (last) v[14] = ~v[14];
#define PENSTOCK_G(a, b, c, d, x, y)              \
    v[a] += v[b] + m[x];                          \
    v[d] = penstock_rotate(v[d] ^ v[a], 32);      \
    v[c] += v[d];                                 \
    v[b] = penstock_rotate(v[b] ^ v[c], 24);      \
    v[a] += v[b] + m[y];                          \
    v[d] = penstock_rotate(v[d] ^ v[a], 16);      \
    v[c] += v[d];                                 \
    v[b] = penstock_rotate(v[b] ^ v[c], 63);
    for (r = 0; r < 12; r++) {
        const uint8_t *p = penstock_blake2b_sigma[r];
        PENSTOCK_G(0, 4, 8, 12, p[0], p[1])
        PENSTOCK_G(1, 5, 9, 13, p[2], p[3])
        PENSTOCK_G(2, 6, 10, 14, p[4], p[5])
        PENSTOCK_G(3, 7, 11, 15, p[6], p[7])
        PENSTOCK_G(0, 5, 10, 15, p[8], p[9])
        PENSTOCK_G(1, 6, 11, 12, p[10], p[11])
        PENSTOCK_G(2, 7, 8, 13, p[12], p[13])
        PENSTOCK_G(3, 4, 9, 14, p[14], p[15])
    }
#undef PENSTOCK_G
    for (i = 0; i < 8; i++) s->h[i] ^= v[i] ^ v[i + 8];
}

static inline void penstock_blake2b_update(penstock_blake2b *s, const void *data, size_t size) {
    const uint8_t *at = data;
    while (size) {
        size_t room = PENSTOCK_BLAKE2B_BLOCK - s->filled;
        size_t taken = size < room ? size : room;
        if (room == 0) { /* only when more follows: the last block is compressed by finish */
            s->counter += PENSTOCK_BLAKE2B_BLOCK;
            penstock_blake2b_compress(s, 0);
            s->filled = 0;
            continue;
        }
        memcpy(s->block + s->filled, at, taken);
        s->filled += taken;
        at += taken;
        size -= taken;
    }
}

/* `key_size` is 0..64; 0: without a key. */
static inline void penstock_blake2b_start(penstock_blake2b *s, const void *key, size_t key_size, size_t digest_size) {
    memset(s, 0, sizeof *s);
    memcpy(s->h, penstock_blake2b_iv, sizeof s->h);
    s->h[0] ^= 0x01010000 ^ (key_size << 8) ^ digest_size;
    memcpy(s->block, key, key_size);
    s->filled = key_size ? PENSTOCK_BLAKE2B_BLOCK : 0;
}

static inline void penstock_blake2b_finish(penstock_blake2b *s, void *digest, size_t digest_size) {
    s->counter += s->filled;
    memset(s->block + s->filled, 0, PENSTOCK_BLAKE2B_BLOCK - s->filled);
    penstock_blake2b_compress(s, 1);
    memcpy(digest, s->h, digest_size);
}

#endif

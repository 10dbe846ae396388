/* CRC-32C (Castagnoli), reflected, as RFC 3720: crc32c("123456789") = 0xe3069283.
 *
 * crc32c_extend(crc32c_extend(0, a), b) equals crc32c_extend(0, a followed by b). Uses the processor's instructions where
 * it has them, detected at run time, so that one build serves every x86-64; else eight tables. Header only, because each
 * extension is one C file.
 *
 * The crc32 instruction takes 3 cycles, and one can begin in each cycle. So a long stretch is read as three lanes of equal
 * size at once, and their states are combined by carry-less multiplication: a state that `n` more bytes follow is
 * multiplied by x^(8n) modulo the polynomial. (V. Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32
 * Instruction", Intel 2011, with the multiplication in place of its tables.)
 */
#ifndef PENSTOCK_CRC32C_H
#define PENSTOCK_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t crc32c_table[8][256];
static int crc32c_mode; /* 0 not yet known, 1 tables, 2 instruction, 3 three lanes */

static void crc32c_fill_tables(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++) value = (value >> 1) ^ (0x82f63b78u & (0u - (value & 1)));
        crc32c_table[0][i] = value;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int row = 1; row < 8; row++)
            crc32c_table[row][i] = (crc32c_table[row - 1][i] >> 8) ^ crc32c_table[0][crc32c_table[row - 1][i] & 0xff];
}

static uint32_t crc32c_by_table(uint32_t crc, const unsigned char *data, size_t size) {
    while (size >= 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        crc = crc32c_table[7][low & 0xff] ^ crc32c_table[6][low >> 8 & 0xff] ^ crc32c_table[5][low >> 16 & 0xff] ^
              crc32c_table[4][low >> 24] ^ crc32c_table[3][data[4]] ^ crc32c_table[2][data[5]] ^ crc32c_table[1][data[6]] ^
              crc32c_table[0][data[7]];
        data += 8;
        size -= 8;
    }
    while (size--) crc = (crc >> 8) ^ crc32c_table[0][(crc ^ *data++) & 0xff];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#define PENSTOCK_CRC32C_SSE42 1
#define CRC32C_LONG_LANE 512 /* bytes; a multiple of 8 */
#define CRC32C_SHORT_LANE 64

typedef long long crc32c_wide __attribute__((vector_size(16)));

/* Multipliers of the states of the first and the second lane, of which two lanes and one follow. */
static uint32_t crc32c_long_shift[2], crc32c_short_shift[2];

/* x^(8 * bytes - 33) modulo the polynomial, reflected. 33: what a product and its reduction add. */
static uint32_t crc32c_shift_by(size_t bytes) {
    uint32_t value = 0x80000000u;
    for (size_t i = 8 * bytes - 33; i; i--) value = (value >> 1) ^ (0x82f63b78u & (0u - (value & 1)));
    return value;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_by_instruction(uint32_t crc, const unsigned char *data, size_t size) {
    uint64_t wide = crc;
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        wide = __builtin_ia32_crc32di(wide, word);
        data += 8;
        size -= 8;
    }
    crc = (uint32_t)wide;
    while (size--) crc = __builtin_ia32_crc32qi(crc, *data++);
    return crc;
}

__attribute__((target("sse4.2,pclmul"))) static inline uint64_t crc32c_product(uint64_t state, uint32_t shift) {
    crc32c_wide left = {(long long)state, 0}, right = {(long long)shift, 0};
    return (uint64_t)__builtin_ia32_pclmulqdq128(left, right, 0)[0];
}

/* Three lanes per round, as long as three fit. Returns the state; moves `data` and `size` behind what it read. */
__attribute__((target("sse4.2,pclmul"))) static inline uint64_t crc32c_rounds(
    uint64_t crc, const unsigned char **data, size_t *size, size_t lane, const uint32_t *shift) {
    while (*size >= 3 * lane) {
        const unsigned char *at = *data, *end = at + lane;
        uint64_t second = 0, third = 0;
        for (; at < end; at += 8) {
            uint64_t word[3];
            memcpy(&word[0], at, 8);
            memcpy(&word[1], at + lane, 8);
            memcpy(&word[2], at + 2 * lane, 8);
            crc = __builtin_ia32_crc32di(crc, word[0]);
            second = __builtin_ia32_crc32di(second, word[1]);
            third = __builtin_ia32_crc32di(third, word[2]);
        }
        crc = third ^ __builtin_ia32_crc32di(0, crc32c_product(crc, shift[0]) ^ crc32c_product(second, shift[1]));
        *data += 3 * lane;
        *size -= 3 * lane;
    }
    return crc;
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t crc32c_by_lanes(uint32_t crc, const unsigned char *data, size_t size) {
    uint64_t wide = crc32c_rounds(crc, &data, &size, CRC32C_LONG_LANE, crc32c_long_shift);
    wide = crc32c_rounds(wide, &data, &size, CRC32C_SHORT_LANE, crc32c_short_shift);
    return crc32c_by_instruction((uint32_t)wide, data, size);
}
#endif

/* Choose the fastest way that the processor has, up to `best` (see crc32c_mode). */
static void crc32c_choose(int best) {
    int mode = 1;
    crc32c_fill_tables();
#ifdef PENSTOCK_CRC32C_SSE42
    __builtin_cpu_init();
    if (best >= 2 && __builtin_cpu_supports("sse4.2")) mode = best >= 3 && __builtin_cpu_supports("pclmul") ? 3 : 2;
    for (int i = 0; i < 2; i++) {
        crc32c_long_shift[i] = crc32c_shift_by((2 - i) * CRC32C_LONG_LANE);
        crc32c_short_shift[i] = crc32c_shift_by((2 - i) * CRC32C_SHORT_LANE);
    }
#else
    (void)best;
#endif
    crc32c_mode = mode;
}

static void crc32c_setup(void) {
    crc32c_choose(3);
}

static inline uint32_t crc32c_extend(uint32_t crc, const void *data, size_t size) {
    if (!crc32c_mode) crc32c_setup();
#ifdef PENSTOCK_CRC32C_SSE42
    if (crc32c_mode == 3) return ~crc32c_by_lanes(~crc, (const unsigned char *)data, size);
    if (crc32c_mode == 2) return ~crc32c_by_instruction(~crc, (const unsigned char *)data, size);
#endif
    return ~crc32c_by_table(~crc, (const unsigned char *)data, size);
}

#endif

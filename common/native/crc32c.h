/* CRC-32C (Castagnoli), reflected, as RFC 3720: crc32c("123456789") = 0xe3069283.
 *
 * crc32c_extend(crc32c_extend(0, a), b) equals crc32c_extend(0, a followed by b). Uses the processor's instruction where
 * there is one, detected at run time, so that one build serves every x86-64; else eight tables. Header only, because each
 * extension is one C file.
 */
#ifndef PENSTOCK_CRC32C_H
#define PENSTOCK_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t crc32c_table[8][256];
static int crc32c_mode; /* 0 not yet known, 1 tables, 2 instruction */

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
#endif

static void crc32c_setup(int allow_instruction) {
    crc32c_fill_tables();
    crc32c_mode = 1;
#ifdef PENSTOCK_CRC32C_SSE42
    __builtin_cpu_init();
    if (allow_instruction && __builtin_cpu_supports("sse4.2")) crc32c_mode = 2;
#else
    (void)allow_instruction;
#endif
}

static inline uint32_t crc32c_extend(uint32_t crc, const void *data, size_t size) {
    if (!crc32c_mode) crc32c_setup(1);
#ifdef PENSTOCK_CRC32C_SSE42
    if (crc32c_mode == 2) return ~crc32c_by_instruction(~crc, (const unsigned char *)data, size);
#endif
    return ~crc32c_by_table(~crc, (const unsigned char *)data, size);
}

#endif

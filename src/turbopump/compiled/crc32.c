#include "crc32.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_FOLDING
#include <immintrin.h>
#endif

#define POLYNOMIAL 0xEDB88320u
#define FOLDED_AT_LEAST 64

/* TABLE[k][b]: what byte b adds to the checksum when k more bytes follow it. */
static uint32_t TABLE[8][256];
static bool folds;

void crc32_prepare(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? POLYNOMIAL : 0);
        TABLE[0][byte] = crc;
    }
    for (int row = 1; row < 8; row++)
        for (int byte = 0; byte < 256; byte++)
            TABLE[row][byte] = (TABLE[row - 1][byte] >> 8) ^ TABLE[0][TABLE[row - 1][byte] & 0xFF];
#ifdef HAS_FOLDING
    __builtin_cpu_init();
    folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

/* Eight bytes a step: 0.4 us for 1 KiB. */
static uint32_t by_table(uint32_t crc, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low = crc ^ (data[0] | data[1] << 8 | data[2] << 16 | (uint32_t)data[3] << 24);
        crc = TABLE[7][low & 0xFF] ^ TABLE[6][low >> 8 & 0xFF] ^ TABLE[5][low >> 16 & 0xFF] ^ TABLE[4][low >> 24] ^
              TABLE[3][data[4]] ^ TABLE[2][data[5]] ^ TABLE[1][data[6]] ^ TABLE[0][data[7]];
    }
    while (size--)
        crc = (crc >> 8) ^ TABLE[0][(crc ^ *data++) & 0xFF];
    return crc;
}

#ifdef HAS_FOLDING
#define CARRYLESS __attribute__((target("sse4.1,pclmul")))

CARRYLESS static inline __m128i load(const uint8_t *data)
{
    return _mm_loadu_si128((const __m128i *)data);
}

/* 128 bits of remainder moved over the bits that `constants` stand for, onto `next`. */
CARRYLESS static inline __m128i fold(__m128i remainder, __m128i constants, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(remainder, constants, 0x00);
    __m128i high = _mm_clmulepi64_si128(remainder, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Carry-less multiplication, 64 bytes a step: 0.05 us for 1 KiB. Takes at least 64 bytes, a multiple of 16.
 * Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009; the
 * constants are powers of x modulo the polynomial, bit-reflected. */
CARRYLESS static uint32_t by_folding(uint32_t crc, const uint8_t *data, size_t size)
{
    const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i by_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m128i by_64 = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    const __m128i low_halves = _mm_set_epi32(0, -1, 0, -1);

    __m128i a = _mm_xor_si128(load(data), _mm_cvtsi32_si128((int)crc));
    __m128i b = load(data + 16), c = load(data + 32), d = load(data + 48);
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64) {
        a = fold(a, by_512, load(data));
        b = fold(b, by_512, load(data + 16));
        c = fold(c, by_512, load(data + 32));
        d = fold(d, by_512, load(data + 48));
    }
    a = fold(fold(fold(a, by_128, b), by_128, c), by_128, d);
    for (; size >= 16; data += 16, size -= 16)
        a = fold(a, by_128, load(data));

    /* 128 bits to 64, 64 to 32, and the remainder of those (Barrett). */
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by_128, 0x10));
    a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, low_halves), by_64, 0x00));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(a, low_halves), barrett, 0x10);
    a = _mm_xor_si128(a, _mm_clmulepi64_si128(_mm_and_si128(quotient, low_halves), barrett, 0x00));
    return (uint32_t)_mm_extract_epi32(a, 1);
}
#endif

uint32_t crc32(const uint8_t *data, size_t size)
{
    uint32_t crc = ~0u;
#ifdef HAS_FOLDING
    if (folds && size >= FOLDED_AT_LEAST) {
        size_t folded = size & ~(size_t)15;
        crc = by_folding(crc, data, folded);
        data += folded, size -= folded;
    }
#endif
    return ~by_table(crc, data, size);
}

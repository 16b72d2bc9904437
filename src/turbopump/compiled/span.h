/* Borrowed bytes, and big-endian numbers, as on the wire and in the files. */

#ifndef TURBOPUMP_SPAN_H
#define TURBOPUMP_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const uint8_t *at;
    size_t size;
} Span;

static inline bool is(Span span, const char *word)
{
    return span.size == strlen(word) && memcmp(span.at, word, span.size) == 0;
}

static inline uint32_t get_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline uint64_t get_u64(const uint8_t *at)
{
    return (uint64_t)get_u32(at) << 32 | get_u32(at + 4);
}

/* Each `put` returns the address behind the written bytes. */

static inline uint8_t *put_span(uint8_t *at, Span span)
{
    if (span.size > 0) /* an empty span may have no address */
        memcpy(at, span.at, span.size);
    return at + span.size;
}

static inline uint8_t *put_u16(uint8_t *at, uint16_t number)
{
    at[0] = (uint8_t)(number >> 8);
    at[1] = (uint8_t)number;
    return at + 2;
}

static inline uint8_t *put_u32(uint8_t *at, uint32_t number)
{
    return put_u16(put_u16(at, (uint16_t)(number >> 16)), (uint16_t)number);
}

static inline uint8_t *put_u64(uint8_t *at, uint64_t number)
{
    return put_u32(put_u32(at, (uint32_t)(number >> 32)), (uint32_t)number);
}

#endif

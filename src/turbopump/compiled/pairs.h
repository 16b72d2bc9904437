/* The property string of a plain message: name \1 value \2, repeated.
 *
 * A string is stored unchanged if it consists of such pairs, none empty, no name twice, none that needs special
 * handling by the broker. Python passes these names (`produce/send.py`). */

#ifndef TURBOPUMP_PAIRS_H
#define TURBOPUMP_PAIRS_H

#include "span.h"

#define NAME_END 1
#define PAIR_END 2

typedef struct {
    Span unique_key;
    Span keys, tag;              /* empty: none */
    Span real_topic, real_queue; /* destination of a half message; empty: none */
    int32_t tags_code;           /* 0: no tag; unset if `is_ascii` is false */
    bool is_ascii;               /* unique key, keys and tag are ASCII */
    bool waits;                  /* is answered after the flush */
} Pairs;

typedef struct {
    const Span *names;
    size_t count;
} Names;

/* Reads properties into `pairs`. False: they are not plain, left to Python. */
bool take_pairs(Span text, Names not_plain, Pairs *pairs);

/* Reads properties into `pairs`. False: the message is not stored unchanged, or its unique key needs escapes. */
bool read_pairs(Span text, Names not_plain, Pairs *pairs);

/* Copies the pairs with other names than these. Returns the size of the copy, at most that of `text`. */
size_t leave_out(Span text, Names left, uint8_t *kept);

/* Java's hash goes over UTF-16: a character beyond 0xFFFF is two units. */
static inline uint32_t add_character(uint32_t hash, uint32_t character)
{
    if (character <= 0xFFFF)
        return 31 * hash + character;
    character -= 0x10000;
    hash = 31 * hash + (0xD800 | character >> 10);
    return 31 * hash + (0xDC00 | (character & 0x3FF));
}

bool is_ascii(Span text);

/* Returns Java's String.hashCode() of prefix + text, from the hash of the prefix; `text` is ASCII. */
int32_t java_hash(int32_t prefix, Span text);

#endif

/* The property string of a plain message: name \1 value \2, repeated.
 *
 * A string is kept letter for letter when it is nothing but such pairs, none empty, no name twice, none that the
 * broker treats in a way of its own. Which names those are is Python's to say (`send.py`). */

#ifndef TURBOPUMP_PAIRS_H
#define TURBOPUMP_PAIRS_H

#include "span.h"

#define NAME_END 1
#define PAIR_END 2

typedef struct {
    Span unique_key;
    Span keys, tag;              /* empty: none */
    Span real_topic, real_queue; /* where a half message belongs; empty: it does not say */
    int32_t tags_code;           /* 0: no tag; not known when `is_ascii` is false */
    bool is_ascii;               /* unique key, keys and tag */
    bool waits;                  /* for the flush, before it is answered */
} Pairs;

typedef struct {
    const Span *names;
    size_t count;
} Names;

/* Whether these are pairs in which nothing is for Python to decide; then what is to be known of them is in `pairs`. */
bool take_pairs(Span text, Names not_plain, Pairs *pairs);

/* Whether a message with these properties is kept as it was sent, and its unique key can stand in an answer; then what is to be known of them is in `pairs`. */
bool read_pairs(Span text, Names not_plain, Pairs *pairs);

/* Copies the pairs whose names are not among these; the size of the copy, which is no larger than `text`. */
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

/* Java's String.hashCode() of prefix + text, given the prefix's; `text` is ASCII. */
int32_t java_hash(int32_t prefix, Span text);

#endif

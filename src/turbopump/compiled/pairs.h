/* The property string of a plain send: name \1 value \2, repeated.
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
    Span keys;        /* empty: none */
    int32_t tags_code; /* 0: no tag */
    bool waits;       /* for the flush, before it is answered */
} Pairs;

typedef struct {
    const Span *names;
    size_t count;
} Names;

/* Whether a message with these properties is kept as it was sent; then what is to be known of them is in `pairs`. */
bool read_pairs(Span text, Names not_plain, Pairs *pairs);

/* Java's String.hashCode() of prefix + text, given the prefix's; `text` is ASCII. */
int32_t java_hash(int32_t prefix, Span text);

#endif

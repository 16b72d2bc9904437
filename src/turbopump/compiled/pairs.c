#include "pairs.h"

#define MAX_PAIRS 64 /* with more, the search for duplicate names would be slower than Python's dict */

static bool equal(Span one, Span other)
{
    return one.size == other.size && memcmp(one.at, other.at, one.size) == 0;
}

static bool among(Span name, Names names)
{
    for (size_t i = 0; i < names.count; i++)
        if (equal(name, names.names[i]))
            return true;
    return false;
}

/* The unique key is copied into a JSON answer, so it must not need escapes. */
static bool is_alphanumeric(Span text)
{
    for (size_t i = 0; i < text.size; i++) {
        uint8_t letter = text.at[i] | 0x20;
        if (!(letter >= 'a' && letter <= 'z') && !(text.at[i] >= '0' && text.at[i] <= '9'))
            return false;
    }
    return text.size > 0;
}

int32_t java_hash(int32_t prefix, Span text)
{
    uint32_t hash = (uint32_t)prefix;
    for (size_t i = 0; i < text.size; i++)
        hash = 31 * hash + text.at[i];
    return (int32_t)hash;
}

/* Reads one pair from the front. */
static bool take_pair(Span *text, Span *name, Span *value)
{
    const uint8_t *end = memchr(text->at, PAIR_END, text->size);
    if (end == NULL)
        return false;
    size_t size = (size_t)(end - text->at);
    const uint8_t *middle = memchr(text->at, NAME_END, size);
    if (middle == NULL || middle == text->at || middle + 1 == end)
        return false;
    *name = (Span){text->at, (size_t)(middle - text->at)};
    *value = (Span){middle + 1, (size_t)(end - middle - 1)};
    *text = (Span){end + 1, text->size - size - 1};
    return true;
}

bool is_ascii(Span text)
{
    uint8_t all = 0;
    for (size_t i = 0; i < text.size; i++)
        all |= text.at[i];
    return all < 0x80;
}

static void note(Span name, Span value, Pairs *pairs)
{
    if (is(name, "UNIQ_KEY"))
        pairs->unique_key = value;
    else if (is(name, "KEYS"))
        pairs->keys = value;
    else if (is(name, "TAGS"))
        pairs->tag = value;
    else if (is(name, "WAIT"))
        pairs->waits = !is(value, "false");
    else if (is(name, "REAL_TOPIC"))
        pairs->real_topic = value;
    else if (is(name, "REAL_QID"))
        pairs->real_queue = value;
}

bool take_pairs(Span text, Names not_plain, Pairs *pairs)
{
    Span names[MAX_PAIRS];
    Names seen = {names, 0};
    *pairs = (Pairs){.waits = true};
    if (text.size > 0 && memchr(text.at, 0, text.size) != NULL) /* Python checks the number of zeros */
        return false;
    while (text.size > 0) {
        Span name, value;
        if (seen.count == MAX_PAIRS || !take_pair(&text, &name, &value) || among(name, seen) ||
            among(name, not_plain))
            return false;
        names[seen.count++] = name;
        note(name, value, pairs);
    }
    pairs->tags_code = java_hash(0, pairs->tag);
    pairs->is_ascii = is_ascii(pairs->unique_key) && is_ascii(pairs->keys) && is_ascii(pairs->tag);
    return true;
}

bool read_pairs(Span text, Names not_plain, Pairs *pairs)
{
    return take_pairs(text, not_plain, pairs) && pairs->is_ascii && is_alphanumeric(pairs->unique_key);
}

size_t leave_out(Span text, Names left, uint8_t *kept)
{
    uint8_t *at = kept;
    Span name, value;
    while (text.size > 0) {
        Span before = text;
        if (!take_pair(&text, &name, &value))
            break;
        if (!among(name, left))
            at = put_span(at, (Span){before.at, before.size - text.size});
    }
    return (size_t)(at - kept);
}

/* Reads the JSON header of a plain send in place.
 *
 *     {"code":310,"extFields":{"a":"group","b":"topic", ... },"flag":0,"language":"JAVA","opaque":7, ... }
 *
 * Accepts what clients write: no space between the parts, ASCII, the fields of `extFields` as strings, the other
 * values strings or integers, no name twice. Other JSON is not a plain send and left to Python. What is accepted is
 * read as Python does. */

#ifndef TURBOPUMP_SEND_HEADER_H
#define TURBOPUMP_SEND_HEADER_H

#include "span.h"

typedef struct {
    int32_t opaque;
    int32_t command_flag;
    Span topic;
    Span properties; /* as in the header, with JSON's escapes */
    int32_t queue_id;
    int32_t sys_flag;
    int64_t born_timestamp;
    int32_t flag;
    int32_t reconsume_times;
} SendHeader;

/* Reads the header of a plain send into `send`. False: it is not plain. */
bool read_send_header(Span header, SendHeader *send);

#define MAX_SIGNED_FIELDS 32 /* Apache's clients send 13 to 16; headers with more are left to Python */

/* All of `extFields` in the order of the header, as in the header: the properties with JSON's escapes. */
typedef struct {
    size_t count;
    struct {
        Span name, value;
    } field[MAX_SIGNED_FIELDS];
} Fields;

/* Reads the header of a plain send, and all of its fields. False: it is not plain, or has too many fields. */
bool read_send_fields(Span header, SendHeader *send, Fields *fields);

/* Removes JSON's escapes from a string of such a header. Returns the number of bytes written; -1 if they are more
 * than `room` or not ASCII. */
ptrdiff_t unescape(Span text, uint8_t *out, size_t room);

#endif

/* The JSON header of a plain send, read in place.
 *
 *     {"code":310,"extFields":{"a":"group","b":"topic", ... },"flag":0,"language":"JAVA","opaque":7, ... }
 *
 * Known is what clients write: no space between the parts, ASCII, the fields of `extFields` as strings, the other
 * values strings or whole numbers, no name twice. Whatever else JSON allows is "no plain send" here: Python reads it
 * and judges. What is accepted means the same to both. */

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

/* Whether this is the header of a plain send; then it is in `send`. */
bool read_send_header(Span header, SendHeader *send);

/* Takes JSON's escapes out of a string of such a header. The number of bytes written; -1 when they are more than
 * `room` or no ASCII. */
ptrdiff_t unescape(Span text, uint8_t *out, size_t room);

#endif

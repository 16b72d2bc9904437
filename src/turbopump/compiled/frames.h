/* Frames with a JSON header, as in `protocol/frame.py`. */

#ifndef TURBOPUMP_FRAMES_H
#define TURBOPUMP_FRAMES_H

#include <sys/types.h>

#include "span.h"

#define PREFIX_SIZE 8 /* i32 length of the rest, u8 encoding (0: JSON), u24 length of the header */
#define MAX_HEADER 0xFFFFFF

/* Returns the size of the whole JSON frame at the front; 0 when Python's `cut` would not accept one. */
static inline size_t next_frame(Span data, ssize_t max_frame, Span *header, Span *body)
{
    if (data.size < PREFIX_SIZE)
        return 0;
    size_t length = get_u32(data.at), header_size = get_u32(data.at + 4);
    if (length < 4 || length > data.size - 4 || length + 4 > (size_t)max_frame)
        return 0;
    if (header_size == 0 || header_size > length - 4 || header_size > MAX_HEADER)
        return 0;
    *header = (Span){data.at + PREFIX_SIZE, header_size};
    *body = (Span){header->at + header_size, length - 4 - header_size};
    return 4 + length;
}

#endif

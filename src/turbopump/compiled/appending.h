/* One append: records into the mapped log, entries into the tails of their queues, keys for the index.
 *
 * The objects are Python's own (log, appender, queues, list of keys); nothing is kept beside them. What is not plain
 * (a file without room, a queue with extensions, an IPv6 host) is left to Python: `append.py` is the reference. */

#ifndef TURBOPUMP_APPENDING_H
#define TURBOPUMP_APPENDING_H

#include <Python.h>

#include "span.h"

#define RECORD_HEAD 88 /* of a record, before the body */
#define HOST_SIZE 8    /* IPv4: 4 bytes of address, i32 port */
#define SPARE 24       /* what two IPv6 hosts would add: Python leaves as much at the end of a file */
#define MAX_PROPERTIES 32767
#define MAGIC 0xDAA320A7u
#define TRANSACTION_MASK 0xC /* bits of a message's sys flag */
#define COMMITTED 8          /* one of them */
#define HOSTS_MASK 0x30
#define INNER_BATCH 0x80

/* What the store writes to. */
typedef struct {
    PyObject *log, *flags, *appender, *keys, *dirty, *now_ms;
} Parts;

typedef struct {
    Parts parts;
    PyObject *arrivals; /* a list, or None: nobody waits */
    Py_ssize_t messages;
    /* the log, once it is open */
    Py_buffer log;
    PyObject *store_host;
    PyObject *now;
    int64_t now_ms, base, begin, position, limit, touched, last;
} Append;

/* A queue while it is appended to. */
typedef struct {
    PyObject *queue;        /* owned, as are these two */
    PyObject *topic, *tail; /* bytes: length and name; bytearray: entries */
    int64_t queue_id, begin, next_offset, put_bytes, last;
} Lane;

/* A message, and what is derived of it. */
typedef struct {
    Span body, properties, added; /* `added` follows the properties */
    uint32_t body_crc;            /* of 31 bits */
    int32_t flag, sys_flag, reconsume_times, tags_code;
    int64_t born_timestamp, prepared;
    Span born_host, store_host;
    Span unique_key, keys; /* UTF-8, for the index */
} Message;

Span span_of(PyObject *bytes);
PyObject *text_of(Span text); /* UTF-8 */

/* 1: it can be written, 0: Python says why not, -1: an exception is set. Afterwards `close_log` in any case. */
int open_log(Append *append);
/* Leaves log and appender as they are after the last message that was written. */
int close_log(Append *append);
/* 1: so many bytes have room in the current file, 0: they have not, -1: an exception is set. */
int make_room(Append *append, size_t size);

/* 1: plain messages can go there, 0: Python has to, -1: an exception is set. Afterwards `close_lane` in any case. */
int open_lane(PyObject *queue, Lane *lane);
/* Leaves the queue's numbers as they are after the last message. Called with or without an exception set. */
int close_lane(Lane *lane);

size_t size_of(const Lane *lane, const Message *message);
/* Writes record, entry and keys of a message for which there is room. -1: an exception is set, nothing was written. */
int add_message(Append *append, Lane *lane, const Message *message);

#endif

/* One append: records into the mapped log, entries into the tails of their queues, keys for the index.
 *
 * The objects are Python's (log, appender, queues, list of keys); there is no other state. What is not plain (a full
 * file, a queue with extensions, an IPv6 host) is left to Python: `append.py` is the reference. */

#ifndef TURBOPUMP_APPENDING_H
#define TURBOPUMP_APPENDING_H

#include <Python.h>

#include "span.h"

#define RECORD_HEAD 88 /* size of a record before the body */
#define HOST_SIZE 8    /* IPv4: 4 bytes of address, i32 port */
#define SPARE 24       /* additional size of two IPv6 hosts: Python reserves it at the end of a file too */
#define MAX_PROPERTIES 32767
#define MAGIC 0xDAA320A7u
#define TRANSACTION_MASK 0xC /* of a message's sys flag */
#define COMMITTED 8          /* value of these bits */
#define HOSTS_MASK 0x30
#define INNER_BATCH 0x80

/* Objects of the store that an append changes. */
typedef struct {
    PyObject *log, *flags, *appender, *keys, *dirty, *now_ms;
} Parts;

typedef struct {
    Parts parts;
    PyObject *arrivals; /* a list, or None if no pull waits */
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

/* A message and the values derived from it. */
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

/* 1: it can be written, 0: left to Python, -1: an exception is set. Call `close_log` in any case. */
int open_log(Append *append);
/* Updates log and appender to the last written message. */
int close_log(Append *append);
/* 1: the bytes fit into the current file, 0: they do not, -1: an exception is set. */
int make_room(Append *append, size_t size);

/* 1: the queue takes plain messages, 0: left to Python, -1: an exception is set. Call `close_lane` in any case. */
int open_lane(PyObject *queue, Lane *lane);
/* Updates the queue's numbers to the last message. Called with or without an exception set. */
int close_lane(Lane *lane);

size_t size_of(const Lane *lane, const Message *message);
/* Writes record, entry and keys of a message that fits. -1: an exception is set, nothing was written. */
int add_message(Append *append, Lane *lane, const Message *message);

/* The parts of `add_message` that a record needs which is in the log already. -1: an exception is set. */

/* For the index: queue, log offset, store time, unique key, keys. */
int add_keys(PyObject *waiting, const Lane *lane, int64_t physical, PyObject *time, Span unique_key, Span keys);
/* An entry at the end of the queue's tail. */
int add_entry(PyObject *dirty, const Lane *lane, int32_t tags_code, int64_t physical, size_t size);
/* For waiting pulls: queue, next offset, tag code. */
int add_arrival(PyObject *arrivals, const Lane *lane, int32_t tags_code);
/* Takes the last row back. Called with an exception set. */
void drop_last(PyObject *list);

#endif

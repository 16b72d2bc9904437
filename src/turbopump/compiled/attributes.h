/* Attributes of Python's objects, by name. */

#ifndef TURBOPUMP_ATTRIBUTES_H
#define TURBOPUMP_ATTRIBUTES_H

#include <Python.h>

#include <stdint.h>

#define ATTRIBUTES(X) \
    X(at) X(base) X(blocked) X(buffer) X(bytes) X(is_plain) X(last_physical) X(last_record) X(last_timestamp) X(limit) \
    X(max_offset) X(messages) X(next_offset) X(offset) X(position) X(put_bytes) X(queue_id) X(root) X(store_host) X(tail) \
    X(topic_field) X(topic_hash) X(touch) X(touched)

#define FIELD(name) PyObject *name;
typedef struct {
    ATTRIBUTES(FIELD)
} AttributeNames;
#undef FIELD

/* `names.position` is the interned string "position". */
extern AttributeNames names;

/* All of these return -1 and set an exception on failure. */
int intern_names(void);
int get_number(PyObject *object, PyObject *name, int64_t *number);
int set_number(PyObject *object, PyObject *name, int64_t number);
int add_number(PyObject *object, PyObject *name, int64_t more);
int is_true(PyObject *object, PyObject *name);

#endif

/* What appends of groups have in common. */

#ifndef TURBOPUMP_GROUPS_H
#define TURBOPUMP_GROUPS_H

#include <Python.h>

#include "appending.h"
#include "pairs.h"

#define MAX_NAMES 64

/* Names of properties, from a tuple of bytes. */
typedef struct {
    Span spans[MAX_NAMES];
    Names names;
} NameTable;

/* -1: an exception is set. */
int read_names(PyObject *tuple, NameTable *table);

/* Properties of a message. 1: nothing in them is for Python to decide, 0: it is, -1: an exception is set. */
int read_properties(Span text, Names not_plain, Pairs *pairs);

/* A value of `places` for (topic, queue id), borrowed; it is asked of Python once. NULL: an exception is set. */
PyObject *place_of(PyObject *places, const Pairs *pairs, PyObject *ask);

/* What was written stays, also when there is an exception. `done`, or -1. */
int close_all(Append *append, Lane *lanes, size_t count, int done);

/* `commits.c` */
PyObject *commit_halves(Parts parts, PyObject *arguments);

#endif

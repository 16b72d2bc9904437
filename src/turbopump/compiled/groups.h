/* Shared by appends of groups. */

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

/* Reads the properties of a message. 1: plain, 0: left to Python, -1: an exception is set. */
int read_properties(Span text, Names not_plain, Pairs *pairs);

/* Returns the value of `places` for (topic, queue id), borrowed; calls Python once. NULL: an exception is set. */
PyObject *place_of(PyObject *places, const Pairs *pairs, PyObject *ask);

/* Ends an append: what was written stays, also after an exception. Returns `done`, or -1. */
int close_all(Append *append, Lane *lanes, size_t count, int done);

/* `commits.c` */
PyObject *commit_halves(Parts parts, PyObject *arguments);

#endif

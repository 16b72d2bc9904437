/* Exports of the extension module `turbopump.compiled._twins`. */

#ifndef TURBOPUMP_TWINS_H
#define TURBOPUMP_TWINS_H

#include <Python.h>

extern PyType_Spec plain_sends_spec;
extern PyType_Spec groups_spec;

PyObject *put_keys(PyObject *module, PyObject *arguments);
PyObject *dispatch_copied(PyObject *module, PyObject *arguments);
PyObject *signed_send(PyObject *module, PyObject *arguments);

#endif

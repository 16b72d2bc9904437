#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "attributes.h"
#include "crc32.h"
#include "twins.h"

static int add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type == NULL)
        return -1;
    int done = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return done;
}

static int fill(PyObject *module)
{
    crc32_prepare();
    if (intern_names() < 0)
        return -1;
    return add_type(module, &plain_sends_spec) < 0 || add_type(module, &groups_spec) < 0 ? -1 : 0;
}

static PyMethodDef functions[] = {
    {"put_keys", put_keys, METH_VARARGS, "The twin of `Index.put_many` and `hashed`; see `IndexFile.put_keys`."},
    {"dispatch_copied", dispatch_copied, METH_VARARGS, "The twin of `ReplicaLog.dispatch` for plain records."},
    {"signed_send", signed_send, METH_VARARGS, "What `auth.signature` needs to judge a plain send at a position."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, fill},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED}, /* the names are interned once */
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "turbopump.compiled._twins",
    .m_doc = "Compiled twins of hot loops; `turbopump.compiled` says which and why.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__twins(void)
{
    return PyModuleDef_Init(&definition);
}

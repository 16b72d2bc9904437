#define PY_SSIZE_T_CLEAN
#include "attributes.h"

AttributeNames names;

int intern_names(void)
{
#define INTERN(name) \
    if (names.name == NULL && (names.name = PyUnicode_InternFromString(#name)) == NULL) \
        return -1;
    ATTRIBUTES(INTERN)
#undef INTERN
    return 0;
}

int get_number(PyObject *object, PyObject *name, int64_t *number)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL)
        return -1;
    *number = PyLong_AsLongLong(value);
    Py_DECREF(value);
    return *number == -1 && PyErr_Occurred() ? -1 : 0;
}

int set_number(PyObject *object, PyObject *name, int64_t number)
{
    PyObject *value = PyLong_FromLongLong(number);
    if (value == NULL)
        return -1;
    int done = PyObject_SetAttr(object, name, value);
    Py_DECREF(value);
    return done;
}

int add_number(PyObject *object, PyObject *name, int64_t more)
{
    int64_t number;
    return get_number(object, name, &number) < 0 ? -1 : set_number(object, name, number + more);
}

int is_true(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL)
        return -1;
    int found = PyObject_IsTrue(value);
    Py_DECREF(value);
    return found;
}

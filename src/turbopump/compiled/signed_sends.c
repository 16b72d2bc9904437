/* Reads a signed plain send: who signed it, with which signature, and the content that was signed.
 *
 * In: the bytes of a read event and a position. Out: for the plain send there, what `auth/signature.py` needs to judge
 * it. Anything else (other requests, other encodings, unsigned sends, a name twice, light queues) is left to Python,
 * which is the reference. Nothing is decided here and no secret is seen. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>

#include "appending.h"
#include "frames.h"
#include "send_header.h"
#include "twins.h"

#define RESPONSE 1 /* bit of a command's flag */

static const char ACCESS_KEY[] = "AccessKey", SIGNATURE[] = "Signature";
static const char LIGHT_QUEUES[] = "INNER_MULTI_DISPATCH"; /* a message with it goes to further topics */
static const char BY_LETTER[] = "i", BY_WORD[] = "properties"; /* the field that may hold escapes */

static int compare(Span one, Span other)
{
    size_t size = one.size < other.size ? one.size : other.size;
    int order = memcmp(one.at, other.at, size);
    return order != 0 ? order : (one.size > other.size) - (one.size < other.size);
}

/* Sorts by name: insertion, since clients send nearly sorted fields. False: a name is there twice. */
static bool sort(Fields *fields)
{
    for (size_t i = 1; i < fields->count; i++) {
        for (size_t j = i; j > 0; j--) {
            int order = compare(fields->field[j - 1].name, fields->field[j].name);
            if (order == 0)
                return false;
            if (order < 0)
                break;
            Span name = fields->field[j].name, value = fields->field[j].value;
            fields->field[j] = fields->field[j - 1];
            fields->field[j - 1].name = name;
            fields->field[j - 1].value = value;
        }
    }
    return true;
}

static bool find(const Fields *fields, const char *name, Span *value)
{
    for (size_t i = 0; i < fields->count; i++) {
        if (is(fields->field[i].name, name)) {
            *value = fields->field[i].value;
            return value->size > 0;
        }
    }
    return false;
}

/* Writes the values of all fields but the signature, in the order of their names. NULL: not ASCII or too long. */
static uint8_t *put_values(uint8_t *at, const uint8_t *end, const Fields *fields)
{
    for (size_t i = 0; i < fields->count; i++) {
        Span name = fields->field[i].name, value = fields->field[i].value;
        if (is(name, SIGNATURE))
            continue;
        if (is(name, BY_LETTER) || is(name, BY_WORD)) {
            ptrdiff_t size = unescape(value, at, (size_t)(end - at));
            if (size < 0)
                return NULL;
            at += size;
        } else {
            at = put_span(at, value);
        }
    }
    return at;
}

static bool contains(Span text, const char *word, size_t size)
{
    const uint8_t *at = text.at, *end = text.at + text.size;
    while ((size_t)(end - at) >= size && (at = memchr(at, word[0], (size_t)(end - at) - size + 1)) != NULL) {
        if (memcmp(at, word, size) == 0)
            return true;
        at++;
    }
    return false;
}

/* Returns the content as bytes; None: left to Python; NULL: an exception is set. */
static PyObject *content_of(const Fields *fields, Span body)
{
    size_t room = body.size;
    for (size_t i = 0; i < fields->count; i++)
        room += fields->field[i].value.size;
    PyObject *content = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room);
    if (content == NULL)
        return NULL;
    uint8_t *begin = (uint8_t *)PyBytes_AS_STRING(content), *at = put_values(begin, begin + room - body.size, fields);
    if (at == NULL || contains((Span){begin, (size_t)(at - begin)}, LIGHT_QUEUES, sizeof LIGHT_QUEUES - 1)) {
        Py_DECREF(content);
        Py_RETURN_NONE;
    }
    at = put_span(at, body);
    if (_PyBytes_Resize(&content, at - begin) < 0)
        return NULL;
    return content;
}

static PyObject *row_of(size_t size, const Fields *fields, Span topic, Span body)
{
    Span key, signature;
    if (!find(fields, ACCESS_KEY, &key) || !find(fields, SIGNATURE, &signature))
        Py_RETURN_NONE;
    PyObject *content = content_of(fields, body);
    if (content == NULL || content == Py_None)
        return content;
    PyObject *named = text_of(key), *on = text_of(topic);
    PyObject *given = PyBytes_FromStringAndSize((const char *)signature.at, (Py_ssize_t)signature.size);
    PyObject *row = NULL;
    if (named != NULL && on != NULL && given != NULL)
        row = Py_BuildValue("nOOOOn", (Py_ssize_t)size, named, given, on, content, (Py_ssize_t)body.size);
    Py_XDECREF(named);
    Py_XDECREF(on);
    Py_XDECREF(given);
    Py_DECREF(content);
    return row;
}

PyObject *signed_send(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data;
    Py_ssize_t at, max_frame;
    if (!PyArg_ParseTuple(arguments, "y*nn", &data, &at, &max_frame))
        return NULL;
    Span rest = {(const uint8_t *)data.buf + at, at < 0 || at > data.len ? 0 : (size_t)(data.len - at)}, header, body;
    SendHeader send;
    Fields fields;
    size_t size = next_frame(rest, max_frame, &header, &body);
    PyObject *row;
    if (size > 0 && read_send_fields(header, &send, &fields) && !(send.command_flag & RESPONSE) && sort(&fields))
        row = row_of(size, &fields, send.topic, body);
    else
        row = Py_NewRef(Py_None);
    PyBuffer_Release(&data);
    return row;
}

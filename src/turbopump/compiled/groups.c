/* Appends many messages at once: a batch send, half messages of a ledger, and their commit.
 *
 * In: the body of a request, or the offsets of half records in the log. Out: the same records, entries and keys as
 * the loops in `produce/send.py`, `ledger/send.py` and `ledger/settlement.py` make. A group is appended as a whole or
 * not at all: everything is read first, and if anything is not plain, does not fit into the current file or might be
 * refused, the result is None and Python, which is the reference, handles the group. Commits are in `commits.c`. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "appending.h"
#include "crc32.h"
#include "groups.h"
#include "twins.h"

#define BATCH_HEAD 20 /* of a message in a batch: i32 size, magic, crc, flag, length of the body */
#define MOST_MESSAGES 65536
#define ID_SIZE 16    /* hexadecimal digits of a log offset */

typedef struct {
    PyObject_HEAD
    Parts parts;
} Groups;

int read_names(PyObject *tuple, NameTable *table)
{
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    for (Py_ssize_t i = 0; i < count && i < MAX_NAMES; i++) {
        if (!PyBytes_Check(PyTuple_GET_ITEM(tuple, i)))
            break;
        table->spans[i] = span_of(PyTuple_GET_ITEM(tuple, i));
        table->names = (Names){table->spans, (size_t)i + 1};
    }
    if ((size_t)count == table->names.count)
        return 0;
    PyErr_Format(PyExc_TypeError, "names are bytes, and %d at most", MAX_NAMES);
    return -1;
}

/* Checks that the text is UTF-8 and computes its Java hash. -1: an exception is set. */
static int hash_of(Span text, int32_t *hash)
{
    PyObject *found = text_of(text);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        return 0;
    }
    if (found == NULL)
        return -1;
    uint32_t sum = 0;
    for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(found); i++)
        sum = add_character(sum, PyUnicode_READ_CHAR(found, i));
    *hash = (int32_t)sum;
    Py_DECREF(found);
    return 1;
}

int read_properties(Span text, Names not_plain, Pairs *pairs)
{
    if (!take_pairs(text, not_plain, pairs))
        return 0;
    if (pairs->is_ascii)
        return 1;
    int32_t ignored;
    int done = hash_of(pairs->unique_key, &ignored);
    if (done > 0)
        done = hash_of(pairs->keys, &ignored);
    return done > 0 ? hash_of(pairs->tag, &pairs->tags_code) : done;
}

/* Messages in a batch: `batch.py` shows the bytes */

typedef struct {
    Span body, properties;
    int32_t flag;
    Pairs pairs;
    int64_t sys_flag; /* of a half message, by its destination topic */
} InBatch;

typedef struct {
    InBatch *messages;
    size_t count, room;
} Batch;

/* Reads one message from the front. False: it is broken. */
static bool next_in_batch(Span *data, InBatch *message)
{
    if (data->size < BATCH_HEAD + 2)
        return false;
    const uint8_t *at = data->at;
    int64_t size = (int32_t)get_u32(at), body_size = (int32_t)get_u32(at + 16);
    if (body_size < 0 || size > (int64_t)data->size || BATCH_HEAD + body_size + 2 > size)
        return false;
    const uint8_t *properties = at + BATCH_HEAD + body_size + 2;
    int64_t left = size - BATCH_HEAD - body_size - 2;
    if (left > MAX_PROPERTIES || ((int64_t)properties[-2] << 8 | properties[-1]) != left)
        return false;
    message->flag = (int32_t)get_u32(at + 12);
    message->body = (Span){at + BATCH_HEAD, (size_t)body_size};
    message->properties = (Span){properties, (size_t)left};
    *data = (Span){at + size, data->size - (size_t)size};
    return true;
}

static InBatch *one_more(Batch *batch)
{
    if (batch->count == batch->room) {
        size_t room = batch->room ? 2 * batch->room : 1024;
        InBatch *grown = PyMem_Realloc(batch->messages, room * sizeof(InBatch));
        if (grown == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        batch->messages = grown;
        batch->room = room;
    }
    return &batch->messages[batch->count++];
}

/* 1: all are plain, 0: at least one is not, -1: an exception is set. */
static int read_batch(Span data, Names not_plain, size_t most_messages, size_t largest, Batch *batch)
{
    while (data.size > 0) {
        InBatch *message = one_more(batch);
        if (message == NULL)
            return -1;
        if (batch->count > most_messages || !next_in_batch(&data, message) || message->body.size > largest)
            return 0;
        int done = read_properties(message->properties, not_plain, &message->pairs);
        if (done <= 0)
            return done;
        message->sys_flag = 0;
    }
    return batch->count > 0;
}

static Message message_of(const InBatch *one)
{
    return (Message){
        .body = one->body,
        .properties = one->properties,
        .body_crc = crc32(one->body.at, one->body.size) & 0x7FFFFFFF,
        .flag = one->flag,
        .tags_code = one->pairs.tags_code,
        .unique_key = one->pairs.unique_key,
        .keys = one->pairs.keys,
    };
}

/* Checks that the log file can hold all records before any is written, as `append.py` does. */
static int room_for_batch(Append *append, const Lane *lane, const Batch *batch, size_t added)
{
    size_t fixed = RECORD_HEAD + (size_t)PyBytes_GET_SIZE(lane->topic) + 2 + added + SPARE, total = 0;
    for (size_t i = 0; i < batch->count; i++)
        total += fixed + batch->messages[i].body.size + batch->messages[i].properties.size;
    return make_room(append, total);
}

/* 1: log and queue can be written and the records fit; 0: left to Python; -1: an exception is set. */
static int open_for_batch(Append *append, Lane *lane, PyObject *queue, const Batch *batch, size_t added)
{
    int done = open_lane(queue, lane);
    if (done > 0)
        done = open_log(append);
    return done > 0 ? room_for_batch(append, lane, batch, added) : done;
}

int close_all(Append *append, Lane *lanes, size_t count, int done)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    for (size_t i = 0; i < count; i++)
        if (close_lane(&lanes[i]) < 0)
            done = -1;
    if (close_log(append) < 0)
        done = -1;
    if (type != NULL)
        PyErr_Restore(type, value, traceback);
    return done;
}

/* A batch send */

static uint8_t *put_id(uint8_t *at, Span front, uint64_t offset)
{
    at = put_span(at, front);
    for (int shift = 60; shift >= 0; shift -= 4)
        *at++ = (uint8_t)"0123456789ABCDEF"[offset >> shift & 0xF];
    return at;
}

/* Allocates the text of `count` ids, separated by commas. */
static PyObject *new_ids(Span front, size_t count)
{
    return PyUnicode_New((Py_ssize_t)(count * (front.size + ID_SIZE + 1) - 1), 127);
}

static int write_batch(Append *append, Lane *lane, const Batch *batch, const Message *common, Span front, uint8_t *ids)
{
    for (size_t i = 0; i < batch->count; i++) {
        Message message = message_of(&batch->messages[i]);
        message.sys_flag = common->sys_flag;
        message.reconsume_times = common->reconsume_times;
        message.born_timestamp = common->born_timestamp;
        message.born_host = common->born_host;
        message.store_host = span_of(append->store_host);
        if (add_message(append, lane, &message) < 0)
            return -1;
        if (i > 0)
            *ids++ = ',';
        ids = put_id(ids, front, (uint64_t)append->last);
    }
    return 1;
}

PyDoc_STRVAR(batch_doc,
"batch(body, queue, sys_flag, reconsume_times, born_timestamp, born_host, not_plain, largest, id_front, arrivals)\n"
"    -> tuple[str, int, int] | None\n\n"
"Appends the messages of a batch send to a queue: their ids with commas between, the queue offset of the first,\n"
"and how many they are. None: nothing was done.");

static PyObject *batch(PyObject *object, PyObject *arguments)
{
    Groups *self = (Groups *)object;
    PyObject *body, *queue, *born_host, *not_plain, *id_front, *arrivals, *ids = NULL;
    int sys_flag, reconsume_times;
    long long born_timestamp;
    Py_ssize_t largest;
    if (!PyArg_ParseTuple(arguments, "SOiiLSO!nSO", &body, &queue, &sys_flag, &reconsume_times, &born_timestamp,
                          &born_host, &PyTuple_Type, &not_plain, &largest, &id_front, &arrivals))
        return NULL;
    NameTable table = {0};
    if (read_names(not_plain, &table) < 0)
        return NULL;
    if (PyBytes_GET_SIZE(born_host) != HOST_SIZE || sys_flag & (TRANSACTION_MASK | HOSTS_MASK | INNER_BATCH))
        Py_RETURN_NONE;
    Message common = {.sys_flag = sys_flag,
                      .reconsume_times = reconsume_times,
                      .born_timestamp = born_timestamp,
                      .born_host = span_of(born_host)};
    Append append = {.parts = self->parts, .arrivals = arrivals};
    Lane lane = {0};
    Batch all = {0};
    int done = read_batch(span_of(body), table.names, MOST_MESSAGES, (size_t)largest, &all);
    if (done > 0)
        done = open_for_batch(&append, &lane, queue, &all, 0);
    if (done > 0)
        done = (ids = new_ids(span_of(id_front), all.count)) == NULL ? -1 : 1;
    if (done > 0)
        done = write_batch(&append, &lane, &all, &common, span_of(id_front), PyUnicode_1BYTE_DATA(ids));
    PyMem_Free(all.messages);
    long long first = lane.begin;
    done = close_all(&append, &lane, 1, done);
    PyObject *result = done < 0 ? NULL : done == 0 ? Py_NewRef(Py_None)
                                                   : Py_BuildValue("OLn", ids, first, (Py_ssize_t)all.count);
    Py_XDECREF(ids);
    return result;
}

/* Destinations of half messages */

PyObject *place_of(PyObject *places, const Pairs *pairs, PyObject *ask)
{
    PyObject *key = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(pairs->real_topic.size + 1 + pairs->real_queue.size));
    if (key == NULL)
        return NULL;
    uint8_t *at = put_span((uint8_t *)PyBytes_AS_STRING(key), pairs->real_topic);
    *at++ = NAME_END;
    put_span(at, pairs->real_queue);
    PyObject *found = PyDict_GetItemWithError(places, key);
    if (found == NULL && !PyErr_Occurred()) {
        PyObject *place = PyObject_CallFunction(ask, "y#y#", pairs->real_topic.at, (Py_ssize_t)pairs->real_topic.size,
                                                pairs->real_queue.at, (Py_ssize_t)pairs->real_queue.size);
        if (place != NULL && PyDict_SetItem(places, key, place) == 0)
            found = place; /* the dict holds it */
        Py_XDECREF(place);
    }
    Py_DECREF(key);
    return found;
}

/* Half messages */

/* Sets `topics` to the topic of each message, and the bits of its sys flag. */
static int find_topics(Batch *batch, PyObject *ask, PyObject *topics)
{
    PyObject *places = PyDict_New();
    int done = places == NULL ? -1 : 1;
    for (size_t i = 0; i < batch->count && done > 0; i++) {
        PyObject *place = place_of(places, &batch->messages[i].pairs, ask);
        PyObject *topic;
        int sys_flag;
        if (place == NULL || !PyArg_ParseTuple(place, "Oi", &topic, &sys_flag) || PyList_Append(topics, topic) < 0)
            done = -1;
        else
            batch->messages[i].sys_flag = sys_flag;
    }
    Py_XDECREF(places);
    return done;
}

/* Checks that each message has the properties of a half message. */
static bool are_halves(const Batch *batch, size_t added, size_t most_properties)
{
    for (size_t i = 0; i < batch->count; i++) {
        const InBatch *one = &batch->messages[i];
        const Pairs *pairs = &one->pairs;
        if (one->body.size == 0 || one->properties.size + added > most_properties || pairs->unique_key.size == 0 ||
            pairs->real_topic.size == 0 || pairs->real_queue.size == 0)
            return false;
    }
    return true;
}

static int write_halves(Append *append, Lane *lane, const Batch *batch, const Message *common, PyObject *offsets)
{
    for (size_t i = 0; i < batch->count; i++) {
        Message message = message_of(&batch->messages[i]);
        message.added = common->added;
        message.sys_flag = (int32_t)batch->messages[i].sys_flag;
        message.born_timestamp = common->born_timestamp;
        message.born_host = common->born_host;
        message.store_host = span_of(append->store_host);
        if (add_message(append, lane, &message) < 0)
            return -1;
        PyObject *offset = PyLong_FromLongLong(append->last);
        int done = offset == NULL ? -1 : PyList_Append(offsets, offset);
        Py_XDECREF(offset);
        if (done < 0)
            return -1;
    }
    return 1;
}

PyDoc_STRVAR(halves_doc,
"halves(body, queue, added, born_timestamp, born_host, not_plain, most, largest, most_properties, ask, arrivals)\n"
"    -> tuple[int, list[int], list[str], int] | None\n\n"
"Appends half messages: the queue offset of the first; of each its log offset and topic; and where they end. `ask`\n"
"is called with topic and queue id, as bytes, once for each pair of them, and returns topic and bits of the sys flag;\n"
"what it raises comes out, and then nothing was appended. None: nothing was done.");

static PyObject *halves(PyObject *object, PyObject *arguments)
{
    Groups *self = (Groups *)object;
    PyObject *body, *queue, *added, *born_host, *not_plain, *ask, *arrivals;
    long long born_timestamp;
    Py_ssize_t most, largest, most_properties;
    if (!PyArg_ParseTuple(arguments, "SOSLSO!nnnOO", &body, &queue, &added, &born_timestamp, &born_host,
                          &PyTuple_Type, &not_plain, &most, &largest, &most_properties, &ask, &arrivals))
        return NULL;
    NameTable table = {0};
    if (read_names(not_plain, &table) < 0)
        return NULL;
    if (PyBytes_GET_SIZE(born_host) != HOST_SIZE)
        Py_RETURN_NONE;
    Message common = {.added = span_of(added), .born_timestamp = born_timestamp, .born_host = span_of(born_host)};
    Append append = {.parts = self->parts, .arrivals = arrivals};
    Lane lane = {0};
    Batch all = {0};
    PyObject *topics = PyList_New(0), *offsets = PyList_New(0);
    int done = topics == NULL || offsets == NULL ? -1 : 1;
    if (done > 0)
        done = read_batch(span_of(body), table.names, (size_t)most, (size_t)largest, &all);
    if (done > 0)
        done = are_halves(&all, common.added.size, (size_t)most_properties);
    if (done > 0)
        done = find_topics(&all, ask, topics);
    if (done > 0)
        done = open_for_batch(&append, &lane, queue, &all, common.added.size);
    if (done > 0)
        done = write_halves(&append, &lane, &all, &common, offsets);
    PyMem_Free(all.messages);
    long long first = lane.begin, end = append.base + append.position;
    done = close_all(&append, &lane, 1, done);
    PyObject *result = done < 0 ? NULL : done == 0 ? Py_NewRef(Py_None)
                                                   : Py_BuildValue("LOOL", first, offsets, topics, end);
    Py_XDECREF(topics);
    Py_XDECREF(offsets);
    return result;
}

/* Construction and destruction */

static PyObject *new(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    static char *keywords[] = {"log", "flags", "appender", "keys", "dirty", "now_ms", NULL};
    Parts given;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "$OOOO!O!O", keywords, &given.log, &given.flags, &given.appender,
                                     &PyList_Type, &given.keys, &PyDict_Type, &given.dirty, &given.now_ms))
        return NULL;
    Groups *self = (Groups *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->parts = (Parts){Py_NewRef(given.log),  Py_NewRef(given.flags), Py_NewRef(given.appender),
                          Py_NewRef(given.keys), Py_NewRef(given.dirty), Py_NewRef(given.now_ms)};
    return (PyObject *)self;
}

static int traverse(PyObject *object, visitproc visit, void *arg)
{
    Parts *parts = &((Groups *)object)->parts;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(parts->log);
    Py_VISIT(parts->flags);
    Py_VISIT(parts->appender);
    Py_VISIT(parts->keys);
    Py_VISIT(parts->dirty);
    Py_VISIT(parts->now_ms);
    return 0;
}

static void dealloc(PyObject *object)
{
    Parts *parts = &((Groups *)object)->parts;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_CLEAR(parts->log);
    Py_CLEAR(parts->flags);
    Py_CLEAR(parts->appender);
    Py_CLEAR(parts->keys);
    Py_CLEAR(parts->dirty);
    Py_CLEAR(parts->now_ms);
    type->tp_free(object);
    Py_DECREF(type);
}

PyDoc_STRVAR(commit_doc,
"commit(halves, file, base, op_queue, op_properties, op_key, op_code, waiting, not_plain, ask, arrivals)\n"
"    -> tuple[list[int], list[ConsumeQueue]] | None\n\n"
"Commits half messages of one file of the log, which begins at `base`: of each the message and an op record. `ask` is\n"
"called with topic and queue id, as bytes, and returns the queue, or None. Of each half message when it was born,\n"
"and its queue. None: nothing was done.");

static PyObject *commit(PyObject *object, PyObject *arguments)
{
    return commit_halves(((Groups *)object)->parts, arguments);
}

static PyMethodDef methods[] = {
    {"batch", batch, METH_VARARGS, batch_doc},
    {"halves", halves, METH_VARARGS, halves_doc},
    {"commit", commit, METH_VARARGS, commit_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, new},         {Py_tp_dealloc, dealloc}, {Py_tp_traverse, traverse},
    {Py_tp_methods, methods}, {Py_tp_doc, "The twin of appends of many messages that came together."},
    {0, NULL},
};

PyType_Spec groups_spec = {
    .name = "turbopump.compiled._twins.Groups",
    .basicsize = sizeof(Groups),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

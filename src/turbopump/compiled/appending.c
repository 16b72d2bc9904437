#define PY_SSIZE_T_CLEAN
#include "appending.h"

#include "attributes.h"
#include "pairs.h"

#define ENTRY_SIZE 20 /* of a consume queue: i64 log offset, i32 record size, i64 tag code */

Span span_of(PyObject *bytes)
{
    return (Span){(const uint8_t *)PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes)};
}

PyObject *text_of(Span text)
{
    if (!is_ascii(text))
        return PyUnicode_DecodeUTF8((const char *)text.at, (Py_ssize_t)text.size, NULL);
    PyObject *found = PyUnicode_New((Py_ssize_t)text.size, 127);
    if (found != NULL)
        put_span(PyUnicode_1BYTE_DATA(found), text);
    return found;
}

/* The log */

static int read_numbers(Append *append)
{
    PyObject *log = append->parts.log;
    if (get_number(log, names.base, &append->base) < 0 || get_number(log, names.position, &append->position) < 0 ||
        get_number(log, names.limit, &append->limit) < 0 || get_number(log, names.touched, &append->touched) < 0)
        return -1;
    append->begin = append->position;
    return 0;
}

int open_log(Append *append)
{
    int blocked = is_true(append->parts.flags, names.blocked);
    if (blocked != 0)
        return blocked < 0 ? -1 : 0;
    if (read_numbers(append) < 0)
        return -1;
    append->store_host = PyObject_GetAttr(append->parts.appender, names.store_host);
    if (append->store_host == NULL)
        return -1;
    if (!PyBytes_Check(append->store_host) || PyBytes_GET_SIZE(append->store_host) != HOST_SIZE)
        return 0;
    append->now = PyObject_CallNoArgs(append->parts.now_ms);
    if (append->now == NULL)
        return -1;
    append->now_ms = PyLong_AsLongLong(append->now);
    if (append->now_ms == -1 && PyErr_Occurred())
        return -1;
    PyObject *buffer = PyObject_GetAttr(append->parts.log, names.buffer);
    if (buffer == NULL)
        return -1;
    int done = PyObject_GetBuffer(buffer, &append->log, PyBUF_WRITABLE);
    Py_DECREF(buffer);
    return done < 0 ? -1 : 1;
}

int close_log(Append *append)
{
    PyObject *appender = append->parts.appender;
    int done = 0;
    if (append->messages > 0) {
        int64_t size = append->position - append->begin;
        done = set_number(append->parts.log, names.position, append->position) < 0 ||
               set_number(appender, names.last_record, append->last) < 0 ||
               PyObject_SetAttr(appender, names.last_timestamp, append->now) < 0 ||
               add_number(appender, names.messages, append->messages) < 0 ||
               add_number(appender, names.bytes, size) < 0;
    }
    if (append->log.obj != NULL)
        PyBuffer_Release(&append->log);
    Py_CLEAR(append->store_host);
    Py_CLEAR(append->now);
    return done ? -1 : 0;
}

/* Makes pages present; `CommitLog.touch` explains it. */
static int touch(Append *append, int64_t end)
{
    PyObject *argument = PyLong_FromLongLong(end);
    if (argument == NULL)
        return -1;
    PyObject *done = PyObject_CallMethodOneArg(append->parts.log, names.touch, argument);
    Py_DECREF(argument);
    if (done == NULL)
        return -1;
    Py_DECREF(done);
    return get_number(append->parts.log, names.touched, &append->touched);
}

int make_room(Append *append, size_t size)
{
    int64_t end = append->position + (int64_t)size;
    if (append->position < 0 || end > append->limit || end > append->log.len)
        return 0;
    return end > append->touched && touch(append, end) < 0 ? -1 : 1;
}

/* A queue */

int open_lane(PyObject *queue, Lane *lane)
{
    *lane = (Lane){.queue = Py_NewRef(queue)};
    int done = is_true(queue, names.is_plain);
    if (done <= 0)
        return done;
    lane->topic = PyObject_GetAttr(queue, names.topic_field);
    lane->tail = PyObject_GetAttr(queue, names.tail);
    if (lane->topic == NULL || lane->tail == NULL || get_number(queue, names.queue_id, &lane->queue_id) < 0 ||
        get_number(queue, names.next_offset, &lane->next_offset) < 0)
        return -1;
    lane->begin = lane->next_offset;
    if (PyBytes_Check(lane->topic) && PyByteArray_Check(lane->tail))
        return 1;
    PyErr_SetString(PyExc_TypeError, "a queue has its topic as bytes and its tail as a bytearray");
    return -1;
}

int close_lane(Lane *lane)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int done = 0;
    if (lane->next_offset > lane->begin)
        done = set_number(lane->queue, names.next_offset, lane->next_offset) < 0 ||
               add_number(lane->queue, names.put_bytes, lane->put_bytes) < 0 ||
               set_number(lane->queue, names.last_physical, lane->last) < 0;
    if (type != NULL)
        PyErr_Restore(type, value, traceback);
    Py_CLEAR(lane->queue);
    Py_CLEAR(lane->topic);
    Py_CLEAR(lane->tail);
    return done ? -1 : 0;
}

/* A message */

size_t size_of(const Lane *lane, const Message *message)
{
    return RECORD_HEAD + message->body.size + (size_t)PyBytes_GET_SIZE(lane->topic) + 2 + message->properties.size +
           message->added.size;
}

/* `record.py` shows the bytes. */
static void put_record(uint8_t *at, size_t size, const Append *append, const Lane *lane, const Message *message)
{
    at = put_u32(at, (uint32_t)size);
    at = put_u32(at, MAGIC);
    at = put_u32(at, message->body_crc);
    at = put_u32(at, (uint32_t)lane->queue_id);
    at = put_u32(at, (uint32_t)message->flag);
    at = put_u64(at, (uint64_t)lane->next_offset);
    at = put_u64(at, (uint64_t)(append->base + append->position));
    at = put_u32(at, (uint32_t)message->sys_flag);
    at = put_u64(at, (uint64_t)message->born_timestamp);
    at = put_span(at, message->born_host);
    at = put_u64(at, (uint64_t)append->now_ms);
    at = put_span(at, message->store_host);
    at = put_u32(at, (uint32_t)message->reconsume_times);
    at = put_u64(at, (uint64_t)message->prepared);
    at = put_u32(at, (uint32_t)message->body.size);
    at = put_span(at, message->body);
    at = put_span(at, span_of(lane->topic));
    at = put_u16(at, (uint16_t)(message->properties.size + message->added.size));
    at = put_span(at, message->properties);
    put_span(at, message->added);
}

int add_keys(PyObject *waiting, const Lane *lane, int64_t physical, PyObject *time, Span unique_key, Span keys)
{
    PyObject *offset = PyLong_FromLongLong(physical), *row = NULL;
    PyObject *unique_text = text_of(unique_key), *keys_text = text_of(keys);
    int done = -1;
    if (offset != NULL && unique_text != NULL && keys_text != NULL &&
        (row = PyTuple_Pack(5, lane->queue, offset, time, unique_text, keys_text)) != NULL)
        done = PyList_Append(waiting, row);
    Py_XDECREF(offset);
    Py_XDECREF(unique_text);
    Py_XDECREF(keys_text);
    Py_XDECREF(row);
    return done;
}

int add_entry(PyObject *dirty, const Lane *lane, int32_t tags_code, int64_t physical, size_t size)
{
    Py_ssize_t before = PyByteArray_GET_SIZE(lane->tail);
    if (before == 0 && PyDict_SetItem(dirty, lane->queue, Py_None) < 0)
        return -1;
    if (PyByteArray_Resize(lane->tail, before + ENTRY_SIZE) < 0)
        return -1;
    uint8_t *at = (uint8_t *)PyByteArray_AS_STRING(lane->tail) + before;
    at = put_u64(at, (uint64_t)physical);
    at = put_u32(at, (uint32_t)size);
    put_u64(at, (uint64_t)(int64_t)tags_code);
    return 0;
}

int add_arrival(PyObject *arrivals, const Lane *lane, int32_t tags_code)
{
    PyObject *row = Py_BuildValue("OLi", lane->queue, (long long)(lane->next_offset + 1), (int)tags_code);
    if (row == NULL)
        return -1;
    int done = PyList_Append(arrivals, row);
    Py_DECREF(row);
    return done;
}

void drop_last(PyObject *list)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyList_SetSlice(list, PyList_GET_SIZE(list) - 1, PyList_GET_SIZE(list), NULL);
    PyErr_Restore(type, value, traceback);
}

int add_message(Append *append, Lane *lane, const Message *message)
{
    int64_t physical = append->base + append->position;
    size_t size = size_of(lane, message);
    if (append->arrivals != Py_None && add_arrival(append->arrivals, lane, message->tags_code) < 0)
        return -1;
    if (add_keys(append->parts.keys, lane, physical, append->now, message->unique_key, message->keys) < 0)
        return -1;
    if (add_entry(append->parts.dirty, lane, message->tags_code, physical, size) < 0) {
        drop_last(append->parts.keys);
        return -1;
    }
    put_record((uint8_t *)append->log.buf + append->position, size, append, lane, message);
    append->position += (int64_t)size;
    append->last = lane->last = physical;
    append->messages++;
    lane->next_offset++;
    lane->put_bytes += (int64_t)size;
    return 0;
}

/* The plain sends of one read event in one pass: the twin of `send_many.py` and of the loop in `append.py`.
 *
 * In: the bytes of a read event. Out: records in the mapped log, entries in the tails of their queues, keys for the
 * index, and the bytes of the answers. It begins at the front and stops at the first frame that is not plain, not
 * whole, or has no room in the current file of the log: from there on Python decides, and it remains the reference
 * for everything here. The objects are Python's own (log, queues, tables); nothing is kept beside them. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "answers.h"
#include "attributes.h"
#include "crc32.h"
#include "pairs.h"
#include "send_header.h"
#include "twins.h"

#define PREFIX_SIZE 8        /* of a frame: i32 length of the rest, u8 encoding (0: JSON), u24 length of the header */
#define MAX_HEADER 0xFFFFFF
#define RECORD_HEAD 88       /* of a record, before the body */
#define ENTRY_SIZE 20        /* of a consume queue: i64 log offset, i32 record size, i64 tag code */
#define HOST_SIZE 8          /* IPv4: 4 bytes of address, i32 port */
#define SPARE 24             /* what two IPv6 hosts would add: Python leaves as much at the end of a file */
#define MAX_PROPERTIES 32767
#define MAGIC 0xDAA320A7u
#define RESPONSE 1           /* bits of a command's flag */
#define ONEWAY 2
#define TRANSACTION_MASK 0xC /* bits of a message's sys flag */
#define HOSTS_MASK 0x30
#define INNER_BATCH 0x80
#define ENOUGH_ANSWERS (1 << 20)

typedef struct {
    PyObject_HEAD
    PyObject *log, *flags, *appender, *keys, *dirty, *targets, *now_ms;
    PyObject *added;            /* bytes: the broker's own properties */
    PyObject *hurried, *waited; /* the parts of an answer, as bytes */
    PyObject *not_plain;        /* the names of properties that are for Python */
    Span *names;                /* the same */
    Py_ssize_t max_message_size, max_frame;
    Answers answers;              /* of this call of `take` */
    uint8_t text[MAX_PROPERTIES]; /* properties of the message at hand */
} PlainSends;

/* One send, read and found plain. */
typedef struct {
    SendHeader header;
    Pairs pairs;
    Span body;
    Span properties; /* in `PlainSends.text` */
    PyObject *queue; /* borrowed from the list in `targets` */
} Message;

/* One call of `take`. */
typedef struct {
    Span born_host;
    PyObject *arrivals; /* a list, or None: nobody waits */
    PyObject *queues;   /* a list: of each message */
    Py_ssize_t messages;
    /* the log, from the first message on */
    Py_buffer log;
    PyObject *store_host;
    PyObject *now;
    int64_t now_ms, base, begin, position, limit, touched, last;
} Event;

/* Reading */

/* The size of the whole frame at the front, 0 when there is none that Python's `cut` would take for a JSON one. */
static size_t next_frame(Span data, Py_ssize_t max_frame, Span *header, Span *body)
{
    if (data.size < PREFIX_SIZE)
        return 0;
    size_t length = get_u32(data.at), header_size = get_u32(data.at + 4);
    if (length < 4 || length > data.size - 4 || length + 4 > (size_t)max_frame)
        return 0;
    if (header_size == 0 || header_size > length - 4 || header_size > MAX_HEADER)
        return 0;
    *header = (Span){data.at + PREFIX_SIZE, header_size};
    *body = (Span){header->at + header_size, length - 4 - header_size};
    return 4 + length;
}

static PyObject *text_of(Span ascii)
{
    PyObject *text = PyUnicode_New((Py_ssize_t)ascii.size, 127);
    if (text != NULL && ascii.size > 0)
        memcpy(PyUnicode_1BYTE_DATA(text), ascii.at, ascii.size);
    return text;
}

/* 1: found, 0: Python has not looked it up yet or keeps it for itself, -1: an exception is set. */
static int find_queue(PlainSends *self, Message *message)
{
    PyObject *topic = text_of(message->header.topic);
    if (topic == NULL)
        return -1;
    PyObject *queues = PyDict_GetItemWithError(self->targets, topic);
    Py_DECREF(topic);
    if (queues == NULL)
        return PyErr_Occurred() ? -1 : 0;
    int32_t queue_id = message->header.queue_id;
    if (!PyList_Check(queues) || queue_id < 0 || queue_id >= PyList_GET_SIZE(queues))
        return 0;
    message->queue = PyList_GET_ITEM(queues, queue_id);
    return 1;
}

/* Clients from 4.9.1 to 5.1.4 leave the last \2 out; it is stored. */
static bool read_properties(PlainSends *self, Message *message)
{
    Py_ssize_t room = MAX_PROPERTIES - PyBytes_GET_SIZE(self->added);
    ptrdiff_t size = room < 0 ? -1 : unescape(message->header.properties, self->text, (size_t)room);
    if (size <= 0)
        return false;
    if (self->text[size - 1] != PAIR_END) {
        if (size == room)
            return false;
        self->text[size++] = PAIR_END;
    }
    message->properties = (Span){self->text, (size_t)size};
    return true;
}

static int read_message(PlainSends *self, Span header, Message *message)
{
    SendHeader *send = &message->header;
    if (!read_send_header(header, send) || send->command_flag & RESPONSE ||
        send->sys_flag & (HOSTS_MASK | INNER_BATCH) || message->body.size == 0 || message->body.size > (size_t)self->max_message_size)
        return 0;
    if (!read_properties(self, message))
        return 0;
    Names not_plain = {self->names, (size_t)PyTuple_GET_SIZE(self->not_plain)};
    if (!read_pairs(message->properties, not_plain, &message->pairs))
        return 0;
    return find_queue(self, message);
}

/* The log */

/* 1: it can be written, 0: Python says why not, -1: an exception is set. */
static int open_log(PlainSends *self, Event *event)
{
    int blocked = is_true(self->flags, names.blocked);
    if (blocked != 0)
        return blocked < 0 ? -1 : 0;
    if (get_number(self->log, names.base, &event->base) < 0 ||
        get_number(self->log, names.position, &event->position) < 0 ||
        get_number(self->log, names.limit, &event->limit) < 0 ||
        get_number(self->log, names.touched, &event->touched) < 0)
        return -1;
    event->begin = event->position;
    event->queues = PyList_New(0);
    if (event->queues == NULL)
        return -1;
    event->store_host = PyObject_GetAttr(self->appender, names.store_host);
    if (event->store_host == NULL)
        return -1;
    if (!PyBytes_Check(event->store_host) || PyBytes_GET_SIZE(event->store_host) != HOST_SIZE)
        return 0;
    event->now = PyObject_CallNoArgs(self->now_ms);
    if (event->now == NULL)
        return -1;
    event->now_ms = PyLong_AsLongLong(event->now);
    if (event->now_ms == -1 && PyErr_Occurred())
        return -1;
    PyObject *buffer = PyObject_GetAttr(self->log, names.buffer);
    if (buffer == NULL)
        return -1;
    int done = PyObject_GetBuffer(buffer, &event->log, PyBUF_WRITABLE);
    Py_DECREF(buffer);
    return done < 0 ? -1 : 1;
}

/* Makes pages present, as `CommitLog.touch` says. */
static int touch(PlainSends *self, Event *event, int64_t end)
{
    PyObject *argument = PyLong_FromLongLong(end);
    if (argument == NULL)
        return -1;
    PyObject *done = PyObject_CallMethodOneArg(self->log, names.touch, argument);
    Py_DECREF(argument);
    if (done == NULL)
        return -1;
    Py_DECREF(done);
    return get_number(self->log, names.touched, &event->touched);
}

static int make_room(PlainSends *self, Event *event, size_t size)
{
    int64_t end = event->position + (int64_t)size + SPARE;
    if (event->position < 0 || end > event->limit || end > event->log.len)
        return 0;
    return end > event->touched && touch(self, event, end) < 0 ? -1 : 1;
}

static Span span_of(PyObject *bytes)
{
    return (Span){(const uint8_t *)PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes)};
}

/* The bytes are drawn in `record.py`. */
static void put_record(uint8_t *at, size_t size, const Message *message, const Event *event, Span topic, Span added,
                       int64_t queue_offset)
{
    const SendHeader *send = &message->header;
    at = put_u32(at, (uint32_t)size);
    at = put_u32(at, MAGIC);
    at = put_u32(at, crc32(message->body.at, message->body.size) & 0x7FFFFFFF);
    at = put_u32(at, (uint32_t)send->queue_id);
    at = put_u32(at, (uint32_t)send->flag);
    at = put_u64(at, (uint64_t)queue_offset);
    at = put_u64(at, (uint64_t)(event->base + event->position));
    at = put_u32(at, (uint32_t)(send->sys_flag & ~TRANSACTION_MASK));
    at = put_u64(at, (uint64_t)send->born_timestamp);
    at = put_span(at, event->born_host);
    at = put_u64(at, (uint64_t)event->now_ms);
    at = put_span(at, span_of(event->store_host));
    at = put_u32(at, (uint32_t)send->reconsume_times);
    at = put_u64(at, 0); /* prepared transaction offset */
    at = put_u32(at, (uint32_t)message->body.size);
    at = put_span(at, message->body);
    at = put_span(at, topic);
    at = put_u16(at, (uint16_t)(message->properties.size + added.size));
    at = put_span(at, message->properties);
    put_span(at, added);
}

/* What is derived from a record */

/* For the index: queue, log offset, store time, unique key, keys. */
static PyObject *keys_of(const Message *message, const Event *event, PyObject *physical)
{
    PyObject *unique_key = text_of(message->pairs.unique_key), *keys = text_of(message->pairs.keys), *row = NULL;
    if (unique_key != NULL && keys != NULL)
        row = PyTuple_Pack(5, message->queue, physical, event->now, unique_key, keys);
    Py_XDECREF(unique_key);
    Py_XDECREF(keys);
    return row;
}

static int tell_arrival(const Message *message, const Event *event, int64_t queue_offset)
{
    PyObject *row = Py_BuildValue("OLi", message->queue, (long long)(queue_offset + 1), message->pairs.tags_code);
    if (row == NULL)
        return -1;
    int done = PyList_Append(event->arrivals, row);
    Py_DECREF(row);
    return done;
}

static int add_entry(PlainSends *self, PyObject *queue, PyObject *tail, const Message *message, int64_t physical,
                     size_t size)
{
    Py_ssize_t before = PyByteArray_GET_SIZE(tail);
    if (before == 0 && PyDict_SetItem(self->dirty, queue, Py_None) < 0)
        return -1;
    if (PyByteArray_Resize(tail, before + ENTRY_SIZE) < 0)
        return -1;
    uint8_t *at = (uint8_t *)PyByteArray_AS_STRING(tail) + before;
    at = put_u64(at, (uint64_t)physical);
    at = put_u32(at, (uint32_t)size);
    put_u64(at, (uint64_t)(int64_t)message->pairs.tags_code);
    return 0;
}

/* Writes record, entry and keys of a message for which there is room. */
static int add_message(PlainSends *self, Event *event, const Message *message, PyObject *topic, PyObject *tail,
                       size_t size, int64_t queue_offset)
{
    int64_t physical = event->base + event->position;
    PyObject *offset = PyLong_FromLongLong(physical), *row = NULL;
    if (offset == NULL)
        return -1;
    int done = -1;
    if ((row = keys_of(message, event, offset)) == NULL || PyList_Append(event->queues, message->queue) < 0 ||
        PyList_Append(self->keys, row) < 0)
        goto end;
    put_record((uint8_t *)event->log.buf + event->position, size, message, event, span_of(topic),
               span_of(self->added), queue_offset);
    if (add_entry(self, message->queue, tail, message, physical, size) < 0) {
        PyList_SetSlice(self->keys, PyList_GET_SIZE(self->keys) - 1, PyList_GET_SIZE(self->keys), NULL);
        goto end;
    }
    event->position += (int64_t)size;
    event->last = physical;
    event->messages++;
    if (set_number(message->queue, names.next_offset, queue_offset + 1) < 0 ||
        add_number(message->queue, names.put_bytes, (int64_t)size) < 0 ||
        PyObject_SetAttr(message->queue, names.last_physical, offset) < 0)
        goto end;
    done = event->arrivals == Py_None ? 0 : tell_arrival(message, event, queue_offset);
end:
    Py_DECREF(offset);
    Py_XDECREF(row);
    return done;
}

/* 1: appended, 0: this one is for Python, -1: an exception is set. */
static int append(PlainSends *self, Event *event, const Message *message, int64_t *queue_offset)
{
    PyObject *queue = message->queue;
    int done = is_true(queue, names.is_plain);
    if (done <= 0)
        return done;
    PyObject *topic = PyObject_GetAttr(queue, names.topic_field), *tail = PyObject_GetAttr(queue, names.tail);
    done = -1;
    if (topic == NULL || tail == NULL || get_number(queue, names.next_offset, queue_offset) < 0)
        goto end;
    if (!PyBytes_Check(topic) || !PyByteArray_Check(tail)) {
        PyErr_SetString(PyExc_TypeError, "a queue has its topic as bytes and its tail as a bytearray");
        goto end;
    }
    size_t size = RECORD_HEAD + message->body.size + (size_t)PyBytes_GET_SIZE(topic) + 2 + message->properties.size +
                  (size_t)PyBytes_GET_SIZE(self->added);
    done = make_room(self, event, size);
    if (done > 0 && add_message(self, event, message, topic, tail, size, *queue_offset) < 0)
        done = -1;
end:
    Py_XDECREF(topic);
    Py_XDECREF(tail);
    return done;
}

/* The whole */

/* 1: stored and answered, 0: from here on it is Python's, -1: an exception is set. */
static int take_one(PlainSends *self, Event *event, Span header, Span body)
{
    Message message = {.body = body};
    int done = read_message(self, header, &message);
    if (done > 0 && event->log.obj == NULL)
        done = open_log(self, event);
    if (done <= 0)
        return done;
    const Pairs *pairs = &message.pairs;
    PyObject *parts = pairs->waits ? self->waited : self->hurried;
    if (reserve_answer(&self->answers, parts, pairs->unique_key) < 0)
        return -1;
    int64_t queue_offset = 0;
    Py_INCREF(message.queue);
    done = append(self, event, &message, &queue_offset);
    Py_DECREF(message.queue);
    const SendHeader *send = &message.header;
    if (done > 0 && !(send->command_flag & ONEWAY)) {
        Answer answer = {send->queue_id, pairs->unique_key, event->last, queue_offset, send->opaque};
        add_answer(&self->answers, parts, answer);
    }
    return done;
}

/* Leaves log and appender as they are after the last message that was written. */
static int close_log(PlainSends *self, Event *event)
{
    int done = 0;
    if (event->messages > 0) {
        int64_t size = event->position - event->begin;
        done = set_number(self->log, names.position, event->position) < 0 ||
               set_number(self->appender, names.last_record, event->last) < 0 ||
               PyObject_SetAttr(self->appender, names.last_timestamp, event->now) < 0 ||
               add_number(self->appender, names.messages, event->messages) < 0 ||
               add_number(self->appender, names.bytes, size) < 0;
    }
    if (event->log.obj != NULL)
        PyBuffer_Release(&event->log);
    Py_XDECREF(event->store_host);
    Py_XDECREF(event->now);
    return done ? -1 : 0;
}

/* Takes from the front of `data` what is plain; what is left is in `data` then. -1: an exception is set. */
static int take_while_plain(PlainSends *self, Event *event, Span *data)
{
    while (self->answers.size < ENOUGH_ANSWERS) {
        Span header, body;
        size_t size = next_frame(*data, self->max_frame, &header, &body);
        int done = size > 0 ? take_one(self, event, header, body) : 0;
        if (done <= 0)
            return done;
        *data = (Span){data->at + size, data->size - size};
    }
    return 0;
}

PyDoc_STRVAR(take_doc,
"take(data: bytes, born_host: bytes, arrivals: list[tuple[ConsumeQueue, int, int]] | None) -> Taken | None\n\n"
"Appends the plain sends at the front: how many bytes they took, their answers, the queue of each. None: there\n"
"are none. `arrivals` gets queue, next offset and tag code of each.");

static PyObject *take(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 3 || !PyBytes_Check(arguments[0]) || !PyBytes_Check(arguments[1]) ||
        !(arguments[2] == Py_None || PyList_Check(arguments[2]))) {
        PyErr_SetString(PyExc_TypeError, "take(data: bytes, born_host: bytes, arrivals: list | None)");
        return NULL;
    }
    PlainSends *self = (PlainSends *)object;
    Event event = {.born_host = span_of(arguments[1]), .arrivals = arguments[2]};
    Span data = span_of(arguments[0]), left = data;
    self->answers.size = 0;
    int done = event.born_host.size == HOST_SIZE ? take_while_plain(self, &event, &left) : 0;

    PyObject *type, *value, *traceback; /* of the exception, if there is one: what was written before it stays */
    PyErr_Fetch(&type, &value, &traceback);
    int closed = close_log(self, &event);
    if (type != NULL)
        PyErr_Restore(type, value, traceback);
    PyObject *taken = NULL;
    if (done >= 0 && closed >= 0 && event.messages == 0)
        taken = Py_NewRef(Py_None);
    else if (done >= 0 && closed >= 0)
        taken = Py_BuildValue("ny#O", (Py_ssize_t)(data.size - left.size), self->answers.bytes,
                              (Py_ssize_t)self->answers.size, event.queues);
    Py_XDECREF(event.queues);
    return taken;
}

/* Life */

static int check_bytes(PyObject *tuple)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
        if (!PyBytes_Check(PyTuple_GET_ITEM(tuple, i))) {
            PyErr_SetString(PyExc_TypeError, "names and parts of answers are bytes");
            return -1;
        }
    return 0;
}

static int check_parts(PyObject *parts)
{
    if (PyTuple_GET_SIZE(parts) == ANSWER_PARTS)
        return check_bytes(parts);
    PyErr_Format(PyExc_ValueError, "an answer has %d parts", ANSWER_PARTS);
    return -1;
}

static int keep_names(PlainSends *self)
{
    Py_ssize_t count = PyTuple_GET_SIZE(self->not_plain);
    self->names = PyMem_New(Span, (size_t)count + 1);
    if (self->names == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        self->names[i] = span_of(PyTuple_GET_ITEM(self->not_plain, i));
    return 0;
}

static PyObject *new(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    static char *keywords[] = {"log",       "flags", "appender", "keys",   "dirty",            "now_ms",    "targets",
                               "not_plain", "added", "hurried",  "waited", "max_message_size", "max_frame", NULL};
    PlainSends given = {0};
    if (!PyArg_ParseTupleAndKeywords(
            arguments, named, "$OOOO!O!OO!O!SO!O!nn", keywords, &given.log, &given.flags, &given.appender, &PyList_Type,
            &given.keys, &PyDict_Type, &given.dirty, &given.now_ms, &PyDict_Type, &given.targets, &PyTuple_Type,
            &given.not_plain, &given.added, &PyTuple_Type, &given.hurried, &PyTuple_Type, &given.waited,
            &given.max_message_size, &given.max_frame))
        return NULL;
    if (check_bytes(given.not_plain) < 0 || check_parts(given.hurried) < 0 || check_parts(given.waited) < 0)
        return NULL;
    PlainSends *self = (PlainSends *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->log = Py_NewRef(given.log);
    self->flags = Py_NewRef(given.flags);
    self->appender = Py_NewRef(given.appender);
    self->keys = Py_NewRef(given.keys);
    self->dirty = Py_NewRef(given.dirty);
    self->now_ms = Py_NewRef(given.now_ms);
    self->targets = Py_NewRef(given.targets);
    self->added = Py_NewRef(given.added);
    self->not_plain = Py_NewRef(given.not_plain);
    self->hurried = Py_NewRef(given.hurried);
    self->waited = Py_NewRef(given.waited);
    self->max_message_size = given.max_message_size;
    self->max_frame = given.max_frame;
    if (keep_names(self) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int traverse(PyObject *object, visitproc visit, void *arg)
{
    PlainSends *self = (PlainSends *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->log);
    Py_VISIT(self->flags);
    Py_VISIT(self->appender);
    Py_VISIT(self->keys);
    Py_VISIT(self->dirty);
    Py_VISIT(self->targets);
    Py_VISIT(self->now_ms);
    return 0;
}

static void dealloc(PyObject *object)
{
    PlainSends *self = (PlainSends *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_CLEAR(self->log);
    Py_CLEAR(self->flags);
    Py_CLEAR(self->appender);
    Py_CLEAR(self->keys);
    Py_CLEAR(self->dirty);
    Py_CLEAR(self->targets);
    Py_CLEAR(self->now_ms);
    Py_CLEAR(self->added);
    Py_CLEAR(self->not_plain);
    Py_CLEAR(self->hurried);
    Py_CLEAR(self->waited);
    PyMem_Free(self->names);
    PyMem_Free(self->answers.bytes);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"take", (PyCFunction)(void (*)(void))take, METH_FASTCALL, take_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, new},           {Py_tp_dealloc, dealloc}, {Py_tp_traverse, traverse},
    {Py_tp_methods, methods},   {Py_tp_doc, "The twin of `SendMany` for the plain sends of a read event."},
    {0, NULL},
};

PyType_Spec plain_sends_spec = {
    .name = "turbopump.compiled._twins.PlainSends",
    .basicsize = sizeof(PlainSends),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

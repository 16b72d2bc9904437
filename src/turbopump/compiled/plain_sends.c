/* Handles the plain sends of one read event in one pass: the twin of `produce/plain_sends.py` and of the loop in
 * `append.py`.
 *
 * In: the bytes of a read event. Out: records in the mapped log, entries in the tails of their queues, keys for the
 * index, and the bytes of the answers. It begins at the front and stops at the first frame that is not plain, not
 * whole, or does not fit into the current file of the log: the rest is left to Python, which is the reference for
 * everything here. The objects are Python's (log, queues, tables); there is no other state. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "answers.h"
#include "appending.h"
#include "crc32.h"
#include "frames.h"
#include "pairs.h"
#include "send_header.h"
#include "twins.h"

#define RESPONSE 1           /* bits of a command's flag */
#define ONEWAY 2
#define ENOUGH_ANSWERS (1 << 20)

typedef struct {
    PyObject_HEAD
    Parts parts;
    PyObject *targets;
    PyObject *added;            /* bytes: the broker's own properties */
    PyObject *hurried, *waited; /* the parts of an answer, as bytes */
    PyObject *not_plain;        /* names of properties that Python handles */
    Span *names;                /* `not_plain` as spans */
    Py_ssize_t max_message_size, max_frame;
    Answers answers;              /* of this call of `take` */
    uint8_t text[MAX_PROPERTIES]; /* properties of the message at hand */
} PlainSends;

/* One plain send. */
typedef struct {
    SendHeader header;
    Pairs pairs;
    Span body;
    Span properties; /* in `PlainSends.text` */
    PyObject *queue; /* borrowed from the list in `targets` */
} Send;

/* One call of `take`. */
typedef struct {
    Span born_host;
    PyObject *queues; /* a list: the queue of each message */
    Append append;    /* begun with the first message */
} Event;

/* Reading */

/* 1: found, 0: left to Python, which may add it later, -1: an exception is set. */
static int find_queue(PlainSends *self, Send *message)
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

/* Clients from 4.9.1 to 5.1.4 leave the last \2 out; it is added. */
static bool read_properties(PlainSends *self, Send *message)
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

static int read_message(PlainSends *self, Span header, Send *message)
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

/* Writing */

static Message message_of(const PlainSends *self, const Event *event, const Send *send)
{
    const SendHeader *header = &send->header;
    return (Message){
        .body = send->body,
        .properties = send->properties,
        .added = span_of(self->added),
        .body_crc = crc32(send->body.at, send->body.size) & 0x7FFFFFFF,
        .flag = header->flag,
        .sys_flag = header->sys_flag & ~TRANSACTION_MASK,
        .reconsume_times = header->reconsume_times,
        .tags_code = send->pairs.tags_code,
        .born_timestamp = header->born_timestamp,
        .born_host = event->born_host,
        .store_host = span_of(event->append.store_host),
        .unique_key = send->pairs.unique_key,
        .keys = send->pairs.keys,
    };
}

/* 1: appended, 0: left to Python, -1: an exception is set. */
static int append_send(PlainSends *self, Event *event, const Send *send, int64_t *queue_offset)
{
    Lane lane;
    int done = open_lane(send->queue, &lane);
    if (done > 0) {
        Message message = message_of(self, event, send);
        *queue_offset = lane.next_offset;
        done = make_room(&event->append, size_of(&lane, &message) + SPARE);
        if (done > 0 &&
            (PyList_Append(event->queues, send->queue) < 0 || add_message(&event->append, &lane, &message) < 0))
            done = -1;
    }
    return close_lane(&lane) < 0 ? -1 : done;
}

/* A read event */

static int open_event(Event *event)
{
    event->queues = PyList_New(0);
    return event->queues == NULL ? -1 : open_log(&event->append);
}

/* 1: stored and answered, 0: the rest is left to Python, -1: an exception is set. */
static int take_one(PlainSends *self, Event *event, Span header, Span body)
{
    Send message = {.body = body};
    int done = read_message(self, header, &message);
    if (done > 0 && !message.pairs.waits && PyTuple_GET_SIZE(self->hurried) == 0)
        return 0; /* its answer must not wait for those of the others */
    if (done > 0 && event->append.log.obj == NULL)
        done = open_event(event);
    if (done <= 0)
        return done;
    const Pairs *pairs = &message.pairs;
    PyObject *parts = pairs->waits ? self->waited : self->hurried;
    if (reserve_answer(&self->answers, parts, pairs->unique_key) < 0)
        return -1;
    int64_t queue_offset = 0;
    Py_INCREF(message.queue);
    done = append_send(self, event, &message, &queue_offset);
    Py_DECREF(message.queue);
    const SendHeader *send = &message.header;
    if (done > 0 && !(send->command_flag & ONEWAY)) {
        Answer answer = {send->queue_id, pairs->unique_key, event->append.last, queue_offset, send->opaque};
        add_answer(&self->answers, parts, answer);
    }
    return done;
}

/* Handles plain sends at the front of `data` and moves it behind them. -1: an exception is set. */
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
    Event event = {.born_host = span_of(arguments[1]), .append = {.parts = self->parts, .arrivals = arguments[2]}};
    Span data = span_of(arguments[0]), left = data;
    self->answers.size = 0;
    int done = event.born_host.size == HOST_SIZE ? take_while_plain(self, &event, &left) : 0;

    PyObject *type, *value, *traceback; /* of the exception, if any: what was written before it stays */
    PyErr_Fetch(&type, &value, &traceback);
    int closed = close_log(&event.append);
    if (type != NULL)
        PyErr_Restore(type, value, traceback);
    PyObject *taken = NULL;
    if (done >= 0 && closed >= 0 && event.append.messages == 0)
        taken = Py_NewRef(Py_None);
    else if (done >= 0 && closed >= 0)
        taken = Py_BuildValue("ny#O", (Py_ssize_t)(data.size - left.size), self->answers.bytes,
                              (Py_ssize_t)self->answers.size, event.queues);
    Py_XDECREF(event.queues);
    return taken;
}

/* Construction and destruction */

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
            arguments, named, "$OOOO!O!OO!O!SO!O!nn", keywords, &given.parts.log, &given.parts.flags, &given.parts.appender, &PyList_Type,
            &given.parts.keys, &PyDict_Type, &given.parts.dirty, &given.parts.now_ms, &PyDict_Type, &given.targets, &PyTuple_Type,
            &given.not_plain, &given.added, &PyTuple_Type, &given.hurried, &PyTuple_Type, &given.waited,
            &given.max_message_size, &given.max_frame))
        return NULL;
    if (check_bytes(given.not_plain) < 0 || check_parts(given.waited) < 0 ||
        (PyTuple_GET_SIZE(given.hurried) > 0 && check_parts(given.hurried) < 0))
        return NULL;
    PlainSends *self = (PlainSends *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->parts.log = Py_NewRef(given.parts.log);
    self->parts.flags = Py_NewRef(given.parts.flags);
    self->parts.appender = Py_NewRef(given.parts.appender);
    self->parts.keys = Py_NewRef(given.parts.keys);
    self->parts.dirty = Py_NewRef(given.parts.dirty);
    self->parts.now_ms = Py_NewRef(given.parts.now_ms);
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
    Py_VISIT(self->parts.log);
    Py_VISIT(self->parts.flags);
    Py_VISIT(self->parts.appender);
    Py_VISIT(self->parts.keys);
    Py_VISIT(self->parts.dirty);
    Py_VISIT(self->targets);
    Py_VISIT(self->parts.now_ms);
    return 0;
}

static void dealloc(PyObject *object)
{
    PlainSends *self = (PlainSends *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_CLEAR(self->parts.log);
    Py_CLEAR(self->parts.flags);
    Py_CLEAR(self->parts.appender);
    Py_CLEAR(self->parts.keys);
    Py_CLEAR(self->parts.dirty);
    Py_CLEAR(self->targets);
    Py_CLEAR(self->parts.now_ms);
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

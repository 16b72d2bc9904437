/* Many messages in one append: a batch send, half messages of a ledger, and the commit of those.
 *
 * In: the body of a request, or the places of half records in the log. Out: the same records, entries and keys as the
 * loops in `send.py`, `ledger_send.py` and `ledger_settle.py` make. All of a group is appended or nothing: first
 * everything is read, and if anything of it is not plain, has no room in the current file or might be refused, the
 * answer is None and Python, which is the reference, does the whole. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "appending.h"
#include "attributes.h"
#include "crc32.h"
#include "pairs.h"
#include "twins.h"

#define BATCH_HEAD 20 /* of a message in a batch: i32 size, magic, crc, flag, length of the body */
#define MAX_NAMES 64
#define MOST_MESSAGES 65536
#define ID_SIZE 16    /* hexadecimal digits of a log offset */
#define MAX_DIGITS 20

typedef struct {
    PyObject_HEAD
    Parts parts;
} Groups;

/* Names of properties, from a tuple of bytes. */
typedef struct {
    Span spans[MAX_NAMES];
    Names names;
} NameTable;

static int read_names(PyObject *tuple, NameTable *table)
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

/* Whether it is UTF-8, and the hash that Java has of it. -1: an exception is set. */
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

/* Properties of a message. 1: nothing in them is for Python to decide, 0: it is, -1: an exception is set. */
static int read_properties(Span text, Names not_plain, Pairs *pairs)
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

/* Messages in a batch, as `batch.py` has them */

typedef struct {
    Span body, properties;
    int32_t flag;
    Pairs pairs;
    int64_t sys_flag; /* of a half message, by the topic to which it belongs */
} InBatch;

typedef struct {
    InBatch *messages;
    size_t count, room;
} Batch;

/* Takes one from the front. False: it is broken. */
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

/* 1: all of them are plain, 0: not so, -1: an exception is set. */
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

/* What `append.py` asks for before it writes any of them. */
static int room_for_batch(Append *append, const Lane *lane, const Batch *batch, size_t added)
{
    size_t fixed = RECORD_HEAD + (size_t)PyBytes_GET_SIZE(lane->topic) + 2 + added + SPARE, total = 0;
    for (size_t i = 0; i < batch->count; i++)
        total += fixed + batch->messages[i].body.size + batch->messages[i].properties.size;
    return make_room(append, total);
}

/* 1: log and queue can be written to, and there is room; 0: Python has to; -1: an exception is set. */
static int open_for_batch(Append *append, Lane *lane, PyObject *queue, const Batch *batch, size_t added)
{
    int done = open_lane(queue, lane);
    if (done > 0)
        done = open_log(append);
    return done > 0 ? room_for_batch(append, lane, batch, added) : done;
}

/* What was written stays, also when there is an exception. */
static int close_all(Append *append, Lane *lanes, size_t count, int done)
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

/* Room for the ids of so many messages, with commas between. */
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

/* Places: where half messages belong */

/* A value of `places` for (topic, queue id), borrowed; it is asked of Python once. NULL: an exception is set. */
static PyObject *place_of(PyObject *places, const Pairs *pairs, PyObject *ask)
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

/* The topic of each into `topics`, its bits of the sys flag into the message. */
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

/* Whether each has what a half message needs. */
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

/* Commits */

/* A half record of the log, and the message that comes of it. */
typedef struct {
    Message message; /* `properties.at` is set when all are read: they are in `Commit.text` */
    size_t text_at;
    size_t lane;
    int64_t offset, root; /* in the queue of half messages */
} HalfRecord;

typedef struct {
    Append append;
    Span source; /* a file of the log */
    int64_t source_base;
    Names waiting; /* properties that a half message has only while it waits */
    PyObject *ask, *places;
    Lane *lanes; /* the first is that of op records */
    size_t lane_count;
    HalfRecord *halves;
    size_t count;
    uint8_t *text;
    size_t text_size, text_room;
    size_t total; /* bytes of all records */
} Commit;

/* Whether there is a whole and plain record at this offset of the log; its properties are those of the half then. */
static bool read_record(const Commit *commit, int64_t at, Message *message, Span *properties)
{
    int64_t position = at - commit->source_base, end = commit->append.base + commit->append.position;
    if (position < 0 || position > (int64_t)commit->source.size - RECORD_HEAD - 3 || at > end - RECORD_HEAD - 3)
        return false;
    const uint8_t *head = commit->source.at + position;
    int64_t size = (int32_t)get_u32(head), body_size = (int32_t)get_u32(head + 84);
    int32_t sys_flag = (int32_t)get_u32(head + 36);
    if (get_u32(head + 4) != MAGIC || sys_flag & (HOSTS_MASK | INNER_BATCH) || get_u64(head + 28) != (uint64_t)at ||
        size > (int64_t)commit->source.size - position || at + size > end || body_size < 0 ||
        RECORD_HEAD + body_size + 3 > size)
        return false;
    const uint8_t *topic = head + RECORD_HEAD + body_size;
    int64_t left = size - RECORD_HEAD - body_size - 3 - topic[0];
    if (topic[0] > 127 || left < 0 || left > MAX_PROPERTIES ||
        ((int64_t)topic[1 + topic[0]] << 8 | topic[2 + topic[0]]) != left)
        return false;
    *properties = (Span){topic + 3 + topic[0], (size_t)left};
    *message = (Message){
        .body = {head + RECORD_HEAD, (size_t)body_size},
        .body_crc = get_u32(head + 8),
        .flag = (int32_t)get_u32(head + 16),
        .sys_flag = (sys_flag & ~TRANSACTION_MASK) | COMMITTED,
        .born_timestamp = (int64_t)get_u64(head + 40),
        .prepared = at,
        .born_host = {head + 48, HOST_SIZE},
        .store_host = {head + 64, HOST_SIZE},
    };
    return (crc32(message->body.at, message->body.size) & 0x7FFFFFFF) == message->body_crc;
}

static int room_for_text(Commit *commit, size_t more)
{
    if (commit->text_size + more <= commit->text_room)
        return 0;
    size_t room = 2 * (commit->text_size + more) + 4096;
    uint8_t *grown = PyMem_Realloc(commit->text, room);
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    commit->text = grown;
    commit->text_room = room;
    return 0;
}

/* The lane of a queue, which may be one that is open. 1, 0: Python has to, -1: an exception is set. */
static int lane_of(Commit *commit, PyObject *queue, size_t *lane)
{
    for (size_t i = commit->lane_count; i-- > 0;)
        if (commit->lanes[i].queue == queue) {
            *lane = i;
            return 1;
        }
    *lane = commit->lane_count++;
    return open_lane(queue, &commit->lanes[*lane]);
}

/* The message of a half record. 1, 0: Python has to, -1: an exception is set. */
static int read_half(Commit *commit, PyObject *half, HalfRecord *found)
{
    int64_t at;
    Span properties;
    Pairs pairs;
    if (get_number(half, names.at, &at) < 0 || get_number(half, names.offset, &found->offset) < 0 ||
        get_number(half, names.root, &found->root) < 0)
        return -1;
    Message *message = &found->message;
    if (found->offset < 0 || found->root < 0 || !read_record(commit, at, message, &properties) ||
        properties.size == 0)
        return 0;
    int done = read_properties(properties, (Names){0}, &pairs);
    if (done <= 0 || pairs.real_topic.size == 0 || pairs.real_queue.size == 0)
        return done < 0 ? -1 : 0;
    PyObject *queue = place_of(commit->places, &pairs, commit->ask);
    done = queue == NULL ? -1 : queue == Py_None ? 0 : lane_of(commit, queue, &found->lane);
    if (done <= 0 || room_for_text(commit, properties.size) < 0)
        return done <= 0 ? done : -1;
    found->text_at = commit->text_size;
    message->properties.size = leave_out(properties, commit->waiting, commit->text + commit->text_size);
    commit->text_size += message->properties.size;
    message->tags_code = pairs.tags_code;
    message->unique_key = pairs.unique_key;
    message->keys = pairs.keys;
    commit->total += size_of(&commit->lanes[found->lane], message) + SPARE;
    return 1;
}

static size_t put_digits(uint8_t *at, int64_t number)
{
    return (size_t)snprintf((char *)at, MAX_DIGITS + 1, "%lld", (long long)number);
}

/* An op record: its body names the half record, its key the root. `front` ends where the root's number begins. */
static int write_op(Append *append, Lane *lane, const HalfRecord *half, Span front, Span key, int32_t tags_code)
{
    uint8_t body[MAX_DIGITS + 1], tail[MAX_DIGITS + 2], name[64 + MAX_DIGITS + 1];
    size_t digits = put_digits(tail, half->root);
    memcpy(put_span(name, key), tail, digits);
    tail[digits] = PAIR_END;
    Message op = {
        .body = {body, put_digits(body, half->offset)},
        .properties = front,
        .added = {tail, digits + 1},
        .tags_code = tags_code,
        .born_timestamp = append->now_ms,
        .born_host = span_of(append->store_host),
        .store_host = span_of(append->store_host),
        .keys = {name, key.size + digits},
    };
    op.body_crc = crc32(op.body.at, op.body.size) & 0x7FFFFFFF;
    return add_message(append, lane, &op);
}

static int write_commits(Commit *commit, Span front, Span key, int32_t tags_code)
{
    for (size_t i = 0; i < commit->count; i++) {
        HalfRecord *half = &commit->halves[i];
        half->message.properties.at = commit->text + half->text_at;
        if (add_message(&commit->append, &commit->lanes[half->lane], &half->message) < 0 ||
            write_op(&commit->append, &commit->lanes[0], half, front, key, tags_code) < 0)
            return -1;
    }
    return 1;
}

/* Of each the time at which it was born, and its queue. */
static int tell(const Commit *commit, PyObject *times, PyObject *queues)
{
    for (size_t i = 0; i < commit->count; i++) {
        const HalfRecord *half = &commit->halves[i];
        PyObject *time = PyLong_FromLongLong(half->message.born_timestamp);
        int done = time == NULL || PyList_Append(times, time) < 0 ||
                   PyList_Append(queues, commit->lanes[half->lane].queue) < 0;
        Py_XDECREF(time);
        if (done)
            return -1;
    }
    return 1;
}

/* 1: all of them can be committed, and there is room; 0: Python has to; -1: an exception is set. */
static int prepare_commit(Commit *commit, PyObject *halves, PyObject *op_queue, Span op_front)
{
    size_t count = (size_t)PyList_GET_SIZE(halves);
    commit->lanes = PyMem_Calloc(count + 1, sizeof(Lane));
    commit->halves = PyMem_Calloc(count + 1, sizeof(HalfRecord));
    commit->places = PyDict_New();
    if (commit->lanes == NULL || commit->halves == NULL || commit->places == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    size_t op_lane;
    int done = lane_of(commit, op_queue, &op_lane);
    if (done > 0)
        done = open_log(&commit->append);
    for (; done > 0 && commit->count < count; commit->count++)
        done = read_half(commit, PyList_GET_ITEM(halves, (Py_ssize_t)commit->count), &commit->halves[commit->count]);
    if (done <= 0)
        return done;
    size_t op_size = RECORD_HEAD + (size_t)PyBytes_GET_SIZE(commit->lanes[0].topic) + 2 + op_front.size +
                     2 * MAX_DIGITS + 1 + SPARE;
    return make_room(&commit->append, commit->total + count * op_size);
}

PyDoc_STRVAR(commit_doc,
"commit(halves, file, base, op_queue, op_properties, op_key, op_code, waiting, ask, arrivals)\n"
"    -> tuple[list[int], list[ConsumeQueue]] | None\n\n"
"Commits half messages of one file of the log, which begins at `base`: of each the message and an op record. `ask` is\n"
"called with topic and queue id, as bytes, and returns the queue, or None. Of each half message when it was born,\n"
"and its queue. None: nothing was done.");

static PyObject *commit(PyObject *object, PyObject *arguments)
{
    Groups *self = (Groups *)object;
    PyObject *halves, *op_queue, *op_properties, *op_key, *waiting, *ask, *arrivals;
    Py_buffer file;
    long long base;
    int op_code;
    if (!PyArg_ParseTuple(arguments, "O!y*LOSSiO!OO", &PyList_Type, &halves, &file, &base, &op_queue, &op_properties,
                          &op_key, &op_code, &PyTuple_Type, &waiting, &ask, &arrivals))
        return NULL;
    NameTable table = {0};
    PyObject *result = NULL, *times = PyList_New(0), *queues = PyList_New(0);
    if (times == NULL || queues == NULL)
        goto end;
    if (read_names(waiting, &table) == 0 && PyBytes_GET_SIZE(op_key) <= 64) {
        Commit all = {.append = {.parts = self->parts, .arrivals = arrivals},
                      .source = {file.buf, (size_t)file.len},
                      .source_base = base,
                      .waiting = table.names,
                      .ask = ask};
        int done = prepare_commit(&all, halves, op_queue, span_of(op_properties));
        if (done > 0)
            done = write_commits(&all, span_of(op_properties), span_of(op_key), op_code);
        if (done > 0)
            done = tell(&all, times, queues);
        done = close_all(&all.append, all.lanes, all.lane_count, done);
        result = done < 0 ? NULL : done == 0 ? Py_NewRef(Py_None) : PyTuple_Pack(2, times, queues);
        PyMem_Free(all.lanes);
        PyMem_Free(all.halves);
        PyMem_Free(all.text);
        Py_XDECREF(all.places);
    } else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "the key of op records is too long");
end:
    Py_XDECREF(times);
    Py_XDECREF(queues);
    PyBuffer_Release(&file);
    return result;
}

/* Life */

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

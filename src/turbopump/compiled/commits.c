/* Commits half messages of a ledger: for each, the message that consumers get, and an op record.
 *
 * In: offsets of half records in the log. Out: what `ledger/settlement.py` makes of them, in one append: see
 * `groups.c`. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "appending.h"
#include "attributes.h"
#include "crc32.h"
#include "groups.h"

#define MAX_DIGITS 20

/* A half record of the log, and the message made from it. */
typedef struct {
    Message message; /* `properties.at` is set after all are read: they are in `Commit.text` */
    size_t text_at;
    size_t lane;
    int64_t offset, root; /* in the queue of half messages */
} HalfRecord;

typedef struct {
    Append append;
    Span source; /* a file of the log */
    int64_t source_base;
    Names waiting; /* properties of half messages that committed messages do not have */
    Names not_plain; /* messages with one of these are delayed further: Python handles them */
    PyObject *ask, *places;
    Lane *lanes; /* the first is for op records */
    size_t lane_count;
    HalfRecord *halves;
    size_t count;
    uint8_t *text;
    size_t text_size, text_room;
    size_t total; /* bytes of all records */
} Commit;

/* Tells whether a whole and plain record is at this offset of the log; reads its properties. */
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

/* Finds or opens the lane of a queue. 1: found, 0: left to Python, -1: an exception is set. */
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

/* Makes the message of a half record. 1: made, 0: left to Python, -1: an exception is set. */
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
    int done = read_properties(properties, commit->not_plain, &pairs);
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

/* Returns born time and queue of each message. */
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

/* 1: all can be committed and fit into the file; 0: left to Python; -1: an exception is set. */
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

PyObject *commit_halves(Parts parts, PyObject *arguments)
{
    PyObject *halves, *op_queue, *op_properties, *op_key, *waiting, *not_plain, *ask, *arrivals;
    Py_buffer file;
    long long base;
    int op_code;
    if (!PyArg_ParseTuple(arguments, "O!y*LOSSiO!O!OO", &PyList_Type, &halves, &file, &base, &op_queue, &op_properties,
                          &op_key, &op_code, &PyTuple_Type, &waiting, &PyTuple_Type, &not_plain, &ask, &arrivals))
        return NULL;
    NameTable waiting_names = {0}, other_names = {0};
    PyObject *result = NULL, *times = PyList_New(0), *queues = PyList_New(0);
    if (times == NULL || queues == NULL)
        goto end;
    if (read_names(waiting, &waiting_names) == 0 && read_names(not_plain, &other_names) == 0 &&
        PyBytes_GET_SIZE(op_key) <= 64) {
        Commit all = {.append = {.parts = parts, .arrivals = arrivals},
                      .source = {file.buf, (size_t)file.len},
                      .source_base = base,
                      .waiting = waiting_names.names,
                      .not_plain = other_names.names,
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

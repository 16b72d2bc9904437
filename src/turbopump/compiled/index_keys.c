/* Adds keys to the index: the twin of `hashed` in `dispatch.py` and of the loop in `index.py`.
 *
 * In: messages whose keys are to be added, and one index file with free items. Out: items in the map, heads of chains
 * in the array of slots, and the new numbers of the file's header. A message whose keys do not fit, or that may have
 * been added before a crash, is left to Python. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "attributes.h"
#include "pairs.h"
#include "span.h"
#include "twins.h"

#define MAX_KEYS 64
#define NO_SEPARATOR 0x110000 /* not a character: a unique key is never split */
#define ITEM_SIZE 20 /* i32 hash, i64 offset, i32 seconds since the begin time, i32 previous item of the chain */

typedef struct {
    int32_t *slots;
    int64_t slot_count;
    uint8_t *items; /* item 0 */
    int64_t begin_timestamp;
    int64_t count;
    int64_t limit;
    int64_t used;
    int64_t end_timestamp;
    int64_t end_offset;
} File;

/* A message whose keys are to be added: `Keys` in `append.py`. */
typedef struct {
    int64_t offset;
    int64_t timestamp;
    uint32_t topic_hash;
    PyObject *unique_key;
    PyObject *keys;
} Waiting;

static int read_waiting(PyObject *row, Waiting *waiting)
{
    if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) != 5 || !PyUnicode_Check(PyTuple_GET_ITEM(row, 3)) ||
        !PyUnicode_Check(PyTuple_GET_ITEM(row, 4))) {
        PyErr_SetString(PyExc_TypeError, "what waits is (queue, offset, timestamp, unique key, keys)");
        return -1;
    }
    PyObject *topic_hash = PyObject_GetAttr(PyTuple_GET_ITEM(row, 0), names.topic_hash);
    if (topic_hash == NULL)
        return -1;
    waiting->topic_hash = (uint32_t)PyLong_AsLong(topic_hash);
    Py_DECREF(topic_hash);
    waiting->offset = PyLong_AsLongLong(PyTuple_GET_ITEM(row, 1));
    waiting->timestamp = PyLong_AsLongLong(PyTuple_GET_ITEM(row, 2));
    waiting->unique_key = PyTuple_GET_ITEM(row, 3);
    waiting->keys = PyTuple_GET_ITEM(row, 4);
    return PyErr_Occurred() ? -1 : 0;
}

/* Java's Math.abs, but 0 for the one number that has no absolute value. */
static int32_t absolute(uint32_t hash)
{
    int32_t code = (int32_t)hash;
    return code == INT32_MIN ? 0 : code < 0 ? -code : code;
}

static int32_t seconds_between(int64_t begin, int64_t timestamp)
{
    if (begin <= 0 || timestamp <= begin)
        return 0;
    int64_t seconds = (timestamp - begin) / 1000;
    return seconds > INT32_MAX ? INT32_MAX : (int32_t)seconds;
}

/* Adds the hashes of the keys in `text`, split at `separator`. Returns the number of hashes; -1: too many. */
static int add_hashes(PyObject *text, Py_UCS4 separator, uint32_t topic_hash, int32_t *hashes, int count)
{
    int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    Py_ssize_t size = PyUnicode_GET_LENGTH(text);
    for (Py_ssize_t begin = 0, at = 0; at < size; begin = ++at) {
        uint32_t hash = topic_hash;
        for (; at < size && PyUnicode_READ(kind, data, at) != separator; at++)
            hash = add_character(hash, PyUnicode_READ(kind, data, at));
        if (at == begin)
            continue;
        if (count == MAX_KEYS)
            return -1;
        hashes[count++] = absolute(hash);
    }
    return count;
}

static int hashes_of(const Waiting *waiting, int32_t *hashes)
{
    int count = add_hashes(waiting->unique_key, NO_SEPARATOR, waiting->topic_hash, hashes, 0);
    return count < 0 ? -1 : add_hashes(waiting->keys, ' ', waiting->topic_hash, hashes, count);
}

static void put_item(File *file, int32_t hash, const Waiting *waiting)
{
    int32_t *slot = file->slots + hash % file->slot_count;
    uint8_t *at = file->items + file->count * ITEM_SIZE;
    at = put_u32(at, (uint32_t)hash);
    at = put_u64(at, (uint64_t)waiting->offset);
    at = put_u32(at, (uint32_t)seconds_between(file->begin_timestamp, waiting->timestamp));
    put_u32(at, (uint32_t)*slot);
    if (*slot == 0)
        file->used++;
    *slot = (int32_t)file->count++;
    file->end_offset = waiting->offset;
    file->end_timestamp = waiting->timestamp;
}

/* Returns the number of messages that are done; -1: an exception is set. */
static Py_ssize_t put_while_room(File *file, PyObject *waiting, Py_ssize_t most, int64_t repeat_offset)
{
    Py_ssize_t done = 0;
    for (; done < most && done < PyList_GET_SIZE(waiting); done++) {
        Waiting message;
        int32_t hashes[MAX_KEYS];
        if (read_waiting(PyList_GET_ITEM(waiting, done), &message) < 0)
            return -1;
        if (message.offset < file->end_offset)
            continue;
        int count = hashes_of(&message, hashes);
        if (message.offset == repeat_offset || count < 0 || file->count + count > file->limit)
            break;
        for (int i = 0; i < count; i++)
            put_item(file, hashes[i], &message);
    }
    return done;
}

/* Checks that slots and map are as large as the numbers of the file require. */
static bool is_whole(const File *file, const Py_buffer *slots, const Py_buffer *map, int64_t items_at)
{
    return file->slot_count > 0 && slots->itemsize == sizeof(int32_t) && file->count > 0 && items_at >= 0 &&
           file->limit <= INT32_MAX && items_at + file->limit * ITEM_SIZE <= map->len;
}

PyObject *put_keys(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *waiting;
    Py_ssize_t most;
    Py_buffer slots, map;
    long long items_at, begin_timestamp, count, limit, used, end_timestamp, end_offset, repeat_offset;
    if (!PyArg_ParseTuple(arguments, "O!nw*w*LLLLLLLL", &PyList_Type, &waiting, &most, &slots, &map, &items_at,
                          &begin_timestamp, &count, &limit, &used, &end_timestamp, &end_offset, &repeat_offset))
        return NULL;
    File file = {slots.buf, slots.len / (int64_t)sizeof(int32_t), NULL, begin_timestamp, count, limit, used,
                 end_timestamp, end_offset};
    Py_ssize_t done = 0;
    if (is_whole(&file, &slots, &map, items_at)) {
        file.items = (uint8_t *)map.buf + items_at;
        done = put_while_room(&file, waiting, most, repeat_offset);
    }
    PyBuffer_Release(&slots);
    PyBuffer_Release(&map);
    if (done < 0)
        return NULL;
    return Py_BuildValue("nLLLL", done, (long long)file.count, (long long)file.used, (long long)file.end_timestamp,
                         (long long)file.end_offset);
}

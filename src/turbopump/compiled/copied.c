/* Records that a slave has copied into its log: an entry in the queue of each, and keys for the index.
 *
 * A record is taken if it is plain: V1, IPv4 hosts, no transaction, properties as `pairs.h` says, in a known queue that
 * ends where the record belongs. The first one that is not ends the call; Python (`scan.py`, `dispatch.py`) goes on
 * with it, and decides whether it is a record at all. */

#define PY_SSIZE_T_CLEAN
#include "appending.h"

#include "attributes.h"
#include "crc32.h"
#include "pairs.h"
#include "twins.h"

#define MAX_LANES 16 /* queues open at a time */
#define MAX_NAMES 8
#define MAX_TOPIC 127
#define MAX_TIME 253402300799999 /* the end of the year 9999; Python replaces later ones */

typedef struct {
    Lane lane;
    int64_t last_physical;
} CopiedLane;

typedef struct {
    PyObject *named, *dirty, *keys, *arrivals;
    Names not_plain;
    CopiedLane lanes[MAX_LANES];
    int lane_count;
} Copied;

/* A record in the log. */
typedef struct {
    size_t size;
    int32_t queue_id;
    int64_t queue_offset, physical, store_timestamp;
    Span topic, properties;
} Found;

static bool read_record(const uint8_t *at, size_t room, int64_t physical, bool check_crc, Found *found)
{
    if (room < RECORD_HEAD + 3)
        return false;
    size_t size = get_u32(at), body_size = get_u32(at + 84);
    uint32_t sys_flag = get_u32(at + 36);
    if (get_u32(at + 4) != MAGIC || size > room || size < RECORD_HEAD + 3 || body_size > size - RECORD_HEAD - 3 ||
        (int64_t)get_u64(at + 28) != physical || sys_flag & (HOSTS_MASK | TRANSACTION_MASK | INNER_BATCH))
        return false;
    const uint8_t *topic = at + RECORD_HEAD + body_size;
    size_t left = size - RECORD_HEAD - body_size, topic_size = topic[0];
    if (topic_size > MAX_TOPIC || 1 + topic_size + 2 > left)
        return false;
    const uint8_t *properties = topic + 1 + topic_size + 2;
    size_t properties_size = left - 1 - topic_size - 2;
    if (((size_t)properties[-2] << 8 | properties[-1]) != properties_size)
        return false;
    if (check_crc && body_size > 0 && (crc32(at + RECORD_HEAD, body_size) & 0x7FFFFFFF) != get_u32(at + 8))
        return false;
    *found = (Found){
        .size = size,
        .queue_id = (int32_t)get_u32(at + 12),
        .queue_offset = (int64_t)get_u64(at + 20),
        .physical = physical,
        .store_timestamp = (int64_t)get_u64(at + 56),
        .topic = {topic + 1, topic_size},
        .properties = {properties, properties_size},
    };
    return found->store_timestamp > 0 && found->store_timestamp <= MAX_TIME;
}

static int close_lanes(Copied *copied)
{
    int done = 0;
    for (int i = 0; i < copied->lane_count; i++)
        if (close_lane(&copied->lanes[i].lane) < 0)
            done = -1;
    copied->lane_count = 0;
    return done;
}

/* 1: found in the table of queues and open, 0: left to Python, -1: an exception is set. */
static int open_copied_lane(Copied *copied, const Found *found)
{
    PyObject *key = Py_BuildValue("y#i", found->topic.at, (Py_ssize_t)found->topic.size, (int)found->queue_id);
    if (key == NULL)
        return -1;
    PyObject *queue = PyDict_GetItemWithError(copied->named, key);
    Py_DECREF(key);
    if (queue == NULL)
        return PyErr_Occurred() ? -1 : 0;
    if (copied->lane_count == MAX_LANES && close_lanes(copied) < 0)
        return -1;
    CopiedLane *opened = &copied->lanes[copied->lane_count++];
    int64_t max_offset;
    int done = open_lane(queue, &opened->lane);
    if (done > 0 && (get_number(queue, names.max_offset, &max_offset) < 0 ||
                     get_number(queue, names.last_physical, &opened->last_physical) < 0))
        done = -1;
    if (done > 0 && max_offset == opened->lane.next_offset)
        return 1;
    copied->lane_count--;
    return close_lane(&opened->lane) < 0 || done < 0 ? -1 : 0;
}

/* The lane of a record; NULL: left to Python, or an exception is set. */
static CopiedLane *lane_of(Copied *copied, const Found *found)
{
    for (int i = copied->lane_count - 1; i >= 0; i--) {
        CopiedLane *known = &copied->lanes[i];
        Span topic = span_of(known->lane.topic); /* its length comes first */
        if (known->lane.queue_id == found->queue_id && topic.size == found->topic.size + 1 &&
            memcmp(topic.at + 1, found->topic.at, found->topic.size) == 0)
            return known;
    }
    return open_copied_lane(copied, found) > 0 ? &copied->lanes[copied->lane_count - 1] : NULL;
}

/* 1: dispatched, 0: left to Python, -1: an exception is set. */
static int dispatch_one(Copied *copied, const Found *found)
{
    Pairs pairs;
    if (!take_pairs(found->properties, copied->not_plain, &pairs) || !pairs.is_ascii)
        return 0;
    CopiedLane *opened = lane_of(copied, found);
    if (opened == NULL)
        return PyErr_Occurred() ? -1 : 0;
    Lane *lane = &opened->lane;
    if (found->queue_offset != lane->next_offset || found->physical <= opened->last_physical)
        return 0;
    if (copied->arrivals != Py_None && add_arrival(copied->arrivals, lane, pairs.tags_code) < 0)
        return -1;
    PyObject *time = PyLong_FromLongLong(found->store_timestamp);
    if (time == NULL)
        return -1;
    int done = add_keys(copied->keys, lane, found->physical, time, pairs.unique_key, pairs.keys);
    Py_DECREF(time);
    if (done < 0)
        return -1;
    if (add_entry(copied->dirty, lane, pairs.tags_code, found->physical, found->size) < 0) {
        drop_last(copied->keys);
        return -1;
    }
    lane->next_offset++;
    lane->last = opened->last_physical = found->physical;
    return 1;
}

PyObject *dispatch_copied(PyObject *module, PyObject *arguments)
{
    (void)module;
    Copied copied = {0};
    PyObject *not_plain;
    Py_buffer log;
    long long start, position, limit;
    int check_crc;
    if (!PyArg_ParseTuple(arguments, "y*LLLpO!O!O!OO!", &log, &start, &position, &limit, &check_crc, &PyDict_Type,
                          &copied.named, &PyDict_Type, &copied.dirty, &PyList_Type, &copied.keys, &copied.arrivals,
                          &PyTuple_Type, &not_plain))
        return NULL;
    Span not_plain_names[MAX_NAMES];
    Py_ssize_t count = PyTuple_GET_SIZE(not_plain);
    bool is_legal = count <= MAX_NAMES && 0 <= position && position <= limit && limit <= log.len &&
                    (copied.arrivals == Py_None || PyList_Check(copied.arrivals));
    for (Py_ssize_t i = 0; is_legal && i < count; i++)
        if ((is_legal = PyBytes_Check(PyTuple_GET_ITEM(not_plain, i))))
            not_plain_names[i] = span_of(PyTuple_GET_ITEM(not_plain, i));
    if (!is_legal) {
        PyBuffer_Release(&log);
        PyErr_SetString(PyExc_ValueError, "position and limit are in the buffer, names are bytes, arrivals a list");
        return NULL;
    }
    copied.not_plain = (Names){not_plain_names, (size_t)count};
    long long last = -1, last_timestamp = 0;
    int done = 1;
    while (done > 0) {
        Found found;
        const uint8_t *at = (const uint8_t *)log.buf + position;
        if (!read_record(at, (size_t)(limit - position), start + position, check_crc, &found))
            break;
        done = dispatch_one(&copied, &found);
        if (done > 0) {
            last = found.physical;
            last_timestamp = found.store_timestamp;
            position += (long long)found.size;
        }
    }
    PyObject *type, *value, *traceback; /* of the exception, if any: what was dispatched before it stays */
    PyErr_Fetch(&type, &value, &traceback);
    int closed = close_lanes(&copied);
    PyBuffer_Release(&log);
    if (type != NULL) {
        PyErr_Clear();
        PyErr_Restore(type, value, traceback);
        return NULL;
    }
    return closed < 0 ? NULL : Py_BuildValue("LLL", position, last, last_timestamp);
}

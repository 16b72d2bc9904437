/* Answers to sends: frames with a JSON header, made of constant parts and five values (`receipt.py`). */

#ifndef TURBOPUMP_ANSWERS_H
#define TURBOPUMP_ANSWERS_H

#include <Python.h>

#include "span.h"

#define ANSWER_PARTS 6

/* A growing buffer that is reused. */
typedef struct {
    uint8_t *bytes;
    size_t size;
    size_t room;
} Answers;

typedef struct {
    int32_t queue_id;
    Span unique_key;
    int64_t log_offset;
    int64_t queue_offset;
    int32_t opaque;
} Answer;

/* Reserves memory for one more answer, so that `add_answer` cannot fail. -1: an exception is set. */
int reserve_answer(Answers *answers, PyObject *parts, Span unique_key);

/* `parts` is a tuple of ANSWER_PARTS bytes. */
void add_answer(Answers *answers, PyObject *parts, Answer answer);

#endif

#define PY_SSIZE_T_CLEAN
#include "answers.h"

#define PREFIX_SIZE 8   /* i32 length of the rest, u8 encoding (0: JSON), u24 length of the header */
#define NUMBERS_SIZE 96 /* the prefix, and four numbers of at most 20 digits */

static Span part(PyObject *parts, Py_ssize_t number)
{
    PyObject *bytes = PyTuple_GET_ITEM(parts, number);
    return (Span){(const uint8_t *)PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes)};
}

int reserve_answer(Answers *answers, PyObject *parts, Span unique_key)
{
    size_t most = answers->size + NUMBERS_SIZE + unique_key.size;
    for (Py_ssize_t i = 0; i < ANSWER_PARTS; i++)
        most += part(parts, i).size;
    if (most <= answers->room)
        return 0;
    uint8_t *grown = PyMem_Realloc(answers->bytes, 2 * most);
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    answers->bytes = grown;
    answers->room = 2 * most;
    return 0;
}

static uint8_t *put_decimal(uint8_t *at, int64_t number)
{
    uint8_t digits[20];
    size_t count = 0;
    uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do
        digits[count++] = (uint8_t)('0' + left % 10);
    while (left /= 10);
    if (number < 0)
        *at++ = '-';
    while (count > 0)
        *at++ = digits[--count];
    return at;
}

static uint8_t *put_hexadecimal(uint8_t *at, uint64_t number)
{
    for (int shift = 60; shift >= 0; shift -= 4)
        *at++ = (uint8_t)"0123456789ABCDEF"[number >> shift & 0xF];
    return at;
}

void add_answer(Answers *answers, PyObject *parts, Answer answer)
{
    uint8_t *begin = answers->bytes + answers->size, *header = begin + PREFIX_SIZE, *at = header;
    at = put_decimal(put_span(at, part(parts, 0)), answer.queue_id);
    at = put_span(put_span(at, part(parts, 1)), answer.unique_key);
    at = put_hexadecimal(put_span(at, part(parts, 2)), (uint64_t)answer.log_offset);
    at = put_decimal(put_span(at, part(parts, 3)), answer.queue_offset);
    at = put_decimal(put_span(at, part(parts, 4)), answer.opaque);
    at = put_span(at, part(parts, 5));
    uint32_t header_size = (uint32_t)(at - header);
    put_u32(put_u32(begin, header_size + 4), header_size);
    answers->size += PREFIX_SIZE + header_size;
}

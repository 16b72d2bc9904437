#include "send_header.h"

#define I32_DIGITS 10
#define I64_DIGITS 19
#define LENGTH(array) (sizeof(array) / sizeof *(array))

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Reader;

typedef enum { TOPIC, QUEUE_ID, SYS_FLAG, BORN_TIMESTAMP, FLAG, PROPERTIES, RECONSUME_TIMES, BATCH, OTHER } Field;

#define BIT(field) (1u << (field))
#define REQUIRED \
    (BIT(TOPIC) | BIT(QUEUE_ID) | BIT(SYS_FLAG) | BIT(BORN_TIMESTAMP) | BIT(FLAG) | BIT(PROPERTIES))

/* Code 310 has one-letter fields, code 10 long names; both begin with their code. */
static const char BY_LETTERS[] = "{\"code\":310,", BY_WORDS[] = "{\"code\":10,";
static const struct {
    const char *word;
    char letter;
} NAMES[] = {
    [TOPIC] = {"topic", 'b'},
    [QUEUE_ID] = {"queueId", 'e'},
    [SYS_FLAG] = {"sysFlag", 'f'},
    [BORN_TIMESTAMP] = {"bornTimestamp", 'g'},
    [FLAG] = {"flag", 'h'},
    [PROPERTIES] = {"properties", 'i'},
    [RECONSUME_TIMES] = {"reconsumeTimes", 'j'},
    [BATCH] = {"batch", 'm'},
};

static bool take(Reader *reader, uint8_t byte)
{
    return reader->at < reader->end && *reader->at == byte ? (reader->at++, true) : false;
}

static bool take_prefix(Reader *reader, const char *prefix, size_t size)
{
    if ((size_t)(reader->end - reader->at) < size || memcmp(reader->at, prefix, size) != 0)
        return false;
    reader->at += size;
    return true;
}

/* A string of printable ASCII, without its quotes. `escaped` says whether it holds a backslash. */
static bool take_string(Reader *reader, Span *string, bool *escaped)
{
    if (!take(reader, '"'))
        return false;
    const uint8_t *at = reader->at, *end = reader->end;
    *escaped = false;
    for (; at < end && *at != '"'; at++) {
        if (*at < 0x20 || *at >= 0x80)
            return false;
        if (*at == '\\') {
            *escaped = true;
            if (++at == end)
                return false;
        }
    }
    if (at == end)
        return false;
    *string = (Span){reader->at, (size_t)(at - reader->at)};
    reader->at = at + 1;
    return true;
}

static bool take_plain_string(Reader *reader, Span *string)
{
    bool escaped;
    return take_string(reader, string, &escaped) && !escaped;
}

static Span take_digits(Reader *reader)
{
    const uint8_t *begin = reader->at;
    if (reader->at < reader->end && *reader->at == '-')
        reader->at++;
    while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9')
        reader->at++;
    return (Span){begin, (size_t)(reader->at - begin)};
}

/* An integer in canonical form: no plus, no leading zero, no minus zero. */
static bool parse_number(Span text, size_t max_digits, int64_t *number)
{
    bool negative = text.size > 0 && text.at[0] == '-';
    const uint8_t *at = text.at + negative, *end = text.at + text.size;
    size_t digits = (size_t)(end - at);
    if (digits == 0 || digits > max_digits || (at[0] == '0' && (digits > 1 || negative)))
        return false;
    uint64_t value = 0; /* 19 digits fit */
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return false;
        value = value * 10 + (uint64_t)(*at - '0');
    }
    if (value > (uint64_t)INT64_MAX)
        return false;
    *number = negative ? -(int64_t)value : (int64_t)value;
    return true;
}

static bool parse_i32(Span text, int32_t *number)
{
    int64_t wide;
    if (!parse_number(text, I32_DIGITS, &wide) || wide < INT32_MIN || wide > INT32_MAX)
        return false;
    *number = (int32_t)wide;
    return true;
}

static Field field_of(Span name, bool letters)
{
    for (size_t field = 0; field < LENGTH(NAMES); field++)
        if (letters ? name.size == 1 && name.at[0] == (uint8_t)NAMES[field].letter : is(name, NAMES[field].word))
            return (Field)field;
    return OTHER;
}

static bool keep_field(SendHeader *send, Field field, Span value)
{
    switch (field) {
    case TOPIC: send->topic = value; return true;
    case QUEUE_ID: return parse_i32(value, &send->queue_id);
    case SYS_FLAG: return parse_i32(value, &send->sys_flag);
    case BORN_TIMESTAMP: return parse_number(value, I64_DIGITS, &send->born_timestamp);
    case FLAG: return parse_i32(value, &send->flag);
    case PROPERTIES: send->properties = value; return true;
    case RECONSUME_TIMES: return parse_i32(value, &send->reconsume_times);
    case BATCH: return is(value, "false");
    case OTHER: return true;
    }
    return false;
}

static bool add_field(Fields *fields, Span name, Span value)
{
    if (fields == NULL)
        return true;
    if (fields->count == MAX_SIGNED_FIELDS)
        return false;
    fields->field[fields->count].name = name;
    fields->field[fields->count++].value = value;
    return true;
}

static bool take_fields(Reader *reader, SendHeader *send, bool letters, Fields *fields)
{
    unsigned seen = 0;
    if (!take(reader, '{'))
        return false;
    do {
        Span name, value;
        bool escaped;
        if (!take_plain_string(reader, &name) || !take(reader, ':') || !take_string(reader, &value, &escaped))
            return false;
        Field field = field_of(name, letters);
        if ((escaped && field != PROPERTIES) || (field != OTHER && seen & BIT(field)))
            return false;
        seen |= BIT(field);
        if (!keep_field(send, field, value) || !add_field(fields, name, value))
            return false;
    } while (take(reader, ','));
    return take(reader, '}') && (seen & REQUIRED) == REQUIRED;
}

static bool take_other_value(Reader *reader)
{
    Span ignored;
    int64_t number;
    if (reader->at < reader->end && *reader->at == '"')
        return take_plain_string(reader, &ignored);
    return parse_number(take_digits(reader), I64_DIGITS, &number);
}

/* Reads everything behind the code. */
static bool take_command(Reader *reader, SendHeader *send, bool letters, Fields *fields)
{
    enum { EXT_FIELDS = 1, COMMAND_FLAG = 2, OPAQUE = 4, VERSION = 8 };
    int32_t version; /* not needed, but a header with an invalid one is refused */
    unsigned seen = 0;
    do {
        Span name;
        unsigned part = 0;
        bool known;
        if (!take_plain_string(reader, &name) || !take(reader, ':'))
            return false;
        if (is(name, "extFields"))
            part = EXT_FIELDS, known = take_fields(reader, send, letters, fields);
        else if (is(name, "flag"))
            part = COMMAND_FLAG, known = parse_i32(take_digits(reader), &send->command_flag);
        else if (is(name, "opaque"))
            part = OPAQUE, known = parse_i32(take_digits(reader), &send->opaque);
        else if (is(name, "version"))
            part = VERSION, known = parse_i32(take_digits(reader), &version);
        else
            known = !is(name, "code") && take_other_value(reader);
        if (!known || seen & part)
            return false;
        seen |= part;
    } while (take(reader, ','));
    return take(reader, '}') && reader->at == reader->end && seen & EXT_FIELDS;
}

static bool read_header(Span header, SendHeader *send, Fields *fields)
{
    Reader reader = {header.at, header.at + header.size};
    *send = (SendHeader){0};
    if (take_prefix(&reader, BY_LETTERS, sizeof BY_LETTERS - 1))
        return take_command(&reader, send, true, fields);
    return take_prefix(&reader, BY_WORDS, sizeof BY_WORDS - 1) && take_command(&reader, send, false, fields);
}

bool read_send_header(Span header, SendHeader *send)
{
    return read_header(header, send, NULL);
}

bool read_send_fields(Span header, SendHeader *send, Fields *fields)
{
    fields->count = 0;
    return read_header(header, send, fields);
}

static int hex_digit(uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static int short_escape(uint8_t byte)
{
    switch (byte) {
    case '"': case '\\': case '/': return byte;
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return -1;
    }
}

/* Returns the ASCII character of the escape; -1 for other escapes. */
static int take_escape(Reader *reader)
{
    if (reader->at == reader->end)
        return -1;
    uint8_t kind = *reader->at++;
    if (kind != 'u')
        return short_escape(kind);
    if (reader->end - reader->at < 4 || reader->at[0] != '0' || reader->at[1] != '0')
        return -1;
    int high = hex_digit(reader->at[2]), low = hex_digit(reader->at[3]);
    reader->at += 4;
    return high < 0 || high > 7 || low < 0 ? -1 : high << 4 | low;
}

ptrdiff_t unescape(Span text, uint8_t *out, size_t room)
{
    Reader reader = {text.at, text.at + text.size};
    size_t size = 0;
    while (reader.at < reader.end) {
        int byte = *reader.at++;
        if (byte == '\\')
            byte = take_escape(&reader);
        if (byte < 0 || size == room)
            return -1;
        out[size++] = (uint8_t)byte;
    }
    return (ptrdiff_t)size;
}

/* The rows of records.def as records, and values that records have: see records.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/api.h"
#include "frontend/records/records.h"

json_t *f8_json_number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

const char *f8_type_shown(const fp8c_type *type, char text[F8_TYPE_TEXT])
{
    const f8_type own = f8_api_type_in(type);
    return f8_type_print(&own, text, F8_TYPE_TEXT);
}

/* ---- values ---- */

static json_t *of_text(const char *text)
{
    return text ? json_string(text) : json_null();
}

static json_t *of_hash(uint64_t hash)
{
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    return json_string(hash ? text : "");
}

static json_t *of_type(fp8c_type type)
{
    char text[F8_TYPE_TEXT];
    return json_string(f8_type_shown(&type, text));
}

static json_t *of_integer(int64_t x)
{
    return json_integer((json_int_t)x);
}

static json_t *of_flag(bool x)
{
    return json_boolean(x);
}

static json_t *of_json(json_t *value)
{
    return value;
}

#define OF(x)                                                                                      \
    _Generic((x),                                                                                  \
        bool: of_flag,                                                                             \
        int32_t: of_integer,                                                                       \
        int64_t: of_integer,                                                                       \
        uint64_t: of_hash,                                                                         \
        double: f8_json_number,                                                                    \
        const char *: of_text,                                                                     \
        fp8c_type: of_type,                                                                        \
        json_t *: of_json)(x)

/* ---- rows ---- */

/* Adds a field. A record that lacks one becomes NULL. */
static void add(json_t **record, const char *name, json_t *value)
{
    if (json_object_set_new(*record, name, value)) {
        json_decref(*record);
        *record = NULL;
    }
}

static json_t *begin_record(const char *event, json_t *begin)
{
    json_t *record = begin ? json_pack("{ss}", "event", event) : NULL;
    if (record && json_object_update(record, begin)) {
        json_decref(record);
        record = NULL;
    }
    json_decref(begin);
    return record;
}

static const char *test_result(fp8c_test_result result)
{
    static const char *const names[] = {[FP8C_TEST_FAILED] = "failed",
                                        [FP8C_TEST_PASSED] = "passed",
                                        [FP8C_TEST_COMPILED] = "compiled",
                                        [FP8C_TEST_NOT_RUN] = "not run"};
    return names[result];
}

/* The words of a text with a space between two. */
static json_t *words(const char *text)
{
    json_t *all = json_array();
    while (*text) {
        const size_t length = strcspn(text, " ");
        json_array_append_new(all, json_stringn(text, length));
        text += length + (text[length] == ' ');
    }
    return all;
}

static json_t *default_of(const fp8c_attr *a)
{
    switch (a->kind) {
    case FP8C_ATTR_INT: return json_integer((json_int_t)a->i);
    case FP8C_ATTR_FLOAT: return f8_json_number(a->f);
    case FP8C_ATTR_BOOL: return json_boolean(a->i);
    case FP8C_ATTR_DTYPE: return json_string(fp8c_name(FP8C_NAME_DTYPE, (int)a->i));
    case FP8C_ATTR_STRING: return json_string(a->s);
    case FP8C_ATTR_INTS: return json_array();
    }
    return NULL;
}

static json_t *attributes_of(const char *op)
{
    static const char *const kinds[] = {"int", "float", "bool", "dtype", "string", "ints"};
    json_t *all = json_array();
    fp8c_op_attr a = {.struct_size = sizeof a};
    for (int i = 0; fp8c_op_attribute(op, i, &a) == FP8C_OK; i++)
        json_array_append_new(all, json_pack("{ss ss so ss}", "name", a.attr.name, "kind",
                                             kinds[a.attr.kind], "default", default_of(&a.attr),
                                             "text", a.text));
    return all;
}

#define VALUE(name, x) add(&record, name, OF(x));
#define FIELD(member) VALUE(#member, s->member)
#define FLAG(member) VALUE(#member, (bool)s->member)
#define RECORD(name, event, type, fields)                                                          \
    json_t *f8_record_##name(json_t *begin, const type *s)                                         \
    {                                                                                              \
        json_t *record = begin_record(event, begin);                                               \
        fields return record;                                                                      \
    }
#include "frontend/records/records.def"
#undef RECORD

char *f8_record_lines(json_t *records)
{
    char *text = NULL;
    size_t size, i;
    json_t *record;
    FILE *to = records ? open_memstream(&text, &size) : NULL;
    bool ok = to != NULL;
    json_array_foreach (records, i, record)
        ok = ok && !json_dumpf(record, to, JSON_COMPACT | JSON_PRESERVE_ORDER) &&
             fputc('\n', to) != EOF;
    ok = to && !fclose(to) && ok;
    json_decref(records);
    if (ok)
        return text;
    free(text);
    return NULL;
}

/* Fingerprints of steps: see fingerprint.h. */
#include "frontend/train/fingerprint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/checkpoint/shared.h"
#include "ir/base/hash.h"

enum { DIGITS = 16 }; /* of a hash as text */

void f8_fingerprint_free(f8_fingerprint *f)
{
    free(f->value);
    free(f->variable);
    *f = (f8_fingerprint){0};
}

/* ---- hashing ---- */

static uint64_t hash_variable(fp8c_program *program, int index, const fp8c_variable *v)
{
    const size_t bytes = (size_t)fp8c_type_bytes(&v->type);
    if (v->data)
        return f8_hash_bytes(v->data, bytes).lo;
    void *copy = malloc(bytes ? bytes : 1);
    const bool read = copy && fp8c_program_read(program, index, copy) == FP8C_OK;
    const uint64_t hash = read ? f8_hash_bytes(copy, bytes).lo : 0;
    free(copy);
    return hash;
}

void f8_fingerprint_variables(f8_fingerprint *f, fp8c_program *program)
{
    fp8c_variable v;
    size_t n = 0;
    while (fp8c_program_variable(program, (int)n, &v) == FP8C_OK)
        n++;
    free(f->variable);
    f->variable = calloc(n + 1, sizeof *f->variable);
    f->failed |= !f->variable;
    f->n_variables = f->variable ? n : 0;
    for (size_t i = 0; i < f->n_variables; i++)
        if ((int)i < f8_file_variables(program) &&
            fp8c_program_variable(program, (int)i, &v) == FP8C_OK)
            f->variable[i] = hash_variable(program, (int)i, &v);
}

void f8_fingerprint_add(void *fingerprint, const fp8c_witnessed *value)
{
    f8_fingerprint *f = fingerprint;
    if (f->n == f->room) {
        const size_t room = f->room ? 2 * f->room : 256;
        uint64_t *grown = realloc(f->value, room * sizeof *grown);
        f->failed |= !grown;
        if (!grown)
            return;
        f->value = grown;
        f->room = room;
    }
    f->value[f->n++] = value->hash;
}

/* ---- records ---- */

static json_t *as_text(const uint64_t *hash, size_t n)
{
    char *text = malloc(n * DIGITS + 1);
    for (size_t i = 0; text && i < n; i++)
        snprintf(text + i * DIGITS, DIGITS + 1, "%016" PRIx64, hash[i]);
    json_t *s = text ? json_stringn(text, n * DIGITS) : NULL;
    free(text);
    return s;
}

json_t *f8_fingerprint_record(const f8_fingerprint *f, const char *function, int64_t step,
                              int64_t micro_step)
{
    if (f->failed)
        return NULL;
    json_t *record = json_pack("{ss sI ss sI so}", "event", "fingerprint", "step", (json_int_t)step,
                               "function", function, "micro_step", (json_int_t)micro_step, "values",
                               as_text(f->value, f->n));
    if (record && f->variable)
        json_object_set_new(record, "variables", as_text(f->variable, f->n_variables));
    return record;
}

static bool read_text(const json_t *text, uint64_t **out, size_t *n)
{
    const char *s = json_string_value(text);
    const size_t length = s ? strlen(s) : 1;
    if (length % DIGITS)
        return false;
    *n = length / DIGITS;
    *out = calloc(*n + 1, sizeof **out);
    for (size_t i = 0; *out && i < *n; i++) {
        char one[DIGITS + 1] = "", *end;
        memcpy(one, s + i * DIGITS, DIGITS);
        (*out)[i] = strtoull(one, &end, 16);
        if (*end)
            return false;
    }
    return *out != NULL;
}

bool f8_fingerprint_read(f8_fingerprint *f, const json_t *record, const char *function,
                         int64_t micro_step)
{
    const char *of = json_string_value(json_object_get(record, "function"));
    const json_t *variables = json_object_get(record, "variables");
    if (!of || strcmp(of, function) ||
        json_integer_value(json_object_get(record, "micro_step")) != micro_step)
        return false;
    if (read_text(json_object_get(record, "values"), &f->value, &f->n) &&
        (!variables || read_text(variables, &f->variable, &f->n_variables)))
        return true;
    f8_fingerprint_free(f); /* a damaged one has nothing to compare with */
    return false;
}

/* For tests of checkpoints: runs of the command on a short text, with their records, and copies of
 * safetensors files to change and write again. */
#ifndef TEST_CHECKPOINT_H
#define TEST_CHECKPOINT_H

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "frontend/checkpoint/safetensors.h"
#include "tests/shared/api/cli.h"

enum { TEXT = 6000, MOST = 128, MOST_METADATA = 16, MAX_ARGS = 40 };

static inline const char *text(void)
{
    return f8_cli_write_words("text", TEXT);
}

/* ---- running ---- */

/* Run `command file` with the options shared by all, then `more`, its records to a file of their
 * own. */
static inline f8_cli_result run(const char *command, const char *file, const char *const *more)
{
    const char *args[MAX_ARGS] = {command,  file,  "--json", f8_cli_temp("records"),
                                  "--data", text()};
    int n = strcmp(command, "export") ? 6 : 4;
    args[n] = NULL;
    remove(args[3]);
    for (int i = 0; more[i]; i++) {
        ck_assert_int_lt(n, MAX_ARGS - 1);
        args[n++] = more[i];
    }
    return f8_cli_run(args);
}
#define RUN(command, file, ...) run(command, file, (const char *const[]){__VA_ARGS__, NULL})

static inline void ok(f8_cli_result r)
{
    ck_assert_msg(r.code == 0 && !*r.err, "exit %d: %s", r.code, r.err);
}

/* Exit 1, all of the messages on stderr, nothing on stdout and no record. */
static inline void refused(f8_cli_result r, const char *const *messages)
{
    struct stat s;
    ck_assert_int_eq(r.code, 1);
    for (int i = 0; messages[i]; i++)
        ck_assert_msg(strstr(r.err, messages[i]) != NULL, "'%s' does not say '%s'", r.err,
                      messages[i]);
    ck_assert_str_eq(r.out, "");
    ck_assert(stat(f8_cli_temp("records"), &s) || s.st_size == 0);
}
#define REFUSED(result, ...) refused(result, (const char *const[]){__VA_ARGS__, NULL})

/* Record number `index` of that event in the last run's records: the caller's. */
static inline json_t *record(const char *event, int index)
{
    size_t n;
    char *lines = f8_cli_read(f8_cli_temp("records"), &n), *save;
    json_t *found = NULL;
    for (char *line = strtok_r(lines, "\n", &save); line && !found;
         line = strtok_r(NULL, "\n", &save)) {
        json_t *r = json_loads(line, 0, NULL);
        ck_assert_msg(r != NULL, "no JSON: %s", line);
        const char *is = json_string_value(json_object_get(r, "event"));
        if (is && !strcmp(is, event) && index-- == 0)
            found = r;
        else
            json_decref(r);
    }
    free(lines);
    ck_assert_msg(found != NULL, "no such record '%s'", event);
    return found;
}

static inline double number(const char *event, int index, const char *field)
{
    json_t *r = record(event, index);
    ck_assert_msg(json_is_number(json_object_get(r, field)), "no number '%s'", field);
    const double x = json_number_value(json_object_get(r, field));
    json_decref(r);
    return x;
}

static inline void has_text(const char *event, int index, const char *field, const char *want)
{
    json_t *r = record(event, index);
    ck_assert_str_eq(json_string_value(json_object_get(r, field)), want);
    json_decref(r);
}

/* ---- copies ---- */

/* A copy of a checkpoint in memory, to change and write again. */
typedef struct copy {
    f8_st_tensor tensor[MOST];
    char *name[MOST];
    void *bytes[MOST];
    size_t n;
    f8_st_pair metadata[MOST_METADATA];
    char *value[MOST_METADATA];
    size_t n_metadata;
} copy;

static inline copy *read_copy(const char *name)
{
    f8_st_file f;
    f8_diag diag = {0};
    copy *c = calloc(1, sizeof *c);
    ck_assert_msg(f8_st_open(&f, f8_cli_temp(name), NULL, &diag) == F8_OK, "%s", diag.text);
    ck_assert(f.n < MOST - 4 && f.n_metadata <= MOST_METADATA);
    for (; c->n < f.n; c->n++) {
        c->tensor[c->n] = f.tensor[c->n];
        c->bytes[c->n] = malloc((size_t)f.tensor[c->n].bytes + 1);
        c->tensor[c->n].name = c->name[c->n] = strdup(f.tensor[c->n].name);
        ck_assert(f8_st_read(&f, &f.tensor[c->n], c->bytes[c->n], NULL) == F8_OK);
    }
    for (; c->n_metadata < f.n_metadata; c->n_metadata++) {
        const f8_st_pair *p = &f.metadata[c->n_metadata];
        c->value[c->n_metadata] = strdup(p->value);
        c->metadata[c->n_metadata] = (f8_st_pair){strdup(p->key), c->value[c->n_metadata]};
    }
    f8_st_close(&f);
    return c;
}

static inline size_t at(const copy *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->tensor[i].name, name))
            return i;
    ck_abort_msg("no tensor %s", name);
}

static inline void set_name(copy *c, size_t i, const char *prefix, const char *name)
{
    char *made = malloc(strlen(prefix) + strlen(name) + 1);
    sprintf(made, "%s%s", prefix, name);
    free(c->name[i]);
    c->tensor[i].name = c->name[i] = made;
}

static inline void set_metadata(copy *c, const char *key, const char *value)
{
    for (size_t i = 0; i < c->n_metadata; i++)
        if (!strcmp(c->metadata[i].key, key)) {
            free(c->value[i]);
            c->metadata[i].value = c->value[i] = strdup(value);
        }
}

static inline void drop(copy *c, size_t i)
{
    free(c->name[i]);
    free(c->bytes[i]);
    c->n--;
    memmove(&c->tensor[i], &c->tensor[i + 1], (c->n - i) * sizeof *c->tensor);
    memmove(&c->name[i], &c->name[i + 1], (c->n - i) * sizeof *c->name);
    memmove(&c->bytes[i], &c->bytes[i + 1], (c->n - i) * sizeof *c->bytes);
}

/* One more tensor, of zeros. */
static inline size_t add(copy *c, const char *name, f8_st_dtype dtype, int32_t rank,
                         const int64_t *dim)
{
    f8_st_tensor *t = &c->tensor[c->n];
    *t = (f8_st_tensor){.dtype = dtype, .rank = rank, .bytes = f8_st_dtype_bytes(dtype)};
    for (int32_t i = 0; i < rank; i++)
        t->bytes *= (uint64_t)(t->dim[i] = dim[i]);
    t->name = c->name[c->n] = strdup(name);
    c->bytes[c->n] = calloc(1, (size_t)t->bytes + 1);
    return c->n++;
}

static inline f8_status give(void *user, size_t i, void *to, f8_diag *diag)
{
    (void)diag;
    const copy *c = user;
    memcpy(to, c->bytes[i], (size_t)c->tensor[i].bytes);
    return F8_OK;
}

static inline void free_copy(copy *c)
{
    while (c->n)
        drop(c, c->n - 1);
    for (size_t i = 0; i < c->n_metadata; i++) {
        free((char *)c->metadata[i].key);
        free(c->value[i]);
    }
    free(c);
}

/* Written at `name`; with `end`, the copy is gone. */
static inline void write_copy(copy *c, const char *name, bool end)
{
    f8_diag diag = {0};
    const f8_st_contents contents = {c->tensor, c->n, c->metadata, c->n_metadata, give, c, NULL};
    ck_assert_msg(f8_st_write(f8_cli_temp(name), &contents, NULL, &diag) == F8_OK, "%s", diag.text);
    if (end)
        free_copy(c);
}

static inline void drop_states(copy *c)
{
    for (size_t i = c->n; i-- > 0;)
        if (!strncmp(c->tensor[i].name, "fp8c.", 5))
            drop(c, i);
}

#endif

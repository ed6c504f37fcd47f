/* For tests of the data of `fp8c train`: files of tokens and tensors, runs whose states are
 * compared, and the losses of runs whose parameters do not move. */
#ifndef TEST_DATA_CASE_H
#define TEST_DATA_CASE_H

#include <check.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/shared/api/cli.h"

/* Paths that the fixture of a program sets. */
static const char *model, *state;

/* A copy of a path that lasts as long as a test needs it. */
static inline const char *keep(const char *path)
{
    static char kept[64][512];
    static unsigned n;
    char *to = kept[n++ % 64];
    snprintf(to, sizeof *kept, "%s", path);
    return to;
}

/* ---- files ---- */

/* Writes a head, then n ids of `width` bytes each, then `more` bytes. */
static inline const char *write_ids(const char *name, const void *head, size_t n_head,
                                    const int64_t *from, size_t n, size_t width, size_t more)
{
    char *bytes = calloc(1, n_head + n * width + more + 1);
    if (n_head)
        memcpy(bytes, head, n_head);
    for (size_t i = 0; i < n; i++)
        memcpy(bytes + n_head + i * width, &from[i], width); /* little-endian */
    const char *path = keep(f8_cli_write(name, bytes, n_head + n * width + more));
    free(bytes);
    return path;
}

static inline const char *write_llmc(const char *name, int32_t magic, int32_t version,
                                     int32_t count, const int64_t *from, size_t n, size_t width)
{
    const int32_t head[256] = {magic, version, count};
    return write_ids(name, head, sizeof head, from, n, width, 0);
}

static inline const char *write_npy(const char *name, const char *descr, const char *shape,
                                    const int64_t *from, size_t n, size_t width)
{
    char head[128];
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    const int used = snprintf(
        head + 10, 100, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape);
    head[10 + used] = ' ';
    head[127] = '\n';
    return write_ids(name, head, sizeof head, from, n, width, 0);
}

/* ---- runs ---- */

typedef struct bytes {
    char *at;
    size_t n;
} bytes;

/* Trains for a few steps with these words, up to the first NULL; the state. */
static inline bytes train(const char *const *words)
{
    const char *args[32] = {"train",        model, "--steps",   "3",
                            "--save-state", state, "--threads", "1"};
    for (int n = 8; *words; words++)
        args[n++] = *words;
    remove(state);
    const f8_cli_result r = f8_cli_run(args);
    ck_assert_msg(r.code == 0, "exit %d: %s", r.code, r.err);
    ck_assert_str_eq(r.err, "");
    bytes b;
    b.at = f8_cli_read(state, &b.n);
    return b;
}
#define TRAIN(...) train((const char *const[]){__VA_ARGS__, NULL})

static inline bool same(const bytes *a, bytes b)
{
    const bool equal = a->n == b.n && !memcmp(a->at, b.at, b.n);
    free(b.at);
    return equal;
}

/* Exit code and message, and nothing is written. */
static inline void refused(int code, const char *message, const char *const *words)
{
    const char *args[32] = {"train", model, "--steps", "1000000", "--save-state", state};
    for (int n = 6; *words; words++)
        args[n++] = *words;
    remove(state);
    const f8_cli_result r = f8_cli_run(args);
    ck_assert_msg(r.code == code && strstr(r.err, message), "exit %d: %s", r.code, r.err);
    ck_assert_str_eq(r.out, "");
    ck_assert(access(state, F_OK) != 0);
}
#define REFUSED(code, message, ...) refused(code, message, (const char *const[]){__VA_ARGS__, NULL})

/* ---- the order of data ---- */

/* The losses of the steps of a run whose parameters do not move. */
static inline void losses(const char *file, int n, const char *const *more, double *loss)
{
    const char *json = keep(f8_cli_temp("losses"));
    char steps[8];
    snprintf(steps, sizeof steps, "%d", n);
    const char *args[32] = {"train", file,      "--recipe", "f32",    "--lr",
                            "1e-30", "--steps", steps,      "--json", json};
    for (int i = 10; *more; more++)
        args[i++] = *more;
    const f8_cli_result r = f8_cli_run(args);
    ck_assert_msg(r.code == 0, "%s", r.err);
    size_t size;
    int at = 0;
    char *all = f8_cli_read(json, &size);
    for (char *save, *line = strtok_r(all, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *record = json_loads(line, 0, NULL);
        if (!strcmp(json_string_value(json_object_get(record, "event")), "step") && at < n)
            loss[at++] = json_real_value(json_object_get(record, "loss"));
        json_decref(record);
    }
    ck_assert_int_eq(at, n);
    free(all);
}

/* Batch k is the same in runs of other lengths, and whether a step takes one batch or two. */
static inline void numbered(const char *one, const char *two, const char *const *data)
{
    double a[6], b[3], c[4];
    losses(one, 6, data, a);
    losses(two, 3, data, b);
    losses(one, 4, data, c);
    for (int i = 0; i < 3; i++)
        ck_assert_double_eq(b[i], a[2 * i] / 2 + a[2 * i + 1] / 2);
    ck_assert_mem_eq(c, a, sizeof c);
    ck_assert(a[0] != a[1] && a[1] != a[2]);
}

#endif

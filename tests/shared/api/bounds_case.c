/* See bounds_case.h. */
#include "tests/shared/api/bounds_case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* COUNTERS: bytes of the words in which blocks of launches count themselves, on CUDA: each value's
 * plan has its own. */
enum { VOCABULARY = 64, COUNTERS = 4096 };

void f8_bounds_open(f8_api_run *r, int64_t b, bool reversed, fp8c_compile_options options)
{
    const fp8c_dim dims[] = {{"E", reversed ? 1 : 2}, {"F", reversed ? 2 : 1}, {"B", b}};
    options.struct_size = sizeof options;
    const f8_api_setup setup = {
        .file = F8_BOUNDS_MODEL, .dims = dims, .n_dims = b > 0 ? 3 : 2, .options = options};
    ck_assert_msg(f8_api_open(r, &setup), "%s", r->failed);
}

void f8_bounds_set(f8_api_run *r, int64_t b)
{
    fp8c_program_dim dim;
    ck_assert_msg(fp8c_program_set_dim(r->program, "B", b) == FP8C_OK, "%s",
                  fp8c_context_message(r->ctx));
    ck_assert_int_eq(fp8c_program_dims(r->program, 0, &dim), FP8C_OK);
    ck_assert_str_eq(dim.name, "B");
    ck_assert_int_eq(dim.value, b);
    ck_assert_int_eq(dim.bound, F8_BOUNDS_MOST);
    ck_assert_int_eq(fp8c_program_dims(r->program, 1, &dim), FP8C_ERR_INPUT);
}

/* All variables of `from` into `to`. */
static void copy_state(f8_api_run *to, f8_api_run *from)
{
    fp8c_variable v, w;
    for (int i = 0; fp8c_program_variable(from->program, i, &v) == FP8C_OK; i++) {
        void *bytes = malloc((size_t)fp8c_type_bytes(&v.type));
        ck_assert_int_eq(fp8c_program_variable(to->program, i, &w), FP8C_OK);
        ck_assert_str_eq(v.name, w.name);
        ck_assert_int_eq(fp8c_program_read(from->program, i, bytes), FP8C_OK);
        ck_assert_int_eq(fp8c_program_write(to->program, i, bytes), FP8C_OK);
        free(bytes);
    }
}

/* micro_step, eval and update on the same batch: all results and then all variables are the same
 * bytes. */
static void same_step(f8_api_run *r, f8_api_run *alone, uint64_t number)
{
    fp8c_port port, other;
    const float loss = f8_api_step(r, VOCABULARY, number),
                expected = f8_api_step(alone, VOCABULARY, number);
    ck_assert_msg(!r->failed && !alone->failed, "%s", r->failed ? r->failed : alone->failed);
    ck_assert(loss > 0 && !memcmp(&loss, &expected, sizeof loss));
    for (int i = 0; fp8c_program_port(r->program, r->step, FP8C_OUTPUT, i, &port) == FP8C_OK; i++) {
        ck_assert_int_eq(fp8c_program_port(alone->program, alone->step, FP8C_OUTPUT, i, &other),
                         FP8C_OK);
        ck_assert(!memcmp(&port.type, &other.type, sizeof port.type));
        if (port.variable < 0)
            ck_assert(!memcmp(fp8c_program_buffer(r->program, r->step, FP8C_OUTPUT, i),
                              fp8c_program_buffer(alone->program, alone->step, FP8C_OUTPUT, i),
                              (size_t)fp8c_type_bytes(&port.type)));
    }
    ck_assert_pstr_eq(f8_api_differs(r, alone), NULL);
}

void f8_bounds_case(const fp8c_compile_options *options, bool reversed, const int *order, size_t n)
{
    f8_api_run r, alone[F8_BOUNDS_MOST + 1] = {{0}};
    fp8c_info info = {.struct_size = sizeof info};
    f8_bounds_open(&r, 0, reversed, *options);
    fp8c_program_info(r.program, &info);
    int64_t most = info.planned_bytes;
    for (size_t i = 0; i < n; i++) {
        const int b = order[i];
        if (!alone[b].program)
            f8_bounds_open(&alone[b], b, reversed, *options);
        f8_bounds_set(&r, b);
        copy_state(&alone[b], &r);
        same_step(&r, &alone[b], i);
        fp8c_info theirs = info;
        fp8c_program_info(r.program, &info);
        fp8c_program_info(alone[b].program, &theirs);
        ck_assert_int_eq(info.planned_bytes, theirs.planned_bytes);
        most = info.planned_bytes > most ? info.planned_bytes : most;
        ck_assert_int_ge(info.peak_bytes, most);
        /* the largest is the bound's, and is there from the start */
        ck_assert(reversed || info.peak_bytes <= most + COUNTERS);
        ck_assert_int_eq(info.distinct_kernels, theirs.distinct_kernels);
    }
    for (int b = 1; b <= F8_BOUNDS_MOST; b++)
        if (alone[b].program)
            f8_api_close(&alone[b]);
    f8_api_close(&r);
}

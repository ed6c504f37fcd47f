/* The first steps under `delayed`, for tests on any target: see frontend/embedding.md, "The first
 * step". */
#ifndef TEST_FIRST_CASE_H
#define TEST_FIRST_CASE_H

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/api/api_run.h"

enum { FIRST_BYTES = 256 };

static inline f8_api_run first_open(const char *target, const char *recipe, bool dumps)
{
    static const fp8c_dim dims[] = {{"B", 1}, {"T", 16}, {"C", 32}, {"H", 2}, {"L", 2}};
    const f8_api_setup setup = {
        .file = "frontend/models/gpt.f8",
        .dims = dims,
        .n_dims = 5,
        .options = {.target = target, .recipe = recipe, .threads = 1, .dump = dumps ? "*" : NULL}};
    f8_api_run r;
    ck_assert_msg(f8_api_open(&r, &setup), "%s %s: %s", target, recipe, r.failed);
    return r;
}

static inline void first_must(f8_api_run *r, fp8c_status status, const char *what)
{
    ck_assert_msg(status == FP8C_OK, "%s: %s", what, fp8c_context_message(r->ctx));
}

static inline void first_run(f8_api_run *r, const char *function)
{
    first_must(r, fp8c_program_run(r->program, fp8c_program_function(r->program, function)),
               function);
}

/* The name of the function that runs in place of `function` now. */
static inline const char *first_form(f8_api_run *r, const char *function)
{
    int form;
    first_must(r, fp8c_program_form(r->program, fp8c_program_function(r->program, function), &form),
               function);
    return fp8c_program_function_name(r->program, form);
}

/* A variable's values, for the caller to free. */
static inline float *first_read(f8_api_run *r, int variable, int64_t *bytes)
{
    fp8c_variable v;
    first_must(r, fp8c_program_variable(r->program, variable, &v), "a variable");
    *bytes = fp8c_type_bytes(&v.type);
    float *value = malloc((size_t)*bytes + 1);
    first_must(r, fp8c_program_read(r->program, variable, value), "reading");
    return value;
}

/* Variables whose name begins so have the same bytes; returns how many. */
static inline int first_same_variables(f8_api_run *a, f8_api_run *b, const char *prefix)
{
    fp8c_variable v;
    int n = 0;
    for (int i = 0; fp8c_program_variable(a->program, i, &v) == FP8C_OK; i++) {
        int64_t bytes, other;
        const int k = fp8c_program_find_variable(b->program, v.name);
        if (strncmp(v.name, prefix, strlen(prefix)) || k < 0)
            continue;
        float *x = first_read(a, i, &bytes), *y = first_read(b, k, &other);
        ck_assert_msg(bytes == other && !memcmp(x, y, (size_t)bytes), "%s", v.name);
        free(x);
        free(y);
        n++;
    }
    return n;
}

/* What two functions give: all results of the first, codes and inverse scales among them, are the
 * second's; returns how many. */
static inline int first_same_results(f8_api_run *a, f8_api_run *b, const char *function)
{
    const int f = fp8c_program_function(a->program, function),
              g = fp8c_program_function(b->program, function);
    fp8c_port port;
    int n = 0;
    for (int i = 0; fp8c_program_port(a->program, f, FP8C_OUTPUT, i, &port) == FP8C_OK; i++) {
        if (port.variable >= 0)
            continue;
        const void *x = fp8c_program_buffer(a->program, f, FP8C_OUTPUT, i),
                   *y = f8_api_buffer(b, g, FP8C_OUTPUT, port.name, NULL);
        ck_assert_msg(x && y, "%s", port.name);
        ck_assert_msg(!memcmp(x, y, (size_t)fp8c_type_bytes(&port.type)), "%s", port.name);
        n++;
    }
    return n;
}

static inline void first_batch(f8_api_run *r, const char *function, uint64_t number)
{
    static const char *const inputs[] = {"tokens", "targets"};
    fp8c_type type;
    const int f = fp8c_program_function(r->program, function);
    f8_api_batch(r, FIRST_BYTES, number);
    for (int i = 0; i < 2; i++) {
        const void *from = f8_api_buffer(r, r->step, FP8C_INPUT, inputs[i], &type);
        void *to = f8_api_buffer(r, f, FP8C_INPUT, inputs[i], NULL);
        if (to != from)
            memcpy(to, from, (size_t)fp8c_type_bytes(&type));
    }
}

/* Every micro-step of the first update computes what `current` computes: the codes and scales of
 * all operands, the loss, the gradients, and so the new parameters. */
static inline void first_is_currents(const char *target)
{
    f8_api_run a = first_open(target, "delayed", true), b = first_open(target, "current", true);
    int codes = 0;
    ck_assert_int_ge(fp8c_program_function(a.program, "micro_step.first.dump"), 0);
    ck_assert_int_lt(fp8c_program_function(b.program, "micro_step.first"), 0);
    for (uint64_t k = 0; k < 3; k++) {
        const char *function = k == 1 ? "micro_step" : "micro_step.dump";
        first_batch(&a, function, k);
        first_batch(&b, function, k);
        first_run(&a, function);
        first_run(&b, function);
        codes += first_same_results(&a, &b, function);
        ck_assert_int_gt(first_same_variables(&a, &b, "grad."), 20);
    }
    ck_assert_int_gt(codes, 100);
    first_run(&a, "update");
    first_run(&b, "update");
    ck_assert_int_gt(first_same_variables(&a, &b, "h."), 20);
    f8_api_close(&a);
    f8_api_close(&b);
}

/* Writes the histories, with zeros in all or in the last row. */
static inline void first_empty(f8_api_run *r, bool all)
{
    int64_t bytes;
    fp8c_variable v;
    const int history = fp8c_program_find_variable(r->program, "fp8.amax_history");
    first_must(r, fp8c_program_variable(r->program, history, &v), "histories");
    float *value = first_read(r, history, &bytes);
    memset(all ? value : value + (v.type.dim[0] - 1) * v.type.dim[1], 0,
           all ? (size_t)bytes : (size_t)v.type.dim[1] * sizeof *value);
    first_must(r, fp8c_program_write(r->program, history, value), "writing");
    free(value);
}

static inline void first_form_is(f8_api_run *r, const char *want)
{
    ck_assert_str_eq(first_form(r, "micro_step"), want);
    ck_assert_str_eq(first_form(r, "update"), "update");
}

/* The histories alone decide: whatever was done to them, and however it was done. */
static inline void first_by_histories(const char *target)
{
    static const char plain[] = "micro_step", first[] = "micro_step.first";
    f8_api_run a = first_open(target, "delayed", false), b = first_open(target, "delayed", false);
    int64_t bytes;
    const int wte = fp8c_program_find_variable(a.program, "wte.weight");
    float *weights = first_read(&a, wte, &bytes), good = weights[3];
    first_form_is(&a, first);
    first_run(&a, "eval");
    first_form_is(&a, first);
    weights[3] = NAN; /* no update, so nothing is observed */
    first_must(&a, fp8c_program_write(a.program, wte, weights), "writing");
    f8_api_step(&a, FIRST_BYTES, 1);
    first_form_is(&a, first);
    weights[3] = good;
    first_must(&a, fp8c_program_write(a.program, wte, weights), "writing");
    free(weights);
    for (uint64_t i = 0; i < 20; i++) { /* more than a history has elements */
        ck_assert(isfinite(f8_api_step(&a, FIRST_BYTES, i)));
        first_form_is(&a, plain);
    }
    first_empty(&a, false);
    first_form_is(&a, first);
    first_run(&a, "prepare");
    first_form_is(&a, first);
    f8_api_step(&a, FIRST_BYTES, 21);
    first_form_is(&a, plain);
    first_form_is(&b, first);
    first_must(&b, fp8c_program_carry(b.program, a.program, NULL), "carrying");
    first_form_is(&b, plain);
    first_must(&b, fp8c_program_initialize(b.program, 1), "initializing");
    first_form_is(&b, first);
    f8_api_close(&a);
    f8_api_close(&b);
}

/* The loss of the run's batch by a function whose buffers were not filled yet. */
static inline float first_loss(f8_api_run *r, const char *function, uint64_t number)
{
    const int f = fp8c_program_function(r->program, function);
    first_batch(r, function, number);
    first_run(r, function);
    return *(const float *)f8_api_buffer(r, f, FP8C_OUTPUT, "loss", NULL);
}

/* eval has one form, so while the histories are empty its values have scale 1: its loss is not that
 * of micro_step.first. A carry from a program that observed its own batches gives it the scales,
 * and an update does. */
static inline void first_has_no_eval(const char *target)
{
    f8_api_run a = first_open(target, "delayed", false), b = first_open(target, "current", false);
    ck_assert_int_lt(fp8c_program_function(a.program, "eval.first"), 0);
    const float empty = first_loss(&a, "eval", 3), first = first_loss(&a, "micro_step", 3),
                own = first_loss(&b, "eval", 3);
    ck_assert(first == own);
    ck_assert(empty != own && fabsf(empty - own) < 1e-2f * own);
    f8_api_close(&a);
    f8_api_close(&b);
}

/* With all histories observed both forms give the same bits. With one empty, the other operands
 * keep their scales: `a` runs micro_step, and `b` the form by its name. */
static inline void first_keeps_bits(const char *target)
{
    f8_api_run a = first_open(target, "delayed", false), b = first_open(target, "delayed", false);
    for (uint64_t i = 0; i < 2; i++) {
        f8_api_step(&a, FIRST_BYTES, i);
        f8_api_step(&b, FIRST_BYTES, i);
    }
    for (int round = 0; round < 2; round++) {
        if (round) {
            first_empty(&a, false);
            first_empty(&b, false);
        }
        first_batch(&a, "micro_step", 7);
        first_batch(&b, "micro_step.first", 7); /* the buffers are micro_step's */
        ck_assert_ptr_eq(f8_api_buffer(&b, b.step, FP8C_OUTPUT, "loss", NULL),
                         f8_api_buffer(&b, fp8c_program_function(b.program, "micro_step.first"),
                                       FP8C_OUTPUT, "loss", NULL));
        first_run(&a, "micro_step");
        first_run(&b, "micro_step.first");
        first_same_results(&a, &b, "micro_step");
        const char *differs = f8_api_differs(&a, &b);
        ck_assert_msg(!differs, "round %d: %s differs", round, differs);
        first_run(&a, "update");
        first_run(&b, "update");
    }
    f8_api_close(&a);
    f8_api_close(&b);
}

#endif

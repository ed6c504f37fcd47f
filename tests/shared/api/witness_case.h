/* A tiny GPT under the witness, for tests on any target. */
#ifndef TEST_WITNESS_CASE_H
#define TEST_WITNESS_CASE_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/program.h"
#include "tests/shared/api/api_run.h"

enum { WITNESS_BYTES = 256, WITNESS_MOST = 4096, WITNESS_NAME = 128 };

static const fp8c_dim witness_dims[] = {{"B", 2}, {"T", 32}, {"C", 32}, {"H", 2}, {"L", 2}};

/* Dims with which the larger values are judged in several parts. */
static const fp8c_dim witness_larger[] = {{"B", 2}, {"T", 96}, {"C", 128}, {"H", 2}, {"L", 1}};
static const fp8c_dim *witness_size = witness_dims; /* the test chooses */

/* What the witness said of a value. */
typedef struct witness_said {
    int32_t function, step;
    char value[WITNESS_NAME], input[WITNESS_NAME], op[WITNESS_NAME]; /* empty: NULL */
    uint64_t hash;
    fp8c_verdict verdict;
    int64_t wrong, at, nonfinite;
    double got, want, allowed;
} witness_said;

typedef struct witness_log {
    int n, wrong;        /* wrong: how many values are */
    witness_said *value; /* WITNESS_MOST */
} witness_log;

static inline void witness_note(void *user, const fp8c_witnessed *v)
{
    witness_log *l = user;
    ck_assert_int_lt(l->n, WITNESS_MOST);
    witness_said *s = &l->value[l->n++];
    ck_assert_uint_eq(v->struct_size, sizeof *v);
    ck_assert(v->data && v->kind && v->name && v->value);
    *s = (witness_said){.function = v->function,
                        .step = v->step,
                        .hash = v->hash,
                        .verdict = v->verdict,
                        .wrong = v->wrong,
                        .at = v->at,
                        .nonfinite = v->nonfinite,
                        .got = v->got,
                        .want = v->want,
                        .allowed = v->allowed};
    snprintf(s->value, WITNESS_NAME, "%s", v->value);
    snprintf(s->input, WITNESS_NAME, "%s", v->nonfinite_input ? v->nonfinite_input : "");
    snprintf(s->op, WITNESS_NAME, "%s", v->nonfinite_op ? v->nonfinite_op : "");
    l->wrong += v->verdict == FP8C_WRONG;
}

static inline void witness_begin(f8_api_run *r, const char *target, const char *recipe,
                                 bool witness)
{
    f8_api_setup setup = {
        .file = "frontend/models/gpt.f8",
        .dims = witness_size,
        .n_dims = 5,
        .options = {.target = target, .recipe = recipe, .threads = 1, .witness = witness}};
    ck_assert_msg(f8_api_open(r, &setup), "%s %s: %s", target, recipe, r->failed);
}

/* Runs a function, plainly if `l` is NULL. What the witness says is added to `l`. */
static inline void witness_run(f8_api_run *r, const char *function, bool judge, witness_log *l)
{
    const int f = fp8c_program_function(r->program, function);
    ck_assert_int_ge(f, 0);
    const fp8c_status status = l ? fp8c_program_run_witnessed(r->program, f, judge, witness_note, l)
                                 : fp8c_program_run(r->program, f);
    ck_assert_msg(status == FP8C_OK, "%s: %s", function, fp8c_context_message(r->ctx));
}

static inline witness_log witness_new_log(void)
{
    witness_log l = {0, 0, calloc(WITNESS_MOST, sizeof(witness_said))};
    ck_assert_ptr_nonnull(l.value);
    return l;
}

/* micro_step, update and eval on batch `number`; the loss and eval's. */
static inline void witness_step(f8_api_run *r, uint64_t number, bool judge, witness_log *l,
                                float loss[2])
{
    f8_api_batch(r, WITNESS_BYTES, number);
    witness_run(r, "micro_step", judge, l);
    witness_run(r, "update", judge, l);
    witness_run(r, "eval", judge, l);
    loss[0] = *(float *)f8_api_buffer(r, r->step, FP8C_OUTPUT, "loss", NULL);
    loss[1] = *(float *)f8_api_buffer(r, fp8c_program_function(r->program, "eval"), FP8C_OUTPUT,
                                      "loss", NULL);
}

static inline bool witness_saw(const witness_log *l, int32_t function, uint32_t step)
{
    for (int i = 0; i < l->n; i++)
        if (l->value[i].function == function && l->value[i].step == (int32_t)step)
            return true;
    return false;
}

/* Every step of the function must be seen. Of a group of several steps the last one is. */
static inline void witness_sees_all(const f8_api_run *r, const witness_log *l, const char *function)
{
    const int f = fp8c_program_function(r->program, function);
    const f8_plan_func *plan = &r->program->now->plan.func[f];
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const uint32_t group = plan->step[i].group;
        ck_assert_int_gt(group, 0); /* there are no waits */
        const bool goes_on = i + 1 < plan->n_steps && plan->step[i + 1].group == group;
        ck_assert_msg(goes_on || witness_saw(l, f, i), "%s: step %d, '%s', was not seen", function,
                      (int)i, plan->step[i].name);
    }
}

static inline void witness_all_right(const witness_log *l, const char *what)
{
    for (int i = 0; i < l->n; i++) {
        const witness_said *s = &l->value[i];
        ck_assert_msg(s->verdict == FP8C_RIGHT,
                      "%s, '%s': verdict %d, %d wrong, element %d: %.9g, not %.9g +- %g", what,
                      s->value, s->verdict, (int)s->wrong, (int)s->at, s->got, s->want, s->allowed);
        ck_assert(s->at == -1 && !s->wrong && !s->nonfinite && !*s->input && !*s->op);
    }
}

/* Trains with plain runs and with witnessed ones: both give the same bits, and the witness calls
 * every value of every step right. A witnessed run without judging gives the same hashes. */
static inline void witness_agrees(const char *target, const char *recipe, int steps)
{
    static const char *const functions[] = {"micro_step.first", "micro_step", "update", "eval"};
    f8_api_run plain, judged, seen;
    witness_log l = witness_new_log(), m = witness_new_log();
    witness_begin(&plain, target, recipe, false);
    witness_begin(&judged, target, recipe, true);
    witness_begin(&seen, target, recipe, true);
    for (int s = 0; s < steps; s++) {
        float a[2], b[2], c[2];
        witness_step(&plain, (uint64_t)s, false, NULL, a);
        witness_step(&judged, (uint64_t)s, true, &l, b);
        witness_step(&seen, (uint64_t)s, false, &m, c);
        ck_assert_msg(!memcmp(a, b, sizeof a) && !memcmp(a, c, sizeof a), "%s, step %d", recipe, s);
    }
    const bool first = fp8c_program_function(judged.program, functions[0]) >= 0;
    for (int f = first ? 0 : 1; f < 4; f++)
        if (f != 1 || !first || steps > 1) /* else the first step is all there is */
            witness_sees_all(&judged, &l, functions[f]);
    witness_all_right(&l, recipe);
    ck_assert_int_eq(l.n, m.n);
    for (int i = 0; i < l.n; i++) {
        ck_assert_int_eq(m.value[i].verdict, FP8C_NOT_JUDGED);
        ck_assert_msg(l.value[i].hash == m.value[i].hash, "%s: the hashes of '%s'", recipe,
                      l.value[i].value);
    }
    const char *differs = f8_api_differs(&plain, &judged);
    ck_assert_msg(!differs, "%s: %s differs", recipe, differs);
    differs = f8_api_differs(&plain, &seen);
    ck_assert_msg(!differs, "%s: %s differs", recipe, differs);
    free(l.value);
    free(m.value);
    f8_api_close(&plain);
    f8_api_close(&judged);
    f8_api_close(&seen);
}

#endif

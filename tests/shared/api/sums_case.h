/* Gradients as sums of micro-steps, for tests on any target: the first micro-step after an update
 * replaces what a gradient holds, and whoever looks in between sees zeros. */
#ifndef TEST_SUMS_CASE_H
#define TEST_SUMS_CASE_H

#include "tests/shared/api/first_case.h"

/* The models: one with an embedding that is the head's weight, and one whose embedding has a
 * gradient of its own, which begins with a scatter. */
enum { SUMS_MODELS = 2, SUMS_RECIPES = 3, SUMS_WORDS = 64 };

static inline f8_api_run sums_open(const char *target, int model, int recipe)
{
    static const char *const recipes[SUMS_RECIPES] = {"f32", "bf16", "delayed"};
    static const fp8c_dim gpt[] = {{"B", 1}, {"T", 16}, {"C", 32}, {"H", 2}, {"L", 2}};
    const f8_api_setup setup = {.file = model ? "tests/models/untied.f8" : "frontend/models/gpt.f8",
                                .dims = gpt,
                                .n_dims = model ? 0 : 5,
                                .options = {.target = target,
                                            .recipe = recipes[recipe],
                                            .threads = 1,
                                            .witness = strcmp(target, "reference") != 0}};
    f8_api_run r;
    ck_assert_msg(f8_api_open(&r, &setup), "%s %s: %s", target, recipes[recipe], r.failed);
    return r;
}

static inline void sums_micro_step(f8_api_run *r, uint64_t number)
{
    f8_api_batch(r, SUMS_WORDS, number);
    first_run(r, "micro_step");
}

static inline void sums_same(f8_api_run *a, f8_api_run *b, const char *what)
{
    const char *differs = f8_api_differs(a, b);
    ck_assert_msg(!differs, "%s: %s differs", what, differs);
}

/* Gradient i, in the order of update's inputs. False: there are no more. On a CPU, unlike
 * fp8c_program_variable, it gives nobody the gradient's memory. */
static inline bool sums_gradient(const f8_api_run *r, int i, fp8c_port *out)
{
    for (int k = 0; fp8c_program_port(r->program, r->update, FP8C_INPUT, k, out) == FP8C_OK; k++)
        if (!strncmp(out->name, "grad.", 5) && !i--)
            return true;
    return false;
}

/* Whether `update` leaves a gradient as it is. */
static inline bool sums_is_kept(const f8_api_run *r, const fp8c_port *gradient)
{
    return fp8c_program_find_port(r->program, r->update, FP8C_OUTPUT, gradient->name) < 0;
}

/* Writes NaN to all gradients that update leaves as they are; returns how many. */
static inline int sums_spoil(f8_api_run *r)
{
    fp8c_port p;
    int n = 0;
    for (int i = 0; sums_gradient(r, i, &p); i++) {
        const size_t bytes = (size_t)fp8c_type_bytes(&p.type);
        void *nan = memset(malloc(bytes), 0xff, bytes);
        if (sums_is_kept(r, &p)) {
            first_must(r, fp8c_program_write(r->program, p.variable, nan), p.name);
            n++;
        }
        free(nan);
    }
    return n;
}

/* After each update `a` has what it left in its gradients, which all can see; `b` has NaN; and
 * nobody looks at those of `c` before the end. All give the same bits, whatever the number of
 * micro-steps. */
static inline void sums_begin_afresh(const char *target, int model, int recipe)
{
    f8_api_run a = sums_open(target, model, recipe), b = sums_open(target, model, recipe),
               c = sums_open(target, model, recipe);
    uint64_t number = 0;
    for (int update = 0; update < 4; update++) {
        ck_assert_int_ge(sums_spoil(&b), model ? 8 : 20);
        for (int k = 0; k < 1 + update % 3; k++, number++) {
            sums_micro_step(&a, number);
            sums_micro_step(&b, number);
            sums_micro_step(&c, number);
            ck_assert_int_gt(first_same_variables(&a, &b, "grad."), 8);
        }
        first_run(&a, "update");
        first_run(&b, "update");
        first_run(&c, "update");
        sums_same(&a, &b, "after an update");
    }
    sums_same(&a, &c, "nobody looked");
    f8_api_close(&a);
    f8_api_close(&b);
    f8_api_close(&c);
}

/* How many gradients are zeros, as they are read. *all: how many there are. */
static inline int sums_zeros(f8_api_run *r, int *all)
{
    fp8c_port p;
    int zeros = 0;
    for (*all = 0; sums_gradient(r, *all, &p); ++*all) {
        const size_t bytes = (size_t)fp8c_type_bytes(&p.type);
        unsigned char *value = malloc(bytes);
        bool zero = true;
        first_must(r, fp8c_program_read(r->program, p.variable, value), p.name);
        for (size_t k = 0; k < bytes && zero; k++)
            zero = !value[k];
        zeros += zero;
        free(value);
    }
    return zeros;
}

/* Of gradients in host memory, at the addresses that were asked for once. */
static inline int sums_zeros_in_memory(const f8_api_run *r, float *const *data)
{
    fp8c_port p;
    int zeros = 0;
    for (int i = 0; sums_gradient(r, i, &p); i++) {
        bool zero = true;
        for (int64_t k = 0; k < fp8c_type_bytes(&p.type) / (int64_t)sizeof **data && zero; k++)
            zero = data[i][k] == 0;
        zeros += zero;
    }
    return zeros;
}

/* Gradients are zeros after an update for all who read them, through memory that was asked for long
 * before, and with a program whose gradients nobody has looked at until now. An update without
 * micro-steps is skipped: its norm is 0 / 0. */
static inline void sums_show_zeros(const char *target, int model, int recipe)
{
    enum { MOST = 64 };
    f8_api_run r = sums_open(target, model, recipe);
    float *data[MOST] = {NULL};
    fp8c_port p;
    fp8c_variable v;
    int all, n = 0;
    for (uint64_t k = 0; k < 2; k++) {
        sums_micro_step(&r, k);
        first_run(&r, "update");
        ck_assert_int_eq(sums_zeros(&r, &all), all);
        sums_micro_step(&r, k);
        ck_assert_int_lt(sums_zeros(&r, &all), all / 2);
        first_run(&r, "update");
        const float *norm = f8_api_buffer(&r, r.update, FP8C_OUTPUT, "grad_norm", NULL),
                    *skipped = f8_api_buffer(&r, r.update, FP8C_OUTPUT, "skipped", NULL);
        ck_assert(*norm > 0 && *skipped == 0);
        first_run(&r, "update");
        ck_assert(isnan(*norm) && *skipped == 1);
        ck_assert_int_eq(sums_zeros(&r, &all), all);
    }
    for (; sums_gradient(&r, n, &p); n++) {
        ck_assert_int_lt(n, MOST);
        first_must(&r, fp8c_program_variable(r.program, p.variable, &v), p.name);
        data[n] = v.data;
    }
    for (uint64_t k = 0; k < 2 && data[0]; k++) {
        sums_micro_step(&r, k);
        ck_assert_int_lt(sums_zeros_in_memory(&r, data), n / 2);
        first_run(&r, "update");
        ck_assert_int_eq(sums_zeros_in_memory(&r, data), n);
    }
    f8_api_close(&r);
}

/* All variables' values, for the caller to free. */
static inline void **sums_keep(f8_api_run *r)
{
    fp8c_variable v;
    int64_t bytes;
    int n = 0;
    while (fp8c_program_variable(r->program, n, &v) == FP8C_OK)
        n++;
    void **kept = calloc((size_t)n + 1, sizeof *kept);
    for (int i = 0; i < n; i++)
        kept[i] = first_read(r, i, &bytes);
    return kept;
}

/* Writes them, the last first if `backward`, and frees them. */
static inline void sums_put_back(f8_api_run *r, void **kept, bool backward)
{
    int n = 0;
    while (kept[n])
        n++;
    for (int k = 0; k < n; k++) {
        const int i = backward ? n - 1 - k : k;
        first_must(r, fp8c_program_write(r->program, i, kept[i]), "writing");
        free(kept[i]);
    }
    free(kept);
}

/* A state from between two micro-steps, written after an update or before the first run, is gone on
 * from: the next micro-step adds to the gradients. */
static inline void sums_resume(const char *target, int model, int recipe)
{
    f8_api_run a = sums_open(target, model, recipe), b = sums_open(target, model, recipe);
    for (int round = 0; round < 2; round++) {
        sums_micro_step(&a, 0);
        sums_micro_step(&a, 1);
        if (round == 0)
            first_run(&b, "update"); /* it is skipped */
        sums_micro_step(&b, 0);
        void **kept = sums_keep(&b);
        if (round == 0)
            first_run(&b, "update");
        else
            first_must(&b, fp8c_program_initialize(b.program, 7), "initializing");
        sums_put_back(&b, kept, round);
        sums_micro_step(&b, 1);
        sums_same(&a, &b, "between micro-steps");
        first_run(&a, "update");
        first_run(&b, "update");
        sums_same(&a, &b, "after the update");
    }
    f8_api_close(&a);
    f8_api_close(&b);
}

/* A search for NaN runs the micro-step once more, and leaves no trace: neither where gradients hold
 * sums nor where they hold nothing. */
static inline void sums_search(const char *target, int model, int recipe)
{
    f8_api_run a = sums_open(target, model, recipe), b = sums_open(target, model, recipe);
    fp8c_found found = {.struct_size = sizeof found};
    for (uint64_t k = 0; k < 4; k++) {
        sums_micro_step(&a, k);
        first_must(&b, fp8c_program_find_nonfinite(b.program, b.step, 1, &found), "searching");
        ck_assert_ptr_null(found.tensor);
        sums_micro_step(&b, k);
        first_must(&b, fp8c_program_find_nonfinite(b.program, b.step, 1, &found), "searching");
        ck_assert_ptr_null(found.tensor);
        if (k % 2) {
            first_run(&a, "update");
            first_run(&b, "update");
        }
        sums_same(&a, &b, "after a search");
    }
    f8_api_close(&a);
    f8_api_close(&b);
}

/* Who looks on reads all gradients when the first ones have just been stored. */
typedef struct sums_watch {
    f8_api_run *r;
    int values, gradients, spoiled;
} sums_watch;

static inline void sums_see(void *user, const fp8c_witnessed *value)
{
    sums_watch *w = user;
    int all;
    w->values++;
    if (!strncmp(value->value, "grad.", 5) && w->gradients++ < 3)
        sums_zeros(w->r, &all);
    w->spoiled += value->nonfinite_op != NULL || value->nonfinite > 0;
}

/* A run under observation, after an update, of gradients that hold NaN: the observer sees none, and
 * what it reads meanwhile changes nothing. The interpreter can't be observed. */
static inline void sums_watched(const char *target, int model, int recipe)
{
    if (!strcmp(target, "reference"))
        return;
    f8_api_run a = sums_open(target, model, recipe), b = sums_open(target, model, recipe);
    for (uint64_t k = 0; k < 3; k++) {
        sums_watch w = {.r = &b};
        sums_micro_step(&a, k);
        sums_micro_step(&a, k);
        if (k < 2) /* the last time gradients hold those of the step before */
            sums_spoil(&b);
        f8_api_batch(&b, SUMS_WORDS, k);
        for (int i = 0; i < 2; i++)
            first_must(&b, fp8c_program_run_witnessed(b.program, b.step, 1, sums_see, &w),
                       "looking on");
        ck_assert_int_gt(w.values, 20);
        ck_assert_int_gt(w.gradients, 8);
        ck_assert_int_eq(w.spoiled, 0);
        sums_same(&a, &b, "observed");
        first_run(&a, "update");
        first_run(&b, "update");
    }
    f8_api_close(&a);
    f8_api_close(&b);
}

typedef void (*sums_check)(const char *target, int model, int recipe);
static const sums_check sums_checks[] = {sums_begin_afresh, sums_show_zeros, sums_resume,
                                         sums_search, sums_watched};
enum {
    SUMS_CHECKS = sizeof sums_checks / sizeof *sums_checks,
    SUMS_CASES = SUMS_CHECKS * SUMS_MODELS * SUMS_RECIPES
};

/* Case i of SUMS_CASES. */
static inline void sums_case(const char *target, int i)
{
    sums_checks[i / (SUMS_MODELS * SUMS_RECIPES)](target, i / SUMS_RECIPES % SUMS_MODELS,
                                                  i % SUMS_RECIPES);
}

#endif

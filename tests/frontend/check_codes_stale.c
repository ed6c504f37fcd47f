/* Codes of weights that are kept between steps are never those of other weights: whoever changes a
 * weight, a scale or a history, and however, the next functions have the bits of a program that
 * quantizes its weights in each step. Nobody runs `prepare` here. */
#include "tests/shared/api/cli.h"
#include "tests/shared/api/codes_case.h"
#include "tests/shared/api/view.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

#include <math.h>

enum { VOCABULARY = 32 };

static codes_twins open_twins(const char *target, const char *recipe_text)
{
    const codes_setup s = {.options = {.target = target, .recipe = recipe_text, .threads = 1}};
    return codes_open(&s);
}

static int device_of(const char *target)
{
    return !strcmp(target, "cuda") ? 2 : 1;
}

/* ---- ways to change a weight ---- */

/* What a change needs: the twins, which of them, a number that makes each change another one. */
typedef struct change {
    const codes_twins *t;
    int twin, number;
    int device;           /* DLPack's, where variables are */
    float *lent[2];       /* a weight's memory that the caller has, by twin; NULL: none */
    fp8c_program *source; /* of carries; NULL: none yet */
} change;

static fp8c_program *of(const change *c)
{
    return c->t->p[c->twin];
}

/* New values of a variable that only the number decides. */
static float *values(const change *c, const char *name, float factor)
{
    size_t bytes;
    float *value = codes_read(c->t, of(c), name, &bytes);
    for (size_t i = 0; i < bytes / sizeof *value; i++)
        value[i] = value[i] * factor + 0.01f * (float)((int)(i * 7 + (size_t)c->number) % 5 - 2);
    return value;
}

static void write_it(change *c, const char *name, float factor)
{
    float *value = values(c, name, factor);
    codes_must(c->t, fp8c_program_write(of(c), fp8c_program_find_variable(of(c), name), value),
               name);
    free(value);
}

static void write_weight(change *c)
{
    write_it(c, "up.weight", 3);
}

static void write_tied(change *c)
{
    write_it(c, "twice", -0.1f);
}

static void write_scale(change *c)
{
    if (fp8c_program_find_variable(of(c), "fp8.scale") >= 0)
        write_it(c, "fp8.scale", 0.25f);
}

/* One element of a state of scales: an activation's, or that of a parameter that is x. */
static void write_element(change *c, const char *state, const char *operand)
{
    const int i = fp8c_program_find_variable(of(c), state);
    const char *name;
    fp8c_variable v;
    size_t bytes;
    int64_t k = 0;
    if (i < 0)
        return;
    while ((name = fp8c_program_element(of(c), i, k, 0)) && strcmp(name, operand))
        k++;
    ck_assert_msg(name != NULL, "no %s", operand);
    codes_must(c->t, fp8c_program_variable(of(c), i, &v), state);
    float *value = codes_read(c->t, of(c), state, &bytes);
    value[v.type.rank > 1 ? k * v.type.dim[1] : k] *= c->number % 2 ? 2.5f : 0.25f;
    codes_must(c->t, fp8c_program_write(of(c), i, value), operand);
    free(value);
}

static void write_scale_of_x(change *c)
{
    write_element(c, "fp8.scale", "up.x");
}

static void write_scale_of_param(change *c)
{
    write_element(c, "fp8.scale", "ask.x");
}

static void write_history_of_param(change *c)
{
    write_element(c, "fp8.amax_history", "ask.x");
}

static void write_history(change *c)
{
    const int i = fp8c_program_find_variable(of(c), "fp8.amax_history");
    size_t bytes;
    if (i < 0)
        return;
    float *value = codes_read(c->t, of(c), "fp8.amax_history", &bytes);
    for (size_t k = 0; k < bytes / sizeof *value; k++)
        value[k] *= 1.5f + (float)(c->number % 3);
    codes_must(c->t, fp8c_program_write(of(c), i, value), "history");
    free(value);
}

static void write_amax(change *c)
{
    const int i = fp8c_program_find_variable(of(c), "fp8.amax");
    size_t bytes;
    if (i < 0)
        return;
    float *value = codes_read(c->t, of(c), "fp8.amax", &bytes);
    memset(value, 0, bytes); /* as files of earlier versions have it */
    codes_must(c->t, fp8c_program_write(of(c), i, value), "amax");
    free(value);
}

/* The caller's own bytes in place of codes are not used. */
static void write_codes(change *c)
{
    fp8c_variable v;
    for (int i = 0; fp8c_program_variable(of(c), i, &v) == FP8C_OK; i++) {
        if (!is_weight_codes(v.name))
            continue;
        void *bytes = calloc(1, (size_t)fp8c_type_bytes(&v.type));
        codes_must(c->t, fp8c_program_write(of(c), i, bytes), v.name);
        free(bytes);
    }
}

static void initialize(change *c)
{
    codes_must(c->t, fp8c_program_initialize(of(c), (uint64_t)(2 + c->number)), "initialize");
}

static const char *path(const char *name, int twin)
{
    char file[64];
    snprintf(file, sizeof file, "%s%d.safetensors", name, twin);
    return f8_cli_temp(file);
}

/* A state that was saved before a few updates. */
static void load_state(change *c)
{
    char file[512];
    snprintf(file, sizeof file, "%s", path("state", c->twin));
    codes_must(c->t, fp8c_program_save(of(c), file, NULL), "save");
    codes_fill(of(c), "micro_step", VOCABULARY, c->number);
    for (int i = 0; i < 3; i++) {
        codes_must(c->t, fp8c_program_run(of(c), fp8c_program_function(of(c), "micro_step")),
                   "step");
        codes_must(c->t, fp8c_program_run(of(c), fp8c_program_function(of(c), "update")), "update");
    }
    codes_must(c->t, fp8c_program_load(of(c), file, 0, NULL), "load");
}

static void load_params(change *c)
{
    char file[512];
    snprintf(file, sizeof file, "%s", path("params", c->twin));
    write_weight(c);
    codes_must(c->t, fp8c_program_save(of(c), file, NULL), "save");
    initialize(c);
    codes_must(c->t, fp8c_program_load(of(c), file, 1, NULL), "load");
}

static void load_weights(change *c)
{
    char file[512];
    snprintf(file, sizeof file, "%s", path("weights", c->twin));
    const char *const files[] = {file};
    const fp8c_load_options o = {.struct_size = sizeof o, .files = files, .n_files = 1};
    write_tied(c);
    codes_must(c->t, fp8c_program_save(of(c), file, NULL), "save");
    initialize(c);
    codes_must(c->t, fp8c_program_load_weights(of(c), &o), "load weights");
}

/* A file that does not fit fails, and changes nothing. */
static void load_nothing(change *c)
{
    ck_assert_int_ne(fp8c_program_load(of(c), "/dev/null", 0, NULL), FP8C_OK);
}

/* From now on the caller has the weight's memory; in later rounds it writes there, and says
 * nothing. */
static void write_lent(change *c)
{
    fp8c_variable v;
    fp8c_program_variable(of(c), fp8c_program_find_variable(of(c), "down.weight"), &v);
    for (int64_t i = 0; i < fp8c_type_bytes(&v.type) / 4; i++)
        c->lent[c->twin][i] = c->lent[c->twin][i] * 1.25f + 1e-3f * (float)(i % 3);
}

static void view(change *c)
{
    fp8c_tensor_view view;
    codes_must(
        c->t,
        fp8c_program_variable_view(of(c), fp8c_program_find_variable(of(c), "down.weight"), &view),
        "view");
    c->lent[c->twin] = view.data;
    write_lent(c);
}

static void port_view(change *c)
{
    fp8c_tensor_view view;
    const int f = fp8c_program_function(of(c), "eval");
    codes_must(c->t,
               fp8c_program_port_view(of(c), f, FP8C_INPUT,
                                      fp8c_program_find_port(of(c), f, FP8C_INPUT, "wte"), &view),
               "view of a port");
    ((float *)view.data)[3] *= 9;
}

static void bind(change *c)
{
    fp8c_variable v;
    const int i = fp8c_program_find_variable(of(c), "down.weight");
    if (!c->lent[c->twin]) {
        size_t bytes;
        c->lent[c->twin] = codes_read(c->t, of(c), "down.weight", &bytes);
        fp8c_program_variable(of(c), i, &v);
        const fp8c_tensor_view tensor = view_of(&v.type, c->lent[c->twin], c->device);
        codes_must(c->t, fp8c_program_bind_variable(of(c), i, &tensor), "bind");
    }
    write_lent(c);
}

/* Back to memory of its own, which has what it had. */
static void unbind(change *c)
{
    bind(c);
    codes_must(
        c->t,
        fp8c_program_bind_variable(of(c), fp8c_program_find_variable(of(c), "down.weight"), NULL),
        "unbind");
    free(c->lent[c->twin]);
    c->lent[c->twin] = NULL;
}

static void carry(change *c)
{
    if (fp8c_program_find_variable(of(c), "fp8.scale") < 0)
        return;
    const codes_setup s = {.options = {.target = "reference", .recipe = "delayed"}};
    if (!c->source) {
        c->source = codes_compile(c->t->ctx, &s, 0);
        codes_must(c->t, fp8c_program_initialize(c->source, 9), "initialize");
    }
    if (c->twin == 0) { /* another history each time */
        codes_fill(c->source, "micro_step", VOCABULARY, c->number);
        codes_must(c->t,
                   fp8c_program_run(c->source, fp8c_program_function(c->source, "micro_step")),
                   "step");
        codes_must(c->t, fp8c_program_run(c->source, fp8c_program_function(c->source, "update")),
                   "update");
    }
    codes_must(c->t, fp8c_program_carry(of(c), c->source, NULL), "carry");
}

static void find_nonfinite(change *c)
{
    fp8c_found found = {.struct_size = sizeof found};
    write_weight(c);
    codes_fill(of(c), "micro_step", VOCABULARY, 1);
    codes_must(
        c->t,
        fp8c_program_find_nonfinite(of(c), fp8c_program_function(of(c), "micro_step"), 1, &found),
        "find");
    ck_assert_ptr_null(found.tensor);
}

static void not_finite(change *c)
{
    size_t bytes;
    float *w = codes_read(c->t, of(c), "twice", &bytes);
    w[7] = c->number % 2 ? INFINITY : NAN;
    codes_must(c->t, fp8c_program_write(of(c), fp8c_program_find_variable(of(c), "twice"), w),
               "twice");
    free(w);
    codes_fill(of(c), "eval", VOCABULARY, 4);
    const int f = fp8c_program_function(of(c), "eval");
    codes_must(c->t, fp8c_program_run(of(c), f), "eval");
    ck_assert(isnan(*(float *)fp8c_program_buffer(of(c), f, FP8C_OUTPUT, 0)));
    initialize(c);
}

typedef struct way {
    const char *name;
    void (*make)(change *c);
} way;

static const way ways[] = {
    {"a written weight", write_weight},
    {"a weight of two linears", write_tied},
    {"a written scale", write_scale},
    {"a written scale of x", write_scale_of_x},
    {"a written scale of a parameter", write_scale_of_param},
    {"a written history of a parameter", write_history_of_param},
    {"a written history", write_history},
    {"a written amax", write_amax},
    {"written codes", write_codes},
    {"initialize", initialize},
    {"a state file", load_state},
    {"a state file's parameters", load_params},
    {"weights of others", load_weights},
    {"a file that does not fit", load_nothing},
    {"a carry", carry},
    {"a search for NaN", find_nonfinite},
    {"a NaN or an Inf", not_finite},
};
/* From the first of these on the caller has the weight's memory. */
static const way lends[] = {
    {"a view", view},
    {"a view of a port", port_view},
    {"a bound tensor", bind},
    {"a tensor that was bound", unbind},
};
enum { WAYS = sizeof ways / sizeof *ways, LENDS = sizeof lends / sizeof *lends };

static const struct {
    const char *target, *recipe;
} programs[] = {{"cpu", "delayed {history = 1}"},
                {"cpu", "block"},
                {"reference", "delayed"},
                {"cuda", "delayed"},
                {"cuda", "block"}};
enum { PROGRAMS = sizeof programs / sizeof *programs, ON_GPU = 2 };

/* Changes both twins before a function. All results are equal, and so are variables in the end. */
static void change_before_each(change *c, const way *w, int program)
{
    static const char *const order[] = {"micro_step", "eval",       "micro_step", "update",
                                        "eval",       "micro_step", "update",     "micro_step"};
    char what[128];
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        snprintf(what, sizeof what, "%s, %s, %s, function %zu", programs[program].target,
                 programs[program].recipe, w->name, i);
        c->number++;
        for (c->twin = 0; c->twin < 2 && i > 0; c->twin++)
            w->make(c);
        for (int k = 0; k < 2 && strcmp(order[i], "update"); k++)
            codes_fill(c->t->p[k], order[i], VOCABULARY, c->number);
        codes_run(c->t, order[i]);
        codes_same_results(c->t, order[i], what);
    }
    codes_same_variables(c->t, what);
}

START_TEST(changed)
{
    codes_twins t = open_twins(programs[_i].target, programs[_i].recipe);
    change c = {.t = &t, .device = device_of(programs[_i].target)};
    for (int k = 0; k < WAYS; k++)
        change_before_each(&c, &ways[k], _i);
    fp8c_program_destroy(c.source);
    codes_close(&t);
}
END_TEST

START_TEST(lent)
{
    const int program = _i / LENDS;
    codes_twins t = open_twins(programs[program].target, programs[program].recipe);
    change c = {.t = &t, .device = device_of(programs[program].target)};
    change_before_each(&c, &lends[_i % LENDS], program);
    codes_close(&t);
    for (int i = 0; i < 2; i++)
        if (lends[_i % LENDS].make == bind)
            free(c.lent[i]);
}
END_TEST

/* The kernels that a run of eval executes, with those of `prepare` if that runs before it. */
static int64_t kernels_of_eval(fp8c_program *p)
{
    fp8c_info before = {.struct_size = sizeof before}, after = before;
    fp8c_program_info(p, &before);
    codes_fill(p, "eval", VOCABULARY, 1);
    ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "eval")), FP8C_OK);
    fp8c_program_info(p, &after);
    return after.kernels_executed - before.kernels_executed;
}

/* A weight that is back in memory of the program changes no more behind its back. One that somebody
 * has seen may. */
START_TEST(given_back)
{
    codes_twins t = open_twins("cpu", "delayed");
    change c = {.t = &t, .device = device_of("cpu")};
    fp8c_program *p = t.p[0];
    fp8c_tensor_view view = {0};
    kernels_of_eval(p);
    const int64_t usual = kernels_of_eval(p);
    bind(&c);
    kernels_of_eval(p);
    ck_assert_int_gt(kernels_of_eval(p), usual);
    unbind(&c);
    kernels_of_eval(p);
    ck_assert_int_eq(kernels_of_eval(p), usual);
    ck_assert_int_eq(
        fp8c_program_variable_view(p, fp8c_program_find_variable(p, "down.weight"), &view),
        FP8C_OK);
    kernels_of_eval(p);
    ck_assert_int_gt(kernels_of_eval(p), usual);
    codes_close(&t);
}
END_TEST

Suite *f8_suite(void)
{
    const bool emulated = f8_test_gpu_emulated();
    Suite *s = suite_create("codes_stale");
    TCase *t = tcase_create("codes_stale");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, changed, 0, emulated ? PROGRAMS : PROGRAMS - ON_GPU);
    tcase_add_loop_test(t, lent, 0, (PROGRAMS - ON_GPU) * LENDS);
    tcase_add_test(t, given_back);
    suite_add_tcase(s, t);
    return s;
}

/* For bench/recipes: lists the recipes, and measures how well each quantizes the operands of a
 * model that was trained under it.
 *
 *     bench_recipes list                          the recipes' names, one a line
 *     bench_recipes record KEY MODEL TEXT STATE   prints one record of a run of `fp8c train`, which
 *                                             wrote STATE, and whose records come on stdin
 *
 * The state is loaded into a program that also returns its operands (`keep`, which changes no bit
 * of what it computes). Micro-steps run on windows spread evenly over the part of the text that was
 * trained on. The figures are the worst over them and over all linears. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/figures.h"
#include "frontend/fp8c_diagnose.h"
#include "tests/shared/num/operand.h"

enum { BATCHES = 4 };

/* The operands told apart: by the GEMM that reads them, where one granularity may not serve both.
 */
static const struct {
    const char *field, *kind, *role;
} group[] = {
    {"sqnr_x_fprop", "x", "fprop"},   {"sqnr_x_wgrad", "x", "wgrad"},   {"sqnr_w", "w", NULL},
    {"sqnr_dy_dgrad", "dy", "dgrad"}, {"sqnr_dy_wgrad", "dy", "wgrad"},
};

enum { GROUPS = sizeof group / sizeof *group };

typedef struct worst {
    double sqnr[GROUPS], underflow; /* +inf, 0: nothing seen */
    int64_t operands;               /* measured in one micro-step */
} worst;

typedef struct program {
    fp8c_context *ctx;
    fp8c_program *program;
    int step; /* micro_step */
} program;

/* ---- the trained program ---- */

/* The model with the rules behind its own. */
static program compile(const char *model, const char *rules_path, const char *recipe)
{
    program p;
    fp8c_module *module;
    size_t size, n_rules;
    char *text = read_file(model, &size), *rules = read_file(rules_path, &n_rules);
    text = realloc(text, size + n_rules);
    must(text != NULL, "memory");
    memcpy(text + size, rules, n_rules);
    size += n_rules;
    must(fp8c_context_create(NULL, &p.ctx) == FP8C_OK, "context");
    must(fp8c_module_parse(p.ctx, text, size, model, NULL, 0, &module) == FP8C_OK,
         fp8c_context_message(p.ctx));
    const fp8c_compile_options o = {.struct_size = sizeof o, .recipe = recipe, .keep = "*"};
    must(fp8c_compile(module, &o, &p.program) == FP8C_OK, fp8c_context_message(p.ctx));
    must(fp8c_program_initialize(p.program, 1) == FP8C_OK, fp8c_context_message(p.ctx));
    p.step = fp8c_program_function(p.program, "micro_step");
    must(p.step >= 0, "the model gives no micro_step");
    fp8c_module_destroy(module);
    free(text);
    free(rules);
    return p;
}

/* All variables, one after another. */
static void load_state(const program *p, const char *path)
{
    size_t size, at = 0;
    char *state = read_file(path, &size);
    fp8c_variable v;
    for (int i = 0; fp8c_program_variable(p->program, i, &v) == FP8C_OK; i++) {
        const size_t bytes = (size_t)fp8c_type_bytes(&v.type);
        must(bytes <= size - at, "the state is shorter than the program's variables");
        must(fp8c_program_write(p->program, i, state + at) == FP8C_OK,
             fp8c_context_message(p->ctx));
        at += bytes;
    }
    must(at == size, "the state is longer than the program's variables");
    free(state);
}

static int find(const program *p, fp8c_side side, const char *name)
{
    const int port = fp8c_program_find_port(p->program, p->step, side, name);
    must(port >= 0, name);
    return port;
}

/* Batch `k` of BATCHES. */
static void fill_batch(const program *p, const char *text, size_t size, int64_t k)
{
    fp8c_port port;
    const int tokens = find(p, FP8C_INPUT, "tokens"), targets = find(p, FP8C_INPUT, "targets");
    fp8c_program_port(p->program, p->step, FP8C_INPUT, tokens, &port);
    const int64_t B = port.type.dim[0], T = port.type.dim[1];
    int32_t *in = fp8c_program_buffer(p->program, p->step, FP8C_INPUT, tokens);
    int32_t *out = fp8c_program_buffer(p->program, p->step, FP8C_INPUT, targets);
    const int64_t trained = (int64_t)(size - size / 10);
    must(trained > T, "the text is too short");
    for (int64_t b = 0; b < B; b++) {
        const unsigned char *window =
            (const unsigned char *)text + (trained - T - 1) * (k * B + b) / (BATCHES * B);
        for (int64_t t = 0; t < T; t++) {
            in[b * T + t] = window[t];
            out[b * T + t] = window[t + 1];
        }
    }
}

/* ---- its operands ---- */

static const void *output(const program *p, const char *name, f8_type *type)
{
    fp8c_port port;
    const int i = find(p, FP8C_OUTPUT, name);
    fp8c_program_port(p->program, p->step, FP8C_OUTPUT, i, &port);
    const char *dtype = fp8c_name(FP8C_NAME_DTYPE, port.type.dtype);
    type->dtype = f8_dtype_by_name(dtype, strlen(dtype));
    type->rank = (uint8_t)port.type.rank;
    memcpy(type->dim, port.type.dim, sizeof type->dim);
    return fp8c_program_buffer(p->program, p->step, FP8C_OUTPUT, i);
}

static bool belongs(const f8_operand_name_parts *parts, int i)
{
    const bool any_role = !parts->role || !group[i].role;
    return !strcmp(parts->kind, group[i].kind) && (any_role || !strcmp(parts->role, group[i].role));
}

/* `name` is the operand's. */
static void measure(const program *p, const char *name, worst *w)
{
    char part[300];
    f8_operand_view v;
    f8_operand_stats e;
    f8_operand_name_parts parts;
    v.x = output(p, name, &v.x_type);
    snprintf(part, sizeof part, "%s.q", name);
    v.q = output(p, part, &v.q_type);
    snprintf(part, sizeof part, "%s.scale_inv", name);
    v.scale_inv = output(p, part, &v.scale_type);
    must(f8_operand_measure(&v, &e) && f8_operand_name_split(name, &parts), name);
    for (int i = 0; i < GROUPS; i++)
        if (belongs(&parts, i) && !(e.sqnr >= w->sqnr[i]))
            w->sqnr[i] = e.sqnr; /* a NaN too, and it stays */
    w->underflow = fmax(w->underflow, e.underflow);
    w->operands++;
}

static worst measure_all(const program *p, const char *text, size_t size)
{
    worst w = {.underflow = 0};
    for (int i = 0; i < GROUPS; i++)
        w.sqnr[i] = (double)INFINITY;
    for (int64_t k = 0; k < BATCHES; k++) {
        fill_batch(p, text, size, k);
        must(fp8c_program_run(p->program, p->step) == FP8C_OK, fp8c_context_message(p->ctx));
        w.operands = 0;
        fp8c_port port;
        for (int i = 0; fp8c_program_port(p->program, p->step, FP8C_OUTPUT, i, &port) == FP8C_OK;
             i++) {
            char name[256];
            const size_t n = strlen(port.name);
            if (n < 2 || strcmp(port.name + n - 2, ".q"))
                continue;
            snprintf(name, sizeof name, "%.*s", (int)(n - 2), port.name);
            measure(p, name, &w);
        }
    }
    return w;
}

/* ---- records ---- */

/* Of the summary; recipe, steps and seed come first because bench/recipes looks for them. */
static const char *const copied[] = {"recipe",
                                     "steps",
                                     "seed",
                                     "final_loss",
                                     "heldout_loss",
                                     "unigram_entropy",
                                     "fp8_gemms_planned",
                                     "fp8_gemms_executed",
                                     "tokens_per_second"};

/* The summary among the records of `fp8c train`. */
static json_t *read_summary(FILE *from)
{
    json_t *record, *summary = NULL;
    while ((record = json_loadf(from, JSON_DISABLE_EOF_CHECK, NULL))) {
        const char *event = json_string_value(json_object_get(record, "event"));
        if (event && !strcmp(event, "summary")) {
            json_decref(summary);
            summary = json_incref(record);
        }
        json_decref(record);
    }
    must(summary != NULL, "no summary among the records");
    return summary;
}

/* Null where no operand was seen, or nothing was lost. JSON has no NaN: that is a string. */
static json_t *decibels(double sqnr)
{
    return isnan(sqnr) ? json_string("nan") : isinf(sqnr) ? json_null() : json_real(sqnr);
}

static void record(const char *key, const char *model, const char *text_path, const char *left)
{
    json_t *summary = read_summary(stdin);
    json_t *out = json_pack("{ss ss}", "event", "recipe_run", "key", key);
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
        must(!json_object_set(out, copied[i], json_object_get(summary, copied[i])), copied[i]);
    char state[4096], rules[4096];
    snprintf(state, sizeof state, "%s/state", left);
    snprintf(rules, sizeof rules, "%s/rules", left);
    program p = compile(model, rules, json_string_value(json_object_get(summary, "recipe")));
    load_state(&p, state);
    size_t size;
    char *text = read_file(text_path, &size);
    const worst w = measure_all(&p, text, size);
    json_object_set_new(out, "operands", json_integer(w.operands));
    json_object_set_new(out, "worst_underflow", json_real(w.underflow));
    for (int i = 0; i < GROUPS; i++)
        json_object_set_new(out, group[i].field, decibels(w.sqnr[i]));
    must(json_dumpf(out, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER) == 0 && puts("") >= 0,
         "stdout");
    free(text);
    fp8c_program_destroy(p.program);
    fp8c_context_destroy(p.ctx);
    json_decref(summary);
    json_decref(out);
}

int main(int argc, char **argv)
{
    const char *name;
    if (argc == 2 && !strcmp(argv[1], "list")) {
        for (int i = 0; (name = fp8c_name(FP8C_NAME_RECIPE, i)); i++)
            puts(name);
    } else {
        must(argc == 6 && !strcmp(argv[1], "record"), "usage: list | record KEY MODEL TEXT LEFT");
        record(argv[2], argv[3], argv[4], argv[5]);
    }
    return 0;
}

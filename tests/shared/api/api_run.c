/* See api_run.h. */
#include "tests/shared/api/api_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/api/weight_codes.h"
#include "tests/shared/passes/compile.h"

static bool check(f8_api_run *r, fp8c_status status)
{
    if (status != FP8C_OK)
        r->failed = fp8c_context_message(r->ctx);
    return status == FP8C_OK;
}

bool f8_api_open(f8_api_run *r, const f8_api_setup *setup)
{
    *r = (f8_api_run){.step = -1, .update = -1};
    size_t size = 0;
    char *text = f8_test_read(setup->file, &size);
    fp8c_compile_options options = setup->options;
    options.struct_size = sizeof options;
    if (!text || fp8c_context_create(NULL, &r->ctx) != FP8C_OK) {
        r->failed = text ? "no context" : "the model can't be read";
        free(text);
        return false;
    }
    const bool ok = check(r, fp8c_module_parse(r->ctx, text, size, setup->file, setup->dims,
                                               setup->n_dims, &r->module)) &&
                    check(r, fp8c_compile(r->module, &options, &r->program)) &&
                    (options.no_device || check(r, fp8c_program_initialize(r->program, 1)));
    free(text);
    if (ok) {
        r->step = fp8c_program_function(r->program, "micro_step");
        r->update = fp8c_program_function(r->program, "update");
    }
    return ok;
}

void f8_api_close(f8_api_run *r)
{
    fp8c_program_destroy(r->program);
    fp8c_module_destroy(r->module);
    fp8c_context_destroy(r->ctx);
    *r = (f8_api_run){0};
}

void *f8_api_buffer(f8_api_run *r, int function, fp8c_side side, const char *name, fp8c_type *type)
{
    const int index = fp8c_program_find_port(r->program, function, side, name);
    fp8c_port port;
    if (index < 0 || fp8c_program_port(r->program, function, side, index, &port) != FP8C_OK)
        return NULL;
    if (type)
        *type = port.type;
    return fp8c_program_buffer(r->program, function, side, index);
}

static uint64_t mix(uint64_t x) /* splitmix64 */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void f8_api_batch(f8_api_run *r, int64_t vocabulary, uint64_t number)
{
    fp8c_type type;
    int32_t *tokens = f8_api_buffer(r, r->step, FP8C_INPUT, "tokens", &type);
    int32_t *targets = f8_api_buffer(r, r->step, FP8C_INPUT, "targets", NULL);
    const int64_t T = type.dim[1];
    for (int64_t b = 0; b < type.dim[0]; b++) {
        uint64_t draw = mix(number * 1000003u + (uint64_t)(r->first_row + b));
        int64_t before = (int64_t)(draw % 61), last = (int64_t)(draw / 64 % 61);
        for (int64_t t = 0; t <= T; t++) {
            draw = mix(draw);
            const int64_t next =
                draw % 8 ? (before * 7 + last * 3 + 11) % 61 : (int64_t)(draw / 8 % 61);
            const int32_t id = (int32_t)(last % vocabulary);
            if (t < T)
                tokens[b * T + t] = id;
            if (t > 0)
                targets[b * T + t - 1] = id;
            before = last;
            last = next;
        }
    }
}

float f8_api_step(f8_api_run *r, int64_t vocabulary, uint64_t number)
{
    f8_api_batch(r, vocabulary, number);
    if (!check(r, fp8c_program_run(r->program, r->step)) ||
        !check(r, fp8c_program_run(r->program, r->update)) ||
        !check(r, fp8c_program_wait(r->program)))
        return NAN;
    return *(float *)f8_api_buffer(r, r->step, FP8C_OUTPUT, "loss", NULL);
}

/* The variable of that index, but no codes of weights: they come last, and follow from the rest. */
static bool get_variable(fp8c_program *p, int i, fp8c_variable *v)
{
    return fp8c_program_variable(p, i, v) == FP8C_OK && !is_weight_codes(v->name);
}

unsigned char *f8_api_state(f8_api_run *r, size_t *bytes)
{
    fp8c_variable v;
    *bytes = 0;
    for (int i = 0; get_variable(r->program, i, &v); i++)
        *bytes += (size_t)fp8c_type_bytes(&v.type);
    unsigned char *state = malloc(*bytes + 1), *to = state;
    for (int i = 0; state && get_variable(r->program, i, &v); i++) {
        if (!check(r, fp8c_program_read(r->program, i, to))) {
            free(state);
            return NULL;
        }
        to += fp8c_type_bytes(&v.type);
    }
    return state;
}

/* Variable i of both. */
static bool same_variable(f8_api_run *a, f8_api_run *b, int i, const fp8c_variable *v,
                          const fp8c_variable *w)
{
    const size_t n = (size_t)fp8c_type_bytes(&v->type);
    if (strcmp(v->name, w->name) || n != (size_t)fp8c_type_bytes(&w->type))
        return false;
    unsigned char *x = malloc(n + 1), *y = malloc(n + 1);
    const bool same = x && y && check(a, fp8c_program_read(a->program, i, x)) &&
                      check(b, fp8c_program_read(b->program, i, y)) && !memcmp(x, y, n);
    free(x);
    free(y);
    return same;
}

const char *f8_api_differs(f8_api_run *a, f8_api_run *b)
{
    fp8c_variable v, w;
    for (int i = 0;; i++) {
        const bool in_a = get_variable(a->program, i, &v), in_b = get_variable(b->program, i, &w);
        if (!in_a && !in_b)
            return i ? NULL : "a program without variables";
        if (!in_a || !in_b || !same_variable(a, b, i, &v, &w))
            return in_a ? v.name : w.name;
    }
}

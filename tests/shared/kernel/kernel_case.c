/* Fixture of kernel tests: see kernel_case.h. Their values are in kernel_values.c. */
#include "tests/shared/kernel/kernel_case.h"
#include "tests/shared/kernel/kernel_desc.h"
#include "tests/shared/kernel/kernel_values.h"

#include "codegen/kernel/kernel.h"
#include "runtime/copy.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, PATTERN = 0xA5 };

const f8_build_choices *kc_choices;
const char *kc_cpu;

void kc_begin(kcase *c)
{
    memset(c, 0, sizeof *c);
    f8_arena_init(&c->arena, NULL);
    c->m = f8_module_create(&c->arena, &c->diag, "test", "test.f8");
    c->f = f8_module_func(c->m, "f");
    c->g = c->f->graph;
    c->first = c->g->n_nodes;
    c->program.group = c->group;
    c->program.place = c->place;
    c->f->lowered = &c->program;
    c->seed = 1;
    c->bytes = GUARD;
}

void kc_end(kcase *c)
{
    f8_blob_unmap(&c->blob);
    if (c->value)
        for (uint32_t i = 0; i < c->g->n_nodes; i++)
            free(c->value[i]);
    free(c->value);
    free(c->memory);
    f8_arena_end(&c->arena);
}

void kc_place(kcase *c, f8_ref r)
{
    ck_assert_msg(r, "%s", c->diag.text);
    const f8_type *t = f8_type_of(c->g, r);
    ck_assert_uint_lt(r, sizeof c->place / sizeof *c->place);
    c->place[r] = (f8_place){F8_SPACE_ARENA, -1, c->bytes, f8_type_columns(t)};
    c->bytes += (f8_type_bytes(t) + 63) / 64 * 64 + GUARD;
}

void kc_place_in(kcase *c, f8_ref r, f8_ref host, int64_t offset, int64_t stride)
{
    c->place[r] = c->place[host];
    c->place[r].offset += offset * (int64_t)f8_dtype_size(f8_type_of(c->g, r)->dtype);
    c->place[r].stride = stride;
}

void kc_alias(kcase *c, f8_ref r, f8_ref host)
{
    c->place[r] = c->place[host];
}

static f8_ref input(kcase *c, f8_dtype dtype, int rank, va_list dims)
{
    f8_type t = {.dtype = dtype, .rank = (uint8_t)rank};
    for (int i = 0; i < rank; i++)
        t.dim[i] = va_arg(dims, int);
    char name[16];
    snprintf(name, sizeof name, "x%u", c->n_input);
    const f8_ref r = f8_func_input(c->f, f8_intern(c->m, name), &t, -1);
    kc_place(c, r);
    c->input[c->n_input++] = r;
    return r;
}

f8_ref kc_input(kcase *c, f8_dtype dtype, int rank, ...)
{
    va_list dims;
    va_start(dims, rank);
    const f8_ref r = input(c, dtype, rank, dims);
    va_end(dims);
    kv_fill_input(c, r, 0);
    return r;
}

f8_ref kc_ids(kcase *c, int64_t limit, int rank, ...)
{
    va_list dims;
    va_start(dims, rank);
    const f8_ref r = input(c, F8_I32, rank, dims);
    va_end(dims);
    kv_fill_input(c, r, limit);
    return r;
}

void kc_out(kcase *c, f8_ref r)
{
    ck_assert_msg(r, "%s", c->diag.text);
    if (c->place[r].space == F8_SPACE_NONE)
        kc_place(c, r);
    ck_assert_uint_lt(c->n_out, KC_LIST);
    c->out[c->n_out++] = r;
}

static bool computes(f8_op op)
{
    const f8_class cls = f8_op_facts(op)->cls;
    return cls != F8_LEAF && op != F8_OP_RESHAPE && op != F8_OP_PROJECT && op != F8_OP_SLICE;
}

static void add_phase(kcase *c, f8_group *g, int64_t rows, int64_t cols)
{
    f8_phase *phases = f8_arena_array(&c->arena, g->n_phases + 1, sizeof *phases);
    if (g->n_phases)
        memcpy(phases, g->phase, g->n_phases * sizeof *phases);
    g->phase = phases;
    f8_phase *p = &phases[g->n_phases++];
    *p = (f8_phase){.rows = rows, .cols = cols};
    p->node = f8_arena_array(&c->arena, c->g->n_nodes, sizeof *p->node);
    for (f8_ref r = c->first; r < c->g->n_nodes; r++)
        if (computes(c->g->node[r].op))
            p->node[p->n_nodes++] = r;
    c->first = c->g->n_nodes;
    const uint32_t fresh = c->n_out - c->outs_used;
    f8_ref *out = f8_arena_array(&c->arena, g->n_out + fresh + 1, sizeof *out);
    if (g->n_out)
        memcpy(out, g->out, g->n_out * sizeof *out);
    memcpy(out + g->n_out, c->out + c->outs_used, fresh * sizeof *out);
    g->out = out;
    g->n_out += fresh;
    c->outs_used = c->n_out;
}

void kc_phase(kcase *c, int64_t rows, int64_t cols)
{
    ck_assert_msg(c->diag.status == F8_OK, "%s", c->diag.text);
    f8_group *g = &c->group[c->program.n_groups++];
    *g = (f8_group){.kind = F8_GROUP_ROWS, .name = "test"};
    add_phase(c, g, rows, cols);
}

void kc_next_phase(kcase *c, int64_t rows, int64_t cols)
{
    ck_assert_msg(c->diag.status == F8_OK, "%s", c->diag.text);
    add_phase(c, &c->group[c->program.n_groups - 1], rows, cols);
}

void kc_single(kcase *c, f8_group_kind kind, f8_ref r)
{
    kc_out(c, r);
    f8_group *g = &c->group[c->program.n_groups++];
    *g = (f8_group){.kind = kind, .name = "test"};
    c->first = r;
    add_phase(c, g, 0, 0);
    g->phase->n_nodes = 1;
    g->phase->node[0] = r;
}

f8_status kc_build(kcase *c)
{
    c->program.order = f8_arena_array(&c->arena, c->program.n_groups + 1, sizeof(uint32_t));
    for (uint32_t i = 0; i < c->program.n_groups; i++)
        c->program.order[i] = i;
    c->program.arena_bytes = c->bytes;
    const f8_build_options o = {.stats = &c->stats, .cpu = kc_cpu, .choices = kc_choices};
    F8_TRY(f8_build_plan(c->m, &o, &c->arena, &c->plan, &c->diag));
    return f8_blob_map(&c->blob, c->plan.blob, (size_t)c->plan.blob_bytes,
                       (size_t)c->plan.blob_code_bytes, &c->diag);
}

void kc_evaluate(kcase *c)
{
    kv_evaluate(c); /* what has values keeps them */
}

void kc_fill(kcase *c)
{
    const size_t bytes = (size_t)(c->plan.func ? c->plan.func[0].arena_bytes : c->bytes);
    if (!c->memory)
        ck_assert(!posix_memalign((void **)&c->memory, 64, bytes + GUARD));
    memset(c->memory, PATTERN, bytes);
    for (uint32_t i = 0; i < c->n_input; i++)
        kv_write(c, c->input[i]);
}

static void run_kernel(kcase *c, const f8_step *s, int64_t tasks_a_call, bool backwards)
{
    void *args[KC_LIST];
    ck_assert_uint_le(s->n_args, KC_LIST);
    for (uint32_t i = 0; i < s->n_args; i++)
        args[i] = s->arg[i].space == F8_SPACE_CONST ? (void *)(c->plan.constants + s->arg[i].offset)
                                                    : (void *)(c->memory + s->arg[i].offset);
    for (uint32_t p = 0; p < s->n_phases; p++) {
        const f8_step_phase *phase = &s->phase[p];
        void *scratch;
        ck_assert(!posix_memalign(&scratch, 64, (size_t)phase->scratch + 64));
        const f8_phase_fn fn = f8_blob_phase(&c->blob, phase->entry);
        const int64_t step = tasks_a_call > 0 ? tasks_a_call : phase->n_tasks;
        const int64_t calls = step ? (phase->n_tasks + step - 1) / step : 0;
        for (int64_t n = 0; n < calls; n++) {
            const int64_t begin = (backwards ? calls - 1 - n : n) * step;
            memset(scratch, PATTERN, (size_t)phase->scratch);
            fn(args + phase->first_arg, s->ints + phase->first_int, begin,
               begin + step < phase->n_tasks ? begin + step : phase->n_tasks, scratch);
        }
        free(scratch);
    }
}

void kc_run(kcase *c, int64_t tasks_a_call, bool backwards)
{
    kc_fill(c);
    const f8_plan_func *f = &c->plan.func[0];
    for (uint32_t i = 0; i < f->n_steps; i++) {
        const f8_step *s = &f->step[i];
        if (s->kind == F8_STEP_KERNEL)
            run_kernel(c, s, tasks_a_call, backwards);
        else if (s->kind == F8_STEP_COPY)
            f8_copy_run(s, NULL, c->memory + s->arg[0].offset, c->memory + s->arg[1].offset);
    }
}

void kc_compare(kcase *c, const char *what)
{
    uint8_t *accessed = calloc((size_t)c->bytes, 1);
    for (uint32_t i = 0; i < c->n_out; i++)
        kv_compare(c, c->out[i], what, accessed);
    for (uint32_t i = 0; i < c->n_input; i++)
        kv_mark(c, c->input[i], accessed);
    for (int64_t i = 0; i < c->bytes; i++)
        if (!accessed[i] && c->memory[i] != PATTERN)
            ck_abort_msg("%s: byte %lld was written outside all results", what, (long long)i);
    free(accessed);
}

void kc_check(kcase *c)
{
    ck_assert_msg(kc_build(c) == F8_OK, "%s", c->diag.text);
    kc_evaluate(c);
    kc_run(c, 0, false);
    kc_compare(c, "in one call");
    kc_run(c, 1, true);
    kc_compare(c, "task by task, backwards");
}

void kc_check_described(kcase *c, const f8_target *target)
{
    kc_evaluate(c);
    kc_fill(c);
    for (uint32_t i = 0; i < c->program.n_groups; i++)
        for (uint32_t p = 0; p < c->group[i].n_phases; p++) {
            f8_kernel *k;
            f8_binding bound;
            ck_assert_msg(f8_kernel_lower(c->f, &c->group[i], p, target, &c->arena, &k, &bound,
                                          &c->diag) == F8_OK,
                          "%s", c->diag.text);
            kd_run(k, &bound, &(kd_memory){.arena = c->memory});
        }
    kc_compare(c, "described");
}

/* See remat_case.h. */
#include "tests/shared/remat/remat_case.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/lowered.h"
#include "tests/shared/random.h"

enum { SEED = 20261121 };

static f8_compiled *program(remat_case *c, int which)
{
    return which < 0 ? &c->plain : &c->other[which];
}

static const char *name_of(const remat_case *c, int which)
{
    return which < 0 ? "plain" : c->way[which].name;
}

/* A share where another order alone may do. */
static const double ENOUGH = 0.9;

#define MUST(c, which, call)                                                                       \
    ck_assert_msg((call), "%s, %s, %s, %s: %s", (c)->model.file, (c)->model.recipe,                \
                  name_of(c, which), #call, program(c, which)->diag.text)

/* ---- compiling ---- */

/* least: bytes in all; 0: no such budget */
static f8_compile_setup setup_of(const remat_case *c, const remat_way *way, int64_t least)
{
    f8_diag diag = {0};
    f8_compile_setup s = {.file = c->model.file,
                          .dims = c->model.dims,
                          .keep = c->model.keep,
                          .cuda = c->model.cuda,
                          .target = c->model.target,
                          .memory = {least, way->share},
                          .checkpoint = way->checkpoint,
                          .recompute = way->recompute,
                          .threads = way->threads ? way->threads : 1,
                          .no_fuse = way->no_fuse,
                          .after = way->after,
                          .drop = way->follows || way->least ? "eval update prepare" : "eval"};
    ck_assert_msg(f8_recipe_parse(c->model.recipe, F8_NOWHERE, &s.recipe, &diag) == F8_OK, "%s",
                  diag.text);
    return s;
}

/* What a message names as the least; 0: nothing. */
static double least_named(const f8_diag *diag, const char *mark)
{
    const char *at = strstr(diag->text, mark);
    return at && diag->status == F8_ERR_UNSUPPORTED ? atof(at + strlen(mark)) : 0;
}

void remat_open(remat_case *c, const remat_model *m)
{
    *c = (remat_case){.model = *m};
    const f8_compile_setup s = setup_of(c, &(remat_way){0}, 0);
    MUST(c, -1, f8_compile_model(&c->plain, &s));
    ck_assert(!c->plain.unit.remat.ran);
}

/* What the message names; that it can be met is for whoever asks for it. */
static int64_t least_bytes(remat_case *c, const remat_way *way)
{
    const f8_compile_setup s = setup_of(c, way, 1);
    f8_compiled tried;
    ck_assert_msg(!f8_compile_passes(&tried, &s), "%s, %s: a byte is enough", c->model.file,
                  c->model.recipe);
    const double bytes = least_named(&tried.diag, "the least possible budget is ");
    ck_assert_msg(bytes > 0, "%s, %s: %s", c->model.file, c->model.recipe, tried.diag.text);
    f8_compiled_end(&tried);
    return (int64_t)bytes;
}

/* With the least share, rounded up, where the way's can't be met. False: another has that. */
static bool compile_way(remat_case *c, int i)
{
    f8_compiled *p = &c->other[i];
    remat_way *way = &c->way[i];
    f8_compile_setup s = setup_of(c, way, way->least ? least_bytes(c, way) : 0);
    if (f8_compile_model(p, &s))
        return true;
    const double least = least_named(&p->diag, "the least possible share of activation bytes is ");
    MUST(c, i, least > way->share && least < 1);
    f8_compiled_end(p);
    way->share = least;
    for (int k = 0; k < i; k++)
        if (c->way[k].share == least && c->way[k].no_fuse == way->no_fuse &&
            c->way[k].threads == way->threads)
            return false;
    s = setup_of(c, way, 0);
    MUST(c, i, f8_compile_model(p, &s));
    return true;
}

static size_t bytes_of(const f8_compiled *p, size_t var)
{
    return (size_t)f8_type_bytes(&p->unit.module->var[var].type);
}

/* The variable's bytes: the program's own, or a copy in `room`. */
static const void *bytes_at(remat_case *c, int which, uint32_t var, void *room)
{
    f8_compiled *p = program(c, which);
    const void *own = p->instance.kind->var(&p->instance, var);
    if (own)
        return own;
    MUST(c, which, p->instance.kind->read(&p->instance, var, room, &p->diag) == F8_OK);
    return room;
}

static size_t largest_variable(const f8_compiled *p)
{
    size_t most = 1;
    for (size_t v = 0; v < p->unit.module->n_vars; v++)
        most = bytes_of(p, v) > most ? bytes_of(p, v) : most;
    return most;
}

/* Codes of weights come last. A program with a budget keeps none. */
static size_t without_codes(const f8_module *m)
{
    size_t n = 0;
    while (n < m->n_vars && !f8_is_weight_codes(m->var[n].name))
        n++;
    return n;
}

/* How many variables two programs share, from the first on: all, if both keep codes or neither. */
static size_t in_common(const f8_module *a, const f8_module *b)
{
    return a->n_vars == b->n_vars ? a->n_vars : without_codes(a);
}

static void take_over(remat_case *c, int which)
{
    f8_compiled *p = &c->other[which];
    void *room = malloc(largest_variable(p));
    const size_t n = in_common(c->plain.unit.module, p->unit.module);
    for (uint32_t v = 0; v < n; v++) {
        const void *from = bytes_at(c, -1, v, room);
        MUST(c, which, p->instance.kind->write(&p->instance, v, from, &p->diag) == F8_OK);
    }
    free(room);
}

int remat_add(remat_case *c, const remat_way *way)
{
    const int i = c->n;
    ck_assert_int_lt(i, REMAT_WAYS);
    ck_assert_int_eq(c->steps, 0);
    c->way[i] = *way;
    if (!compile_way(c, i))
        return -1;
    c->n++;
    const f8_module *a = c->plain.unit.module, *b = c->other[i].unit.module;
    ck_assert_uint_eq(without_codes(a), without_codes(b));
    for (size_t v = 0; v < in_common(a, b); v++) {
        ck_assert_str_eq(a->var[v].name, b->var[v].name);
        ck_assert_uint_eq(bytes_of(&c->plain, v), bytes_of(&c->other[i], v));
    }
    c->way[i].follows |= way->least;
    if (c->way[i].follows)
        take_over(c, i);
    return i;
}

void remat_close(remat_case *c)
{
    f8_compiled_end(&c->plain);
    for (int i = 0; i < c->n; i++)
        f8_compiled_end(&c->other[i]);
}

/* ---- inputs ---- */

static void fill(f8_dtype dtype, void *to, int64_t n, int64_t below, uint32_t seed, int step)
{
    const float size = ldexpf(1, (step * 3) % 5 - 2);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t draw = test_random(&seed);
        if (dtype == F8_I32)
            ((int32_t *)to)[i] = (int32_t)(draw % (uint32_t)below);
        else
            ((float *)to)[i] = size * ((float)draw / 0x1p23f - 1);
    }
}

/* Ids are below the vocabulary, which is the first axis of what is embedded: dim V. */
static int64_t vocabulary(const remat_case *c)
{
    const f8_module *m = c->plain.unit.module;
    for (size_t i = 0; i < m->n_dims; i++)
        if (!strcmp(m->dim[i].name, "V"))
            return m->dim[i].value;
    return 1;
}

static void fill_inputs(remat_case *c, int func)
{
    const f8_plan_func *f = &c->plain.plan.func[func];
    for (uint32_t i = 0; i < f->n_in; i++) {
        const f8_type *t = &f->in[i].type;
        if (f->in[i].var >= 0)
            continue;
        void *first = c->plain.instance.kind->port(&c->plain.instance, (uint32_t)func, 0, i);
        ck_assert(t->dtype == F8_I32 || t->dtype == F8_F32);
        fill(t->dtype, first, f8_type_elements(t), vocabulary(c),
             SEED + 977u * (uint32_t)c->micro_steps + i, c->steps);
        for (int k = 0; k < c->n; k++) {
            f8_compiled *p = &c->other[k];
            const int at = f8_compiled_func(p, "micro_step");
            memcpy(p->instance.kind->port(&p->instance, (uint32_t)at, 0, i), first,
                   (size_t)f8_type_bytes(t));
        }
    }
}

/* ---- comparing ---- */

static bool same(remat_case *c, int which, const char *when, const char *name, const f8_type *type,
                 const void *want, const void *got)
{
    const size_t bytes = (size_t)f8_type_bytes(type), size = f8_dtype_size(type->dtype);
    if (!memcmp(want, got, bytes))
        return true;
    size_t i = 0;
    while (!memcmp((const char *)want + i * size, (const char *)got + i * size, size))
        i++;
    int n = snprintf(c->difference, sizeof c->difference,
                     "%s, %s, %s: step %d, micro-step %d, after %s, %s[%zu]", c->model.file,
                     c->model.recipe, name_of(c, which), c->steps, c->micro_steps, when, name, i);
    if (type->dtype == F8_F32 && n < (int)sizeof c->difference)
        snprintf(c->difference + n, sizeof c->difference - (size_t)n, " is %a, not %a",
                 (double)((const float *)got)[i], (double)((const float *)want)[i]);
    return false;
}

static bool same_variables(remat_case *c, int which, const char *when)
{
    const f8_module *m = c->plain.unit.module;
    const size_t most = largest_variable(&c->plain);
    void *a = malloc(most), *b = malloc(most);
    const size_t n = in_common(m, c->other[which].unit.module);
    bool ok = true;
    for (uint32_t v = 0; v < n && ok; v++)
        ok = same(c, which, when, m->var[v].name, &m->var[v].type, bytes_at(c, -1, v, a),
                  bytes_at(c, which, v, b));
    free(a);
    free(b);
    return ok;
}

static bool same_results(remat_case *c, int which, int func)
{
    f8_compiled *p = &c->other[which];
    const int at = f8_compiled_func(p, "micro_step");
    const f8_plan_func *f = &c->plain.plan.func[func];
    bool ok = true;
    for (uint32_t i = 0; i < f->n_out && ok; i++)
        if (f->out[i].var < 0)
            ok = same(c, which, "micro_step", f->out[i].name, &f->out[i].type,
                      c->plain.instance.kind->port(&c->plain.instance, (uint32_t)func, 1, i),
                      p->instance.kind->port(&p->instance, (uint32_t)at, 1, i));
    return ok;
}

static void run(remat_case *c, int which, const char *func)
{
    f8_compiled *p = program(c, which);
    MUST(c, which, f8_compiled_run(p, f8_compiled_func(p, func)) == F8_OK);
}

/* NaNs would be equal whatever was computed. */
static void look_at_loss(remat_case *c, int func)
{
    const int loss = f8_compiled_output(&c->plain, func, "loss");
    f8_instance *x = &c->plain.instance;
    memcpy(&c->loss, x->kind->port(x, (uint32_t)func, 1, (uint32_t)loss), sizeof c->loss);
    ck_assert_msg(isfinite(c->loss), "%s, %s: a loss of %g", c->model.file, c->model.recipe,
                  (double)c->loss);
}

static bool micro_step(remat_case *c)
{
    const int func = f8_compiled_func(&c->plain, "micro_step");
    bool ok = true;
    fill_inputs(c, func);
    run(c, -1, "micro_step");
    look_at_loss(c, func);
    for (int i = 0; i < c->n && ok; i++) {
        run(c, i, "micro_step");
        ok = same_results(c, i, func) && same_variables(c, i, "micro_step");
    }
    c->micro_steps++;
    return ok;
}

bool remat_micro_steps(remat_case *c, int n)
{
    bool ok = true;
    for (int i = 0; i < n && ok; i++)
        ok = micro_step(c);
    return ok;
}

bool remat_update(remat_case *c)
{
    bool ok = true;
    run(c, -1, "update");
    for (int i = 0; i < c->n && ok; i++) {
        if (c->way[i].follows) {
            take_over(c, i);
        } else {
            run(c, i, "update");
            ok = same_variables(c, i, "update");
        }
    }
    c->steps++;
    return ok;
}

/* ---- what can't differ ---- */

static void check_program(remat_case *c, int which)
{
    const f8_compiled *p = program(c, which);
    f8_instance_info info;
    p->instance.kind->info(&p->instance, &info);
    ck_assert_msg(info.count.fp8_gemms == (int64_t)c->micro_steps * p->unit.fp8_gemms,
                  "%s, %s, %s: %lld FP8 GEMMs in %d micro-steps, planned are %lld each",
                  c->model.file, c->model.recipe, name_of(c, which),
                  (long long)info.count.fp8_gemms, c->micro_steps, (long long)p->unit.fp8_gemms);
    ck_assert_msg(info.peak_bytes == info.planned_bytes,
                  "%s, %s, %s: a peak of %lld bytes, planned were %lld", c->model.file,
                  c->model.recipe, name_of(c, which), (long long)info.peak_bytes,
                  (long long)info.planned_bytes);
}

void remat_check(remat_case *c)
{
    check_program(c, -1);
    for (int i = 0; i < c->n; i++) {
        const f8_compiled *p = &c->other[i];
        const f8_remat_summary *r = &p->unit.remat;
        const f8_lowered *laid = f8_module_find_func(p->unit.module, "micro_step")->lowered;
        check_program(c, i);
        ck_assert_msg(r->ran && (r->recomputed > 0 || c->way[i].share >= ENOUGH),
                      "%s, %s, %s: nothing was recomputed", c->model.file, c->model.recipe,
                      c->way[i].name);
        ck_assert_msg(laid->arena_bytes <= r->budget && laid->arena_bytes == r->after,
                      "%s, %s, %s: an arena of %lld, planned %lld, allowed %lld", c->model.file,
                      c->model.recipe, c->way[i].name, (long long)laid->arena_bytes,
                      (long long)r->after, (long long)r->budget);
        ck_assert_int_eq(p->unit.fp8_gemms - c->plain.unit.fp8_gemms, r->fp8_gemms);
    }
}

void *remat_variable(remat_case *c, int which, const char *name, f8_type *type)
{
    const f8_compiled *p = program(c, which);
    const int32_t v = f8_module_find_var(p->unit.module, name);
    if (v < 0)
        return NULL;
    *type = p->unit.module->var[v].type;
    void *room = malloc(bytes_of(p, (size_t)v));
    const void *at = bytes_at(c, which, (uint32_t)v, room);
    if (at != room)
        memcpy(room, at, bytes_of(p, (size_t)v));
    return room;
}

static const f8_graph *graph_of(const f8_compiled *p)
{
    return f8_module_find_func(p->unit.module, "micro_step")->graph;
}

int remat_count_recomputed(const f8_compiled *p, f8_op op)
{
    const f8_graph *g = graph_of(p);
    int n = 0;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        n += f8_is_recomputed(g, r) && g->node[r].op == op;
    return n;
}

static const char *called(const f8_graph *g, f8_ref r)
{
    const bool gemm = g->node[r].op == F8_OP_SCALED_MATMUL || g->node[r].op == F8_OP_MATMUL;
    return gemm ? f8_attr_s(g, r, F8_A_NAME) : g->name[r] ? g->name[r] : "";
}

/* The more of the forms of micro_step: under the least budget one of them has no choice. */
static int most_of_forms(const f8_compiled *p, f8_op op, int (*count)(const f8_graph *, f8_op))
{
    const f8_func *first = f8_module_find_func(p->unit.module, "micro_step.first");
    const int own = count(graph_of(p), op), other = first ? count(first->graph, op) : 0;
    return own > other ? own : other;
}

static int most_again(const f8_graph *g, f8_op op)
{
    int most = 0;
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        int n = 0;
        for (f8_ref k = 1; k < g->n_nodes && f8_is_recomputed(g, r) && *called(g, r); k++)
            n += f8_is_recomputed(g, k) && g->node[k].op == op &&
                 !strcmp(called(g, k), called(g, r));
        most = n > most ? n : most;
    }
    return most;
}

int remat_most_again(const f8_compiled *p, f8_op op)
{
    return most_of_forms(p, op, most_again);
}

static int depth_of(const f8_graph *g, f8_op op)
{
    (void)op;
    int *depth = calloc(g->n_nodes, sizeof *depth), most = 0;
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        for (uint32_t i = 0; i < g->node[r].n_in; i++)
            depth[r] = depth[g->node[r].in[i]] > depth[r] ? depth[g->node[r].in[i]] : depth[r];
        depth[r] += f8_is_recomputed(g, r) &&
                    (g->node[r].op == F8_OP_SCALED_MATMUL || g->node[r].op == F8_OP_MATMUL);
        most = f8_is_recomputed(g, r) && depth[r] > most ? depth[r] : most;
    }
    free(depth);
    return most;
}

int remat_depth(const f8_compiled *p)
{
    return most_of_forms(p, F8_OP_MATMUL, depth_of);
}

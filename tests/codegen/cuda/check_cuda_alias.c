/* No other task of a CUDA launch accesses what one of its tasks writes. The test walks the plans of
 * all models, recipes and targets by their kernels' descriptions. Groups whose values share memory
 * wrongly are refused. */
#include "codegen/build.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/passes/passes.h"
#include "tests/shared/cuda/cuda_plan.h"
#include "tests/shared/suite.h"
#include "tests/shared/passes/unit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const recipes[] = {"f32", "bf16", "delayed", "current"};
static const char *const models[] = {"gpt", "gpt2_124m", "llama_block", "mpt_1b",
                                     "llama3_8b_block"};
static const char *const targets[] = {"sm_89", "sm_90a", "sm_100a", "sm_120a"};
enum { N_RECIPES = 4, N_MODELS = 5, N_TARGETS = 4, MOST_BUFFERS = 512, MOST_ARGS = 512 };

/* ---- descriptions, as they are printed (codegen/kernel/kernel.h) ---- */

typedef struct buffer {
    bool write, ordered; /* ordered: element [row, column] of the domain, each its own */
    bool row, column;
    int64_t size;
    int stride, mod, limit; /* run-time integers, or -1 */
    int shift;              /* row >> shift; or -1 */
    bool transposed, partial;
} buffer;

typedef struct description {
    bool flat, reduces;
    int64_t cols;
    uint32_t n;
    buffer buffer[MOST_BUFFERS];
} description;

static int number_after(const char *line, const char *end, const char *mark)
{
    const char *at = strstr(line, mark);
    return at && at < end ? atoi(at + strlen(mark)) : -1;
}

static bool has_word(const char *line, const char *end, const char *word)
{
    const char *at = strstr(line, word);
    return at && at < end;
}

static void read_buffer(description *d, const char *line, const char *end)
{
    unsigned index;
    char way[8], type[16], extent[8];
    ck_assert_int_eq(sscanf(line, " buffer %u: %7s %15s %7s", &index, way, type, extent), 4);
    ck_assert_uint_eq(index, d->n);
    ck_assert_uint_lt(d->n, MOST_BUFFERS);
    buffer *b = &d->buffer[d->n++];
    *b = (buffer){.write = !strcmp(way, "write"),
                  .row = !strcmp(extent, "row") || !strcmp(extent, "full"),
                  .column = !strcmp(extent, "col") || !strcmp(extent, "full"),
                  .stride = number_after(line, end, " stride i"),
                  .mod = number_after(line, end, " % i"),
                  .limit = number_after(line, end, " below i"),
                  .shift = number_after(line, end, " row >> "),
                  .transposed = has_word(line, end, " transposed")};
    b->size = !strcmp(type, "f32") || !strcmp(type, "i32")    ? 4
              : !strcmp(type, "bf16") || !strcmp(type, "f16") ? 2
                                                              : 1;
    b->ordered = b->mod < 0 && b->shift < 0 && b->limit < 0 && !b->transposed;
}

/* The description of a kernel's tail, within the kernel's; NULL: it has none. */
static const char *tail_of(const char *text)
{
    const char *at = strstr(text, "\ntail ");
    return at ? at + strlen("\ntail ") : NULL;
}

/* Reads a description, which ends where that of its tail begins. */
static void describe(const char *text, description *d)
{
    *d = (description){.flat = !strncmp(text, "kernel flat", 11)};
    if (!d->flat)
        ck_assert_int_eq(sscanf(text, "kernel rows x %" SCNd64, &d->cols), 1);
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        if (!strncmp(line, "tail ", 5))
            return;
        const int at = number_after(line, end, " buffer ");
        if (!strncmp(line, "  buffer ", 9)) {
            read_buffer(d, line, end);
            continue;
        }
        d->reduces |= has_word(line, end, "= sum ") || has_word(line, end, "= max ") ||
                      has_word(line, end, "= amax ");
        if (at < 0)
            continue;
        ck_assert_int_lt(at, (int)d->n);
        d->buffer[at].partial |=
            has_word(line, end, "= colsum ") || has_word(line, end, "= colamax ");
        if (d->buffer[at].partial || has_word(line, end, " roll "))
            d->buffer[at].ordered = false;
    }
}

/* ---- memory of a launch ---- */

/* `count` runs of `width` bytes, `pitch` from one to the next. */
typedef struct region {
    f8_space space;
    int32_t port;
    int64_t begin, width, pitch, count;
    bool write;
    uint32_t instance, buffer;
} region;

static region place(const f8_plan *plan, const f8_plan_func *f, const f8_arg *a)
{
    region r = {.space = a->space, .port = -1, .begin = a->offset, .count = 1, .width = 1};
    if (a->space != F8_SPACE_INPUT && a->space != F8_SPACE_OUTPUT)
        return r;
    const int32_t var = a->space == F8_SPACE_INPUT ? f->in[a->port].var : f->out[a->port].var;
    r.port = a->port;
    if (var >= 0) {
        r.space = F8_SPACE_STATE;
        r.port = -1;
        r.begin += plan->var[var].offset;
    }
    return r;
}

static void extend(region *r, const description *d, const buffer *b, const int64_t *ints)
{
    const int64_t rows = d->flat ? 1 : ints[0], cols = d->flat ? ints[0] : d->cols;
    const int64_t stride = b->stride < 0 ? 0 : ints[b->stride];
    r->count = b->stride < 0   ? 1
               : b->partial    ? (rows + 63) / 64
               : b->mod >= 0   ? ints[b->mod]
               : b->limit >= 0 ? ints[b->limit]
               : b->transposed ? cols
               : b->shift > 0  ? ((rows - 1) >> b->shift) + 1
                               : rows;
    r->width = (b->transposed ? rows : b->column ? cols : 1) * b->size;
    r->pitch = stride * b->size;
    r->write = b->write;
}

static bool meet(const region *x, const region *y)
{
    if (x->space != y->space || x->port != y->port || x->space == F8_SPACE_NONE ||
        x->begin >= y->begin + (y->count - 1) * y->pitch + y->width ||
        y->begin >= x->begin + (x->count - 1) * x->pitch + x->width)
        return false;
    if (x->count > 64 && y->count > 64 && x->pitch == y->pitch &&
        x->pitch) { /* all runs are like the first */
        const int64_t after = ((y->begin - x->begin) % x->pitch + x->pitch) % x->pitch;
        return after < x->width || after + y->width > x->pitch;
    }
    const region *few = x->count < y->count ? x : y, *many = few == x ? y : x;
    for (int64_t i = 0; i < few->count;
         i++) { /* the runs of `many` that end after this one begins */
        const int64_t begin = few->begin + i * few->pitch, end = begin + few->width;
        int64_t k = many->pitch ? (begin - many->begin - many->width) / many->pitch : 0;
        for (k = k < 0 ? 0 : k; k < many->count && many->begin + k * many->pitch < end; k++)
            if (many->begin + k * many->pitch + many->width > begin)
                return true;
    }
    return false;
}

/* One element of each for every element of the domain, or of a row whose threads reduce together.
 */
static bool in_place(const description *d, const int64_t *ints, const region *x, const region *y)
{
    const buffer *b = &d->buffer[x->buffer], *c = &d->buffer[y->buffer];
    const bool rows = !d->flat && ints[0] > 1, cols = d->flat ? ints[0] > 1 : d->cols > 1;
    if (x->begin != y->begin || b->size != c->size || x->pitch != y->pitch || !b->ordered ||
        !c->ordered || b->row != c->row || b->column != c->column)
        return false;
    if ((b->row || !rows || d->flat) && (b->column || !cols))
        return true;
    return b->row && d->reduces;
}

typedef struct walk {
    const cuda_plan *p;
    char fault[256]; /* the first, or empty */
    int64_t pairs, in_place, finished; /* finished: pairs of a write and the tail's read of it */
} walk;

static const f8_build_kernel *kernel_of(const cuda_plan *p, const char *symbol)
{
    for (uint32_t i = 0; i < p->stats.n_kernels; i++)
        if (!strcmp(p->stats.kernel[i].symbol, symbol))
            return &p->stats.kernel[i];
    ck_abort_msg("no kernel %s", symbol);
    return NULL;
}

/* Whether a kernel that is no row kernel writes this argument: a copy writes its last, a scatter
 * its first, attention its results and its workspace, after three or six operands. */
static bool writes(const f8_launch *l, uint32_t arg)
{
    if (!strncmp(l->symbol, "copy", 4))
        return arg == 1;
    if (!strncmp(l->symbol, "scatter", 7))
        return arg == 0;
    ck_assert(!strncmp(l->symbol, "attention", 9) && (l->n_args == 6 || l->n_args == 10));
    return arg >= (l->n_args == 6 ? 3 : 6);
}

/* The arguments behind those of the kernel itself: its tail's, which has one row, and the counter.
 */
static void extend_tail(region *r, const description *tail, uint32_t index)
{
    int64_t ints[MOST_BUFFERS];
    for (int i = 0; i < MOST_BUFFERS; i++)
        ints[i] = 1;
    if (index < tail->n) {
        extend(r, tail, &tail->buffer[index], ints);
        return;
    }
    ck_assert(r->space == F8_SPACE_CONST && r->begin % 4 == 0);
    r->width = 4;
    r->write = true;
}

static void walk_launch(walk *w, const f8_plan_func *f, const f8_step *s,
                        const f8_step_phase *phase)
{
    static description d, tail; /* large */
    static region r[MOST_ARGS];
    const f8_launch *l = &phase->launch;
    const bool is_rows = !strncmp(l->symbol, "rows", 4);
    const uint32_t n = l->n_instances * l->n_args;
    ck_assert_uint_le(n, MOST_ARGS);
    if (is_rows) {
        const char *text = kernel_of(w->p, l->symbol)->text;
        describe(text, &d);
        ck_assert(l->counts == (tail_of(text) != NULL));
        if (l->counts)
            describe(tail_of(text), &tail);
        ck_assert_uint_eq(d.n + (l->counts ? tail.n + 1 : 0), l->n_args);
        ck_assert(!l->counts || l->n_instances == 1);
    }
    const uint32_t own = is_rows ? d.n : l->n_args;
    for (uint32_t i = 0; i < n; i++) {
        r[i] = place(&w->p->plan, f, &s->arg[phase->first_arg + i]);
        r[i].instance = i / l->n_args;
        r[i].buffer = i % l->n_args;
        if (r[i].buffer >= own)
            extend_tail(&r[i], &tail, r[i].buffer - own);
        else if (is_rows)
            extend(&r[i], &d, &d.buffer[r[i].buffer],
                   s->ints + phase->first_int + r[i].instance * l->n_ints);
        else
            r[i].write = writes(l, r[i].buffer);
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; r[i].write && j < n; j++) {
            if (i == j || (r[j].write && j < i))
                continue;
            w->pairs++;
            if (!meet(&r[i], &r[j]))
                continue;
            const int64_t *ints = s->ints + phase->first_int + r[i].instance * l->n_ints;
            const bool together = r[i].instance == r[j].instance;
            const int64_t before = r[i].instance ? ints[-1] : 0;
            if (r[i].buffer >= own || r[j].buffer >= own) {
                /* the tail's own accesses are those of one block, when all tasks are done */
                const bool counter = i == n - 1 || j == n - 1, within = i >= own && j >= own;
                w->finished += i < own && !r[j].write && !counter;
                if ((counter || (!within && (i >= own || r[j].write))) && !w->fault[0])
                    snprintf(w->fault, sizeof w->fault,
                             "%s of %s (%s): arguments %u and %u of a launch and its tail", s->name,
                             f->name, l->symbol, i, j);
                continue;
            }
            if (is_rows && together && in_place(&d, ints, &r[i], &r[j]))
                w->in_place++;
            else if (!(is_rows && together && ints[l->n_ints - 1] - before == 1) && !w->fault[0])
                snprintf(w->fault, sizeof w->fault,
                         "%s of %s (%s): arguments %u and %u, bytes %" PRId64 " and %" PRId64,
                         s->name, f->name, l->symbol, i, j, r[i].begin, r[j].begin);
        }
}

static void walk_plan(walk *w, const cuda_plan *p)
{
    *w = (walk){.p = p};
    for (uint32_t f = 0; f < p->plan.n_funcs; f++)
        for (uint32_t i = 0; i < p->plan.func[f].n_steps; i++) {
            const f8_step *s = &p->plan.func[f].step[i];
            for (uint32_t k = 0; k < s->n_phases; k++) {
                const f8_launch *l = &s->phase[k].launch;
                walk_launch(w, &p->plan.func[f], s, &s->phase[k]);
                /* its tasks differ in weight, the heaviest come first: a block for each */
                ck_assert(strncmp(l->symbol, "attention", 9) || l->max_blocks < 0);
            }
        }
}

/* Under sanitizers each model and recipe is built for one target, all targets in turn. */
START_TEST(plans_share_nothing)
{
    const char *model = models[_i % N_MODELS], *recipe = recipes[_i / N_MODELS];
    for (int t = 0; t < N_TARGETS; t++) {
        if (f8_cli_sanitized() && t != _i % N_TARGETS)
            continue;
        cuda_plan p;
        walk w;
        cuda_plan_build(&p, model, NULL, recipe, targets[t], (f8_build_options){.text_only = true});
        ck_assert_msg(p.status == F8_OK, "%s, %s, %s: %s", model, recipe, targets[t], p.diag.text);
        walk_plan(&w, &p);
        ck_assert_msg(!w.fault[0], "%s, %s, %s: %s", model, recipe, targets[t], w.fault);
        ck_assert_int_gt(w.pairs, 1000);
        ck_assert_int_gt(w.in_place, 10);
        if (!strcmp(recipe, "delayed") || !strcmp(recipe, "current"))
            ck_assert_int_gt(w.finished, 5);
        cuda_plan_end(&p);
    }
}
END_TEST

/* The walk sees an argument that was moved: each written one of the first launches in turn, onto
 * the argument before it and one element further. */
START_TEST(the_walk_sees)
{
    cuda_plan p;
    walk w;
    cuda_plan_build(&p, "gpt", NULL, "bf16", "sm_90a", (f8_build_options){.text_only = true});
    ck_assert_msg(p.status == F8_OK, "%s", p.diag.text);
    int moved = 0;
    static description d;
    for (uint32_t i = 0; i < p.plan.func[0].n_steps && moved < 20; i++) {
        f8_step *s = &p.plan.func[0].step[i];
        const f8_launch *l = s->n_phases ? &s->phase[0].launch : NULL;
        if (!l || strncmp(l->symbol, "rows", 4) || s->phase[0].n_tasks < 2)
            continue;
        describe(kernel_of(&p, l->symbol)->text, &d);
        for (uint32_t k = 1; k < d.n; k++) {
            const f8_arg was = s->arg[k];
            if (!d.buffer[k].write)
                continue;
            s->arg[k] = s->arg[k - 1];
            s->arg[k].offset += d.buffer[k].size;
            if (!(d.buffer[k - 1].row || d.buffer[k - 1].column || d.flat))
                s->arg[k].offset -= d.buffer[k].size; /* of one element */
            walk_plan(&w, &p);
            ck_assert_msg(w.fault[0], "argument %u of %s", k, s->name);
            s->arg[k] = was;
            moved++;
        }
    }
    ck_assert_int_ge(moved, 10);
    walk_plan(&w, &p);
    ck_assert(!w.fault[0]);
    cuda_plan_end(&p);
}
END_TEST

/* The walk sees a tail that writes what the tasks of its launch access, and a counter that is
 * elsewhere too. */
START_TEST(the_walk_sees_tails)
{
    cuda_plan p;
    walk w;
    static description d, tail;
    int moved = 0;
    cuda_plan_build(&p, "gpt", NULL, "delayed", "sm_90a", (f8_build_options){.text_only = true});
    ck_assert_msg(p.status == F8_OK, "%s", p.diag.text);
    for (uint32_t i = 0; i < p.plan.func[0].n_steps; i++) {
        f8_step *s = &p.plan.func[0].step[i];
        if (!s->n_phases || !s->phase[0].launch.counts)
            continue;
        const char *text = kernel_of(&p, s->phase[0].launch.symbol)->text;
        describe(text, &d);
        describe(tail_of(text), &tail);
        for (uint32_t k = d.n; k < s->n_args - 1; k++) {
            const f8_arg was = s->arg[k], other = s->arg[tail.buffer[k - d.n].write ? 0 : k];
            s->arg[k] = other.offset == was.offset ? s->arg[s->n_args - 1] : other;
            walk_plan(&w, &p);
            ck_assert_msg(w.fault[0], "argument %u of %s", k, s->name);
            s->arg[k] = was;
            moved++;
        }
    }
    ck_assert_int_ge(moved, 10);
    cuda_plan_end(&p);
}
END_TEST

/* ---- groups that must be refused ---- */

/* In each, two groups made one, as grouping does not; result `to` is put `shift` bytes past the
 * value `from`, an operand or result. */
static const struct {
    const char *text, *to, *from;
    int64_t shift;
    const char *refused; /* a part of the message; NULL: it is built */
} groups[] = {
/* element by element */
#define POINTS                                                                                     \
    "func forward(%x: f32[64, 300], %o: f32[]) -> (%y: f32[64, 300], %t: f32[]) {\n"               \
    "  %y = mul(%x, %o)\n  %t = mul(%o, 2)\n  return %y, %t\n}\n"
    {POINTS, "y", "x", 0, NULL},
    {POINTS, "y", "x", 1200, "tasks of one launch, in any order"},
    {POINTS, "t", "o", 0, "tasks of one launch, in any order"},
    {POINTS, "t", "y", 64, "tasks of one launch, in any order"},
/* a value of each row, which elements of the row read too */
#define SPREAD                                                                                     \
    "func forward(%x: f32[64, 300], %r: f32[64, 1]) -> (%z: f32[64, 300], %s: f32[64, 1]) {\n"     \
    "  %s = mul(%r, 3)\n  %z = add(%x, %s)\n  return %z, %s\n}\n"
    {SPREAD, "z", "x", 0, NULL},
    {SPREAD, "s", "r", 0, "tasks of one launch, in any order"},
    {SPREAD, "s", "r", 4, "tasks of one launch, in any order"},
    {SPREAD, "s", "x", 0, "tasks of one launch, in any order"},
/* the same, where a row is one block's */
#define REDUCED                                                                                    \
    "func forward(%x: f32[64, 300], %r: f32[64, 1]) -> (%z: f32[64, 1], %s: f32[64, 1]) {\n"       \
    "  %s = mul(%r, 3)\n  %z = reduce_sum(add(%x, %s))\n  return %z, %s\n}\n"
    {REDUCED, "s", "r", 0, NULL},
    {REDUCED, "s", "r", 4, "tasks of one launch, in any order"},
    {REDUCED, "z", "s", 0, NULL},
/* few rows: one launch of one task, but of many threads */
#define SMALL                                                                                      \
    "func forward(%x: f32[2, 8], %r: f32[2, 1]) -> (%z: f32[2, 8], %s: f32[2, 1]) {\n"             \
    "  %s = mul(%r, 3)\n  %z = add(%x, %s)\n  return %z, %s\n}\n"
    {SMALL, "z", "x", 0, NULL},
    {SMALL, "s", "r", 0, "threads that share a row"},
};

static f8_ref value_of(const f8_func *f, const char *name)
{
    for (size_t i = 0; i < f->n_in; i++)
        if (!strcmp(f->in[i].name, name))
            return f->in[i].ref;
    const f8_port *p = test_result(f, name);
    ck_assert_ptr_nonnull(p);
    return p->ref;
}

/* Nodes of two lists, each of which ascends, once each. */
static f8_ref *both(f8_arena *arena, const f8_ref *a, uint32_t n, const f8_ref *b, uint32_t m,
                    uint32_t *count)
{
    f8_ref *all = F8_NEW_ARRAY(arena, f8_ref, n + m);
    uint32_t i = 0, k = 0;
    ck_assert_ptr_nonnull(all);
    for (*count = 0; i < n || k < m; (*count)++) {
        const f8_ref x = i < n ? a[i] : UINT32_MAX, y = k < m ? b[k] : UINT32_MAX;
        all[*count] = x < y ? x : y;
        i += x <= y;
        k += y <= x;
    }
    return all;
}

/* One group of one phase, over the larger of the two domains. */
static void join_groups(f8_arena *arena, f8_lowered *p)
{
    ck_assert_uint_eq(p->n_groups, 2);
    f8_group *g = &p->group[0], *h = &p->group[1];
    ck_assert(g->kind == F8_GROUP_ROWS && h->kind == F8_GROUP_ROWS);
    ck_assert(g->n_phases == 1 && h->n_phases == 1);
    f8_phase *a = &g->phase[0], *b = &h->phase[0];
    const f8_phase *wide = a->rows * a->cols > b->rows * b->cols ? a : b;
    const int64_t rows = wide->rows, cols = wide->cols;
    a->node = both(arena, a->node, a->n_nodes, b->node, b->n_nodes, &a->n_nodes);
    a->out = both(arena, a->out, a->n_out, b->out, b->n_out, &a->n_out);
    a->rows = rows;
    a->cols = cols;
    g->in = both(arena, g->in, g->n_in, h->in, h->n_in, &g->n_in);
    g->out = both(arena, g->out, g->n_out, h->out, h->n_out, &g->n_out);
    p->n_groups = 1;
    p->order[0] = 0;
}

START_TEST(bad_groups_are_refused)
{
    test_unit t;
    char whole[1024], name[64], value[2][24];
    snprintf(whole, sizeof whole, "module m\n%s", groups[_i].text);
    test_unit_parse(&t, whole, "f32");
    t.unit.options.target = f8_target_by_name("sm_90a");
    f8_status (*const pass[])(f8_unit *) = {f8_pass_canonicalize, f8_pass_legalize, f8_pass_group,
                                            f8_pass_schedule, f8_pass_memory};
    for (size_t i = 0; i < sizeof pass / sizeof *pass; i++)
        test_pass(&t, pass[i]);
    const f8_func *f = test_func(&t, "forward");
    f8_lowered *p = f->lowered;
    join_groups(&t.arena, p);
    const f8_build_options o = {.target = t.unit.options.target, .text_only = true};
    f8_plan plan;
    ck_assert_msg(f8_build_plan(t.unit.module, &o, &t.arena, &plan, &t.diag) == F8_OK, "%s",
                  t.diag.text);
    ck_assert_uint_eq(plan.func[0].n_steps, 1);
    const f8_ref to = value_of(f, groups[_i].to), from = value_of(f, groups[_i].from);
    const int64_t stride = p->place[to].stride;
    p->place[to] = p->place[from];
    p->place[to].offset += groups[_i].shift;
    p->place[to].stride = stride;
    t.diag = (f8_diag){0};
    const f8_status s = f8_build_plan(t.unit.module, &o, &t.arena, &plan, &t.diag);
    if (!groups[_i].refused) {
        ck_assert_msg(s == F8_OK, "%s over %s: %s", groups[_i].to, groups[_i].from, t.diag.text);
    } else {
        ck_assert_msg(s == F8_ERR_INTERNAL, "%s over %s: %d %s", groups[_i].to, groups[_i].from, s,
                      t.diag.text);
        snprintf(name, sizeof name, "group '%s' of 'forward' writes ", p->group[0].name);
        snprintf(value[0], sizeof value[0], "%%%u", to);
        snprintf(value[1], sizeof value[1], "%%%u", from);
        ck_assert_msg(strstr(t.diag.text, name) && strstr(t.diag.text, value[0]) &&
                          strstr(t.diag.text, value[1]) && strstr(t.diag.text, groups[_i].refused),
                      "%s", t.diag.text);
    }
    test_unit_end(&t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_alias");
    TCase *t = tcase_create("plans");
    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, plans_share_nothing, 0, N_MODELS * N_RECIPES);
    tcase_add_test(t, the_walk_sees);
    tcase_add_test(t, the_walk_sees_tails);
    tcase_add_loop_test(t, bad_groups_are_refused, 0, sizeof groups / sizeof *groups);
    suite_add_tcase(s, t);
    return s;
}

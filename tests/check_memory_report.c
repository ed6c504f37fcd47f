/* Memory by category and by name: a case computed by hand, what must hold of every report, what
 * recomputation leaves, and the bytes in all: known without code, the same with it, and what runs
 * then really take. */
#include "tests/shared/compile.h"
#include "tests/shared/unit.h"

#include "codegen/build.h"
#include "frontend/fp8c.h"
#include "ir/program.h"
#include "passes/memory_report.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPT "frontend/models/gpt.f8"
#define LLAMA "frontend/models/llama_block.f8"

static const char hand[] = "module m\n"
                           "param w1: f32[32, 16] normal(1)\n"
                           "param w2: f32[16, 8] normal(1)\n"
                           "func forward(%x: f32[64, 32]) -> (%loss: f32[]) {\n"
                           "  %h = tanh(linear(%x, w1))\n"
                           "  %y = tanh(linear(%h, w2))\n"
                           "  %m = mean(mul(%y, %y))\n"
                           "  return reshape(mean(reshape(%m) {shape = [64]})) {shape = []}\n"
                           "}\n";

/* ---- by hand ---- */

/* The backward needs h for w2's gradient and for tanh's derivative, and x, an input. Most is in use
 * when dgrad * (1 - h^2) is made: h, dgrad and the product, f32[64, 16] each, 4096 bytes.
 * Parameters are (32 * 16 + 16 * 8) * 4 bytes, gradients as many; each function has x, 64 * 32 * 4
 * bytes, and a loss, 4 bytes in 64. */
START_TEST(by_hand)
{
    static const int64_t want[F8_MEMORY_CATEGORIES] = {
        [F8_MEMORY_PARAMETERS] = 2560,  [F8_MEMORY_GRADIENTS] = 2560,
        [F8_MEMORY_OPTIMIZER] = 64,     [F8_MEMORY_PORTS] = 2 * (8192 + 64),
        [F8_MEMORY_ACTIVATIONS] = 4096, [F8_MEMORY_WORKSPACE] = 8192};
    test_unit t;
    test_unit_parse(&t, hand, "f32");
    ck_assert_int_eq(f8_run_passes(&t.unit), F8_OK);
    const f8_func *f = test_func(&t, "micro_step");
    f8_memory_report r;
    ck_assert_int_eq(f8_memory_report_make(&t.unit, f, &t.arena, &r), F8_OK);
    for (int c = 0; c < F8_MEMORY_CATEGORIES; c++)
        ck_assert_msg(r.bytes[c] == want[c], "%s: %lld", f8_memory_category_name(c),
                      (long long)r.bytes[c]);
    ck_assert_int_eq(r.peak.bytes, 3 * 4096);
    ck_assert_int_eq(r.peak.activations, 4096);
    ck_assert_str_eq(r.at, "d.w1.fprop");
    ck_assert_uint_eq(r.n_tensors, 5 + 4 + 3);
    int seen = 0;
    for (uint32_t i = 0; i < r.n_tensors; i++) {
        const f8_memory_tensor *x = &r.tensor[i];
        if (!strcmp(x->name, "h")) {
            ck_assert_int_eq(x->category, F8_MEMORY_ACTIVATIONS);
            ck_assert_str_eq(x->made, "h");
            ck_assert_str_eq(x->read, "d.w1.fprop");
            ck_assert_int_eq(x->bytes, 4096);
            seen |= 1;
        } else if (!strcmp(x->name, "w2.dgrad")) {
            ck_assert_str_eq(x->made, "w2.dgrad");
            ck_assert_str_eq(x->read, "d.w1.fprop");
            seen |= 2;
        } else if (!strcmp(x->name, "d.w1.fprop")) {
            ck_assert_str_eq(x->read, "w1.wgrad");
            seen |= 4;
        } else if (!strcmp(x->name, "x of micro_step")) {
            ck_assert_int_eq(x->bytes, 8192);
            seen |= 8;
        }
    }
    ck_assert_int_eq(seen, 15);
    const f8_func *eval = test_func(&t, "eval"); /* no backward: nothing is kept for one */
    ck_assert_int_eq(f8_memory_report_make(&t.unit, eval, &t.arena, &r), F8_OK);
    ck_assert_int_eq(r.peak.activations, 0);
    ck_assert_int_eq(r.bytes[F8_MEMORY_WORKSPACE], 8192);
    test_unit_end(&t);
}
END_TEST

/* With no code known: variables, ports, constants; then the other functions' arena. */
START_TEST(besides_by_hand)
{
    test_unit t;
    f8_memory_beside b;
    test_unit_parse(&t, hand, "f32");
    ck_assert_int_eq(f8_run_passes(&t.unit), F8_OK);
    ck_assert_int_eq(f8_memory_fixed(&t.unit, &b), F8_OK);
    ck_assert_int_eq(b.rest, 2560 + 2560 + 64 + 2 * (8192 + 64));
    ck_assert_int_eq(b.extra, 0);
    ck_assert_int_eq(b.others, 8192);
    test_unit_end(&t);
}
END_TEST

/* ---- what holds of every report ---- */

/* Whether the loss was computed from `r`: the plain definition, from each user up. */
static bool *ancestors_of_loss(const f8_func *f, f8_arena *arena)
{
    bool *is = F8_NEW_ARRAY(arena, bool, f->graph->n_nodes);
    const f8_port *loss = test_result(f, "loss");
    is[loss->ref] = true;
    for (f8_ref r = loss->ref; r > 0; r--)
        for (uint32_t k = 0; is[r] && k < f8_at(f->graph, r)->n_in; k++)
            is[f8_at(f->graph, r)->in[k]] = true;
    return is;
}

static bool group_has(const f8_group *g, const f8_program *p, f8_ref root, bool out)
{
    for (uint32_t i = 0; i < (out ? g->n_out : g->n_in); i++)
        if (p->root[out ? g->out[i] : g->in[i]] == root)
            return true;
    return false;
}

/* A unit lives from a group that writes it to one that reads it (or a result, or is read by
 * nobody), within the arena. */
static void check_held(const f8_func *f, const f8_held *h)
{
    const f8_program *p = f->program;
    ck_assert(h->bytes > 0 && h->offset >= 0 && h->offset + h->bytes <= p->arena_bytes);
    ck_assert(h->first <= h->last && h->last <= p->n_groups);
    ck_assert_msg(group_has(&p->group[p->order[h->first]], p, h->root, true),
                  "%s does not write it", p->group[p->order[h->first]].name);
    if (h->last < p->n_groups && h->last > h->first)
        ck_assert(group_has(&p->group[p->order[h->last]], p, h->root, false) ||
                  group_has(&p->group[p->order[h->last]], p, h->root, true));
    for (uint32_t i = 0; i < p->n_groups; i++)
        if (i < h->first || i > h->last)
            ck_assert(!group_has(&p->group[p->order[i]], p, h->root, false) &&
                      !group_has(&p->group[p->order[i]], p, h->root, true));
}

/* No byte is in use for two units at once. */
static void check_apart(const f8_program *p)
{
    for (uint32_t i = 0; i < p->n_held; i++)
        for (uint32_t k = i + 1; k < p->n_held; k++) {
            const f8_held *a = &p->held[i], *b = &p->held[k];
            ck_assert(a->root < b->root);
            ck_assert(a->last < b->first || b->last < a->first ||
                      a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset);
        }
}

/* Whether the caller's inputs go into r. */
static bool depends_on_caller(const f8_func *f, f8_ref r)
{
    bool *marked = calloc(r + 1, sizeof *marked), any = false;
    marked[r] = true;
    for (f8_ref at = r; at > 0; at--)
        for (uint32_t k = 0; marked[at] && k < f8_at(f->graph, at)->n_in; k++)
            marked[f8_at(f->graph, at)->in[k]] = true;
    for (size_t i = 0; i < f->n_in; i++)
        any |= f->in[i].var < 0 && f->in[i].ref <= r && marked[f->in[i].ref];
    free(marked);
    return any;
}

/* What is kept was computed for the loss, or is a copy of such a value, and a later group reads it.
 */
static void check_kept(const f8_func *f, const f8_memory_category *category, f8_arena *arena)
{
    const f8_program *p = f->program;
    const bool *forward = ancestors_of_loss(f, arena);
    for (uint32_t i = 0; i < p->n_held; i++) {
        const bool kept =
            category[i] == F8_MEMORY_ACTIVATIONS || category[i] == F8_MEMORY_FP8_COPIES;
        bool fp8 = false, made_forward = false, again = false;
        for (f8_ref r = 1; r < f->graph->n_nodes; r++) {
            if (p->root[r] != p->held[i].root)
                continue;
            const f8_node *n = f8_at(f->graph, r);
            fp8 |= f8_dtype_is_fp8(n->type.dtype);
            again |= f8_is_again(f->graph, r);
            for (f8_ref at = r; at && !made_forward;
                 at = f8_at(f->graph, at)->n_in ? f8_at(f->graph, at)->in[0] : 0)
                made_forward |= forward[at];
        }
        if (category[i] == F8_MEMORY_WEIGHT_COPIES)
            ck_assert(!depends_on_caller(f, p->held[i].root));
        if (kept)
            ck_assert(depends_on_caller(f, p->held[i].root));
        if (kept)
            ck_assert(made_forward && p->held[i].last > p->held[i].first);
        if (category[i] == F8_MEMORY_ACTIVATIONS)
            ck_assert(!fp8);
        ck_assert(category[i] != F8_MEMORY_RECOMPUTED || again);
        ck_assert(!again || category[i] == F8_MEMORY_RECOMPUTED || kept);
    }
}

static void check_report(f8_unit *u, const f8_func *f, f8_arena *arena)
{
    const f8_program *p = f->program;
    f8_memory_report r;
    f8_memory_category *category;
    int64_t by[F8_MEMORY_CATEGORIES] = {0}, alive = 0, most = 0;
    ck_assert_int_eq(f8_memory_report_make(u, f, arena, &r), F8_OK);
    ck_assert_int_eq(f8_memory_categories(f, arena, u->diag, &category), F8_OK);
    for (uint32_t at = 0; at <= p->n_groups; at++) {
        int64_t sum = 0;
        for (uint32_t i = 0; i < p->n_held; i++)
            sum += p->held[i].first <= at && at <= p->held[i].last ? p->held[i].bytes : 0;
        most = sum > most ? sum : most;
    }
    ck_assert_int_eq(r.peak.bytes, most);
    ck_assert_int_eq(r.peak.bytes, p->lower_bound);
    for (uint32_t i = 0; i < r.n_tensors; i++) {
        const f8_memory_tensor *t = &r.tensor[i];
        by[t->category] += t->bytes;
        ck_assert(t->name && *t->name && t->made && t->read && t->bytes >= f8_type_bytes(&t->type));
        ck_assert(i == 0 || t->bytes <= r.tensor[i - 1].bytes);
        if (t->category < F8_MEMORY_ACTIVATIONS)
            continue;
        ck_assert(t->first <= r.peak.at && r.peak.at <= t->last);
        ck_assert_str_eq(t->made, p->group[p->order[t->first]].name);
        ck_assert(t->category != F8_MEMORY_RECOMPUTED || strstr(t->name, " (again)"));
    }
    for (int c = 0; c < F8_MEMORY_CATEGORIES; c++) {
        ck_assert_int_eq(by[c], r.bytes[c]);
        alive += c >= F8_MEMORY_ACTIVATIONS ? by[c] : 0;
    }
    ck_assert_int_eq(alive, r.peak.bytes);
    ck_assert_int_eq(r.peak.activations, by[F8_MEMORY_ACTIVATIONS] + by[F8_MEMORY_FP8_COPIES]);
    for (uint32_t i = 0; i < p->n_held; i++)
        check_held(f, &p->held[i]);
    check_apart(p);
    if (test_result(f, "loss") && !strcmp(f->name, "micro_step"))
        check_kept(f, category, arena);
    else
        ck_assert_int_eq(r.peak.activations, 0);
}

static const struct {
    const char *model, *dims, *recipe, *target;
    double share;
    const char *checkpoint;
    bool pair;
} every[] = {
    {GPT, "L=2", "bf16", "cpu", 0, NULL, false},
    {GPT, "L=2", "delayed", "cpu", 0, NULL, true},
    {GPT, "L=2", "mxfp8", "cpu", 0.5, NULL, false},
    {GPT, "L=3", "delayed", "sm_90a", 0, NULL, false},
    {GPT, "L=3", "bf16", "sm_90a", 0.6, NULL, false},
    {LLAMA, "", "block", "sm_90a", 0, NULL, false},
    {LLAMA, "", "mxfp8", "sm_100a", 0, NULL, false},
    {LLAMA, "L=3", "current", "cpu", 0, "x.*", false},
    {LLAMA, "L=3", "rowwise", "cpu", 0.7, NULL, false},
};

START_TEST(of_every_report)
{
    f8_compiled c;
    const bool ok =
        f8_compile_passes(&c, &(f8_compile_setup){.file = every[_i].model,
                                                  .dims = every[_i].dims,
                                                  .recipe = *f8_recipe_by_name(every[_i].recipe),
                                                  .pair = every[_i].pair,
                                                  .target = f8_target_by_name(every[_i].target),
                                                  .memory.share = every[_i].share,
                                                  .checkpoint = every[_i].checkpoint});
    ck_assert_msg(ok, "%s", c.diag.text);
    const bool fp8 = strcmp(every[_i].recipe, "bf16") != 0;
    for (size_t i = 0; i < c.unit.module->n_funcs; i++)
        check_report(&c.unit, &c.unit.module->func[i], &c.arena);
    const f8_func *f = f8_module_find_func(c.unit.module, "micro_step");
    f8_memory_category *category;
    bool has[F8_MEMORY_CATEGORIES] = {0};
    ck_assert_int_eq(f8_memory_categories(f, &c.arena, &c.diag, &category), F8_OK);
    for (uint32_t i = 0; i < f->program->n_held; i++)
        has[category[i]] = true;
    ck_assert(has[F8_MEMORY_ACTIVATIONS] && has[F8_MEMORY_WORKSPACE]);
    ck_assert(every[_i].checkpoint ? !has[F8_MEMORY_FP8_COPIES] : has[F8_MEMORY_FP8_COPIES] == fp8);
    /* codes of weights are there for dgrad; bf16's GEMMs round them on the way in, or read casts of
     * them */
    ck_assert(has[F8_MEMORY_WEIGHT_COPIES] || every[_i].checkpoint ||
              (!fp8 && !strcmp(every[_i].target, "cpu")));
    ck_assert_int_eq(has[F8_MEMORY_RECOMPUTED], every[_i].share > 0 || every[_i].checkpoint);
    f8_compiled_end(&c);
}
END_TEST

/* ---- in all: planned and measured ---- */

/* An allocator that remembers its blocks and fills them with one byte. */
enum { BLOCKS = 1 << 14 };
typedef struct poison {
    uint8_t byte;
    int fails_at; /* the allocation that fails, counted from 1; 0: none */
    int allocated;
    struct {
        uint8_t *p;
        size_t size;
    } block[BLOCKS];
    int n;
} poison;

static void *poison_alloc(void *user, size_t size, size_t align)
{
    poison *a = user;
    align = align < 64 ? 64 : align;
    if (++a->allocated == a->fails_at)
        return NULL;
    uint8_t *p = aligned_alloc(align, (size + align - 1) / align * align);
    if (!p || a->n == BLOCKS)
        return NULL;
    memset(p, a->byte, size);
    a->block[a->n].p = p;
    a->block[a->n++].size = size;
    return p;
}

static void poison_free(void *user, void *p, size_t size)
{
    poison *a = user;
    for (int i = 0; i < a->n; i++)
        if (a->block[i].p == p) {
            ck_assert_uint_eq(a->block[i].size, size);
            a->block[i] = a->block[--a->n];
            break;
        }
    free(p);
}

typedef struct opened {
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *program;
} opened;

static fp8c_status compile(opened *o, poison *a, const char *file, const fp8c_dim *dims,
                           size_t n_dims, fp8c_compile_options options)
{
    size_t size;
    char *text = f8_test_read(file, &size);
    const fp8c_context_options with = {.struct_size = sizeof with,
                                       .alloc = poison_alloc,
                                       .free = poison_free,
                                       .allocator_user = a};
    *o = (opened){0};
    ck_assert(text && fp8c_context_create(a ? &with : NULL, &o->ctx) == FP8C_OK);
    ck_assert_msg(fp8c_module_parse(o->ctx, text, size, file, dims, n_dims, &o->module) == FP8C_OK,
                  "%s", fp8c_context_message(o->ctx));
    free(text);
    options.struct_size = sizeof options;
    return fp8c_compile(o->module, &options, &o->program);
}

static void end(opened *o)
{
    fp8c_program_destroy(o->program);
    fp8c_module_destroy(o->module);
    fp8c_context_destroy(o->ctx);
}

#define COMPILES(o, a, file, ...)                                                                  \
    ck_assert_msg(compile(o, a, file, dims, 3, (fp8c_compile_options){__VA_ARGS__}) == FP8C_OK,    \
                  "%s", fp8c_context_message((o)->ctx))

static const fp8c_dim dims[] = {{"L", 2}, {"B", 2}, {"T", 32}};

/* The blocks of the arena's size; there is one, or the test is worth nothing. */
static const uint8_t *find_arena(const poison *a, int64_t bytes)
{
    const uint8_t *found = NULL;
    int n = 0;
    for (int i = 0; i < a->n; i++)
        if ((int64_t)a->block[i].size == bytes) {
            found = a->block[i].p;
            n++;
        }
    ck_assert_int_eq(n, 1);
    return found;
}

/* Bytes of the arena up to the last one that a run of all functions writes over `byte`. */
static int64_t touched(const opened *o, const uint8_t *arena, int64_t bytes, uint8_t byte)
{
    int64_t n = bytes;
    memset((void *)arena, byte, (size_t)bytes);
    for (int f = 0; fp8c_program_function_name(o->program, f); f++)
        ck_assert_int_eq(fp8c_program_run(o->program, f), FP8C_OK);
    while (n > 0 && arena[n - 1] == byte)
        n--;
    return (n + 63) / 64 * 64;
}

/* Every category of every function is the same in both, and they add up. */
static void same_categories(const opened *plan, const opened *real, int64_t planned_bytes)
{
    for (int f = 0; fp8c_program_function_name(real->program, f); f++) {
        fp8c_memory a, b;
        int64_t sum = 0;
        for (int i = 0; fp8c_program_memory(real->program, f, i, &a) == FP8C_OK; i++) {
            ck_assert_int_eq(fp8c_program_memory(plan->program, f, i, &b), FP8C_OK);
            ck_assert_str_eq(a.category, b.category);
            ck_assert_int_eq(a.bytes, b.bytes);
            ck_assert_int_ge(a.bytes, 0);
            sum += a.bytes;
        }
        ck_assert_int_eq(sum, planned_bytes);
    }
}

static const struct {
    const char *model;
    fp8c_compile_options options;
} runs[] = {
    {GPT, {.recipe = "bf16"}},
    {GPT, {.recipe = "delayed", .threads = 2}},
    {GPT, {.recipe = "delayed", .memory_share = 0.5}},
    {LLAMA, {.recipe = "block", .pair = 1}},
    {LLAMA, {.recipe = "mxfp8", .threads = 1, .checkpoint = "x.*"}},
    {LLAMA, {.recipe = "current", .inference = 1}},
};

/* Planned without code is planned with it, in all and by category; what was allocated is that many
 * bytes; and runs use the arena to its end: of its last 64 bytes, the unit of places, some are
 * written. What is written may be what was there, so there are two things that were there. */
START_TEST(planned_is_measured)
{
    static poison a;
    opened plan, real;
    fp8c_info planned, measured;
    fp8c_compile_options options = runs[_i].options;
    a = (poison){.byte = 0xff};
    ck_assert_msg(compile(&real, &a, runs[_i].model, dims, 3, options) == FP8C_OK, "%s",
                  fp8c_context_message(real.ctx));
    options.plan_only = 1;
    ck_assert_int_eq(compile(&plan, NULL, runs[_i].model, dims, 3, options), FP8C_OK);
    fp8c_program_info(plan.program, &planned);
    fp8c_program_info(real.program, &measured);
    ck_assert_int_eq(planned.planned_bytes, measured.planned_bytes);
    ck_assert_int_eq(measured.peak_bytes, measured.planned_bytes);
    ck_assert_int_eq(planned.arena_bytes, measured.arena_bytes);
    ck_assert_int_eq(planned.peak_bytes, 0); /* nothing was allocated */
    same_categories(&plan, &real, measured.planned_bytes);
    const uint8_t *arena = find_arena(&a, measured.arena_bytes);
    ck_assert_int_eq(fp8c_program_initialize(real.program, 1), FP8C_OK);
    const int64_t once = touched(&real, arena, measured.arena_bytes, 0xa5);
    const int64_t again = touched(&real, arena, measured.arena_bytes, 0x5a);
    ck_assert_int_eq(once > again ? once : again, measured.arena_bytes);
    end(&plan);
    end(&real);
    ck_assert_int_eq(a.n, 0);
}
END_TEST

/* The same on a GPU's targets; merged launches take room in the arena there. */
START_TEST(planned_for_gpus)
{
    static const char *const cases[][3] = {
        {GPT, "delayed", "sm_90a"}, {LLAMA, "bf16", "sm_89"}, {LLAMA, "mxfp8", "sm_100a"}};
    opened plan, text;
    fp8c_info a, b;
    fp8c_step s, t;
    COMPILES(&plan, NULL, cases[_i][0], .recipe = cases[_i][1], .target = cases[_i][2],
             .plan_only = 1);
    COMPILES(&text, NULL, cases[_i][0], .recipe = cases[_i][1], .target = cases[_i][2],
             .text_only = 1);
    fp8c_program_info(plan.program, &a);
    fp8c_program_info(text.program, &b);
    ck_assert_int_gt(a.planned_bytes, a.arena_bytes);
    ck_assert_int_eq(a.planned_bytes, b.planned_bytes);
    ck_assert_int_eq(a.arena_bytes, b.arena_bytes);
    for (int f = 0; fp8c_program_function_name(plan.program, f); f++) {
        int i = 0;
        for (; fp8c_program_step(plan.program, f, i, &s) == FP8C_OK; i++) {
            ck_assert_int_eq(fp8c_program_step(text.program, f, i, &t), FP8C_OK);
            ck_assert_str_eq(s.name, t.name);
            ck_assert_int_eq(s.bytes_read, t.bytes_read);
        }
        ck_assert_int_eq(fp8c_program_step(text.program, f, i, &t), FP8C_ERR_INPUT);
    }
    end(&plan);
    end(&text);
}
END_TEST

/* ---- budgets ---- */

/* Whatever the budget, it holds for all the program takes; and half way to what can't be it still
 * changes the arena. */
START_TEST(budgets_in_bytes)
{
    static const struct {
        const char *recipe, *target;
    } cases[] = {{"delayed", "cpu"}, {"bf16", "cpu"}, {"delayed", "sm_90a"}};
    const char *recipe = cases[_i].recipe, *target = cases[_i].target;
    opened o;
    fp8c_info whole, info;
    fp8c_peak peak;
    COMPILES(&o, NULL, GPT, .recipe = recipe, .target = target, .plan_only = 1);
    fp8c_program_info(o.program, &whole);
    ck_assert_int_eq(
        fp8c_program_peak(o.program, fp8c_program_function(o.program, "micro_step"), &peak),
        FP8C_OK);
    end(&o);
    for (int quarter = 4; quarter >= 2; quarter--) {
        const int64_t budget = whole.planned_bytes - peak.activation_bytes * (4 - quarter) / 4;
        const bool real = quarter == 2 && !strcmp(target, "cpu");
        fp8c_remat remat = {.struct_size = sizeof remat};
        COMPILES(&o, NULL, GPT, .recipe = recipe, .target = target, .memory_bytes = budget,
                 .plan_only = !real);
        fp8c_program_info(o.program, &info);
        fp8c_program_remat(o.program, &remat);
        ck_assert_int_le(info.planned_bytes, budget);
        ck_assert(!real || info.peak_bytes == info.planned_bytes);
        ck_assert(quarter == 4 ? remat.recomputed == 0 : remat.recomputed > 0);
        ck_assert_int_eq(remat.arena_before, peak.arena_bytes);
        ck_assert_int_le(remat.arena_after, remat.arena_budget);
        end(&o);
    }
}
END_TEST

static int64_t arena_of_step(f8_compiled *c, bool unmerged, int64_t most)
{
    const f8_build_options options = {.target = f8_target_by_name("sm_90a"),
                                      .no_code = true,
                                      .unmerged = unmerged,
                                      .arena_most = most};
    f8_plan plan;
    ck_assert_msg(f8_build_plan(c->unit.module, &options, &c->arena, &plan, &c->diag) == F8_OK,
                  "%s", c->diag.text);
    for (uint32_t i = 0; i < plan.n_funcs; i++)
        if (!strcmp(plan.func[i].name, "micro_step"))
            return plan.func[i].arena_bytes;
    ck_abort_msg("no micro_step");
}

/* Launches are merged for less than they would like where a budget leaves less, down to none. */
START_TEST(merging_within_a_budget)
{
    f8_compiled c;
    ck_assert(f8_compile_passes(&c, &(f8_compile_setup){.file = GPT,
                                                        .dims = "L=4",
                                                        .recipe = *f8_recipe_by_name("delayed"),
                                                        .target = f8_target_by_name("sm_90a")}));
    const int64_t least = arena_of_step(&c, true, 0), most = arena_of_step(&c, false, 0);
    ck_assert_int_gt(most, least);
    for (int i = 0; i <= 4; i++) {
        const int64_t limit = least + (most - least) * i / 4,
                      arena = arena_of_step(&c, false, limit);
        ck_assert_int_le(arena, limit);
        ck_assert(i < 4 || arena > least);
    }
    f8_compiled_end(&c);
}
END_TEST

START_TEST(budgets_that_cannot_be_met)
{
    static const fp8c_compile_options bad[] = {{.memory_bytes = 1},
                                               {.memory_bytes = 1 << 20, .plan_only = 1},
                                               {.memory_share = 1e-6, .plan_only = 1},
                                               {.memory_bytes = -1},
                                               {.memory_share = 1},
                                               {.memory_share = -0.5},
                                               {.memory_bytes = 1, .memory_share = 0.5}};
    static const char *const says[] = {
        "least",         "least", "least", "-1 bytes", "not between 0 and 1", "not between 0 and 1",
        "one of the two"};
    opened o;
    ck_assert_int_ne(compile(&o, NULL, GPT, dims, 3, bad[_i]), FP8C_OK);
    ck_assert_msg(strstr(fp8c_context_message(o.ctx), says[_i]), "%s", fp8c_context_message(o.ctx));
    ck_assert_ptr_null(o.program);
    end(&o);
}
END_TEST

/* ---- a plan alone ---- */

static bool is_mapped(const char *library)
{
    char line[1024];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f))
        found |= strstr(line, library) != NULL;
    if (f)
        fclose(f);
    return found;
}

START_TEST(a_plan_cannot_run)
{
    static const char *const needless[] = {"libLLVM", "libcuda", "libnvrtc", "libcublas",
                                           "libcudnn"};
    opened o;
    COMPILES(&o, NULL, GPT, .recipe = "delayed", .target = _i ? "sm_90a" : "cpu", .plan_only = 1);
    const int step = fp8c_program_function(o.program, "micro_step");
    fp8c_step s;
    int steps = 0;
    char want[96];
    snprintf(want, sizeof want,
             "the program was compiled with plan_only: it has no memory and can't run");
    ck_assert_int_eq(fp8c_program_initialize(o.program, 1), FP8C_ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(fp8c_context_message(o.ctx), want));
    ck_assert_int_eq(fp8c_program_run(o.program, step), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_wait(o.program), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_bind(o.program, step, FP8C_INPUT, 0, NULL), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_read(o.program, 0, want), FP8C_ERR_INPUT);
    ck_assert_ptr_null(fp8c_program_buffer(o.program, step, FP8C_INPUT, 0));
    ck_assert_ptr_null(fp8c_program_algorithm(o.program, step, 1));
    while (fp8c_program_step(o.program, step, steps, &s) == FP8C_OK) {
        ck_assert(s.bytes_read + s.bytes_written > 0);
        steps++;
    }
    ck_assert_int_gt(steps, 50);
    fp8c_peak peak;
    fp8c_tensor t;
    fp8c_memory m;
    ck_assert_int_eq(fp8c_program_peak(o.program, step, &peak), FP8C_OK);
    ck_assert(peak.seconds > 0 && peak.activation_bytes > 0 && peak.position < peak.positions &&
              *peak.step);
    ck_assert_int_eq(fp8c_program_peak(o.program, 99, &peak), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_peak(o.program, -1, &peak), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_tensor(o.program, step, -1, &t), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_tensor(o.program, step, 1 << 20, &t), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_memory(o.program, step, 99, &m), FP8C_ERR_INPUT);
    for (size_t i = 0; i < sizeof needless / sizeof *needless; i++)
        ck_assert_msg(!is_mapped(needless[i]), "%s was loaded", needless[i]);
    end(&o);
}
END_TEST

/* Memory that runs out while planning within a budget, at any allocation: a message, and nothing is
 * left behind. Without a budget this model takes about 2.63 MiB, and 2.35 at the least. */
START_TEST(memory_runs_out)
{
    static poison a;
    const fp8c_compile_options options = {.struct_size = sizeof options,
                                          .recipe = "delayed",
                                          .plan_only = 1,
                                          .memory_bytes = 2650000};
    opened o;
    a = (poison){0};
    ck_assert_msg(compile(&o, &a, LLAMA, dims, 3, options) == FP8C_OK, "%s",
                  fp8c_context_message(o.ctx));
    end(&o);
    const int all = a.allocated;
    ck_assert_int_gt(all, 50);
    size_t size;
    char *text = f8_test_read(LLAMA, &size);
    ck_assert_ptr_nonnull(text);
    for (int at = 1; at <= all; at += 1 + all / 20) {
        const fp8c_context_options with = {.struct_size = sizeof with,
                                           .alloc = poison_alloc,
                                           .free = poison_free,
                                           .allocator_user = &a};
        a = (poison){.fails_at = at};
        o = (opened){0};
        fp8c_status status = fp8c_context_create(&with, &o.ctx);
        if (status == FP8C_OK)
            status = fp8c_module_parse(o.ctx, text, size, LLAMA, dims, 3, &o.module);
        if (status == FP8C_OK)
            status = fp8c_compile(o.module, &options, &o.program);
        ck_assert_msg(status == FP8C_ERR_MEMORY, "allocation %d of %d: status %d", at, all, status);
        ck_assert(!o.ctx || *fp8c_context_message(o.ctx));
        end(&o);
        ck_assert_int_eq(a.n, 0);
    }
    free(text);
}
END_TEST

/* The reference target interprets: it has no arena to report on. */
START_TEST(reference_has_none)
{
    opened o;
    fp8c_peak peak;
    fp8c_tensor t;
    COMPILES(&o, NULL, LLAMA, .target = "reference", .plan_only = _i);
    ck_assert_int_eq(fp8c_program_peak(o.program, 0, &peak), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_tensor(o.program, 0, 0, &t), FP8C_ERR_INPUT);
    end(&o);
    const fp8c_compile_options budget = {.target = "reference", .memory_share = 0.5};
    ck_assert_int_eq(compile(&o, NULL, LLAMA, dims, 3, budget), FP8C_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(fp8c_context_message(o.ctx), "reference target"));
    end(&o);
}
END_TEST

#define LENGTH(a) ((int)(sizeof(a) / sizeof *(a)))

int main(void)
{
    Suite *s = suite_create("memory_report");
    TCase *report = tcase_create("reports"), *bytes = tcase_create("bytes"),
          *plan = tcase_create("plans");
    tcase_set_timeout(report, 600);
    tcase_set_timeout(bytes, 600);
    tcase_set_timeout(plan, 600);
    tcase_add_test(report, by_hand);
    tcase_add_test(report, besides_by_hand);
    tcase_add_loop_test(report, of_every_report, 0, LENGTH(every));
    tcase_add_loop_test(bytes, planned_is_measured, 0, LENGTH(runs));
    tcase_add_loop_test(bytes, planned_for_gpus, 0, 3);
    tcase_add_loop_test(plan, budgets_in_bytes, 0, 3);
    tcase_add_test(plan, merging_within_a_budget);
    tcase_add_loop_test(plan, budgets_that_cannot_be_met, 0, 7);
    tcase_add_loop_test(plan, a_plan_cannot_run, 0, 2);
    tcase_add_test(plan, memory_runs_out);
    tcase_add_loop_test(plan, reference_has_none, 0, 2);
    suite_add_tcase(s, report);
    suite_add_tcase(s, bytes);
    suite_add_tcase(s, plan);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

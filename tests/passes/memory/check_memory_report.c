/* Memory by category and by name: one case computed by hand, and what must hold of every report. */
#include "tests/shared/passes/compile.h"
#include "tests/shared/suite.h"
#include "tests/shared/passes/unit.h"

#include "ir/lowered.h"
#include "passes/memory/report.h"

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
    f8_memory_outside b;
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

static bool group_has(const f8_group *g, const f8_lowered *p, f8_ref root, bool out)
{
    for (uint32_t i = 0; i < (out ? g->n_out : g->n_in); i++)
        if (p->root[out ? g->out[i] : g->in[i]] == root)
            return true;
    return false;
}

/* A unit lives from a group that writes it to one that reads it (or a result, or is read by
 * nobody), within the arena. */
static void check_held(const f8_func *f, const f8_allocation *h)
{
    const f8_lowered *p = f->lowered;
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
static void check_apart(const f8_lowered *p)
{
    for (uint32_t i = 0; i < p->n_allocations; i++)
        for (uint32_t k = i + 1; k < p->n_allocations; k++) {
            const f8_allocation *a = &p->allocation[i], *b = &p->allocation[k];
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
    const f8_lowered *p = f->lowered;
    const bool *forward = ancestors_of_loss(f, arena);
    for (uint32_t i = 0; i < p->n_allocations; i++) {
        const bool kept =
            category[i] == F8_MEMORY_ACTIVATIONS || category[i] == F8_MEMORY_FP8_COPIES;
        bool fp8 = false, made_forward = false, again = false;
        for (f8_ref r = 1; r < f->graph->n_nodes; r++) {
            if (p->root[r] != p->allocation[i].root)
                continue;
            const f8_node *n = f8_at(f->graph, r);
            fp8 |= f8_dtype_is_fp8(n->type.dtype);
            again |= f8_is_recomputed(f->graph, r);
            for (f8_ref at = r; at && !made_forward;
                 at = f8_at(f->graph, at)->n_in ? f8_at(f->graph, at)->in[0] : 0)
                made_forward |= forward[at];
        }
        if (category[i] == F8_MEMORY_WEIGHT_COPIES)
            ck_assert(!depends_on_caller(f, p->allocation[i].root));
        if (kept)
            ck_assert(depends_on_caller(f, p->allocation[i].root));
        if (kept)
            ck_assert(made_forward && p->allocation[i].last > p->allocation[i].first);
        if (category[i] == F8_MEMORY_ACTIVATIONS)
            ck_assert(!fp8);
        ck_assert(category[i] != F8_MEMORY_RECOMPUTED || again);
        ck_assert(!again || category[i] == F8_MEMORY_RECOMPUTED || kept);
    }
}

static void check_report(f8_unit *u, const f8_func *f, f8_arena *arena)
{
    const f8_lowered *p = f->lowered;
    f8_memory_report r;
    f8_memory_category *category;
    int64_t by[F8_MEMORY_CATEGORIES] = {0}, alive = 0, most = 0;
    ck_assert_int_eq(f8_memory_report_make(u, f, arena, &r), F8_OK);
    ck_assert_int_eq(f8_memory_categories(f, arena, u->diag, &category), F8_OK);
    for (uint32_t at = 0; at <= p->n_groups; at++) {
        int64_t sum = 0;
        for (uint32_t i = 0; i < p->n_allocations; i++)
            sum += p->allocation[i].first <= at && at <= p->allocation[i].last
                       ? p->allocation[i].bytes
                       : 0;
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
        ck_assert(t->category != F8_MEMORY_RECOMPUTED || strstr(t->name, " (recomputed)"));
    }
    for (int c = 0; c < F8_MEMORY_CATEGORIES; c++) {
        ck_assert_int_eq(by[c], r.bytes[c]);
        alive += c >= F8_MEMORY_ACTIVATIONS ? by[c] : 0;
    }
    ck_assert_int_eq(alive, r.peak.bytes);
    ck_assert_int_eq(r.peak.activations, by[F8_MEMORY_ACTIVATIONS] + by[F8_MEMORY_FP8_COPIES]);
    for (uint32_t i = 0; i < p->n_allocations; i++)
        check_held(f, &p->allocation[i]);
    check_apart(p);
    if (test_result(f, "loss") && f8_is_micro_step(f->name))
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
    for (uint32_t i = 0; i < f->lowered->n_allocations; i++)
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

#define LENGTH(a) ((int)(sizeof(a) / sizeof *(a)))

Suite *f8_suite(void)
{
    Suite *s = suite_create("memory_report");
    TCase *t = tcase_create("reports");
    tcase_set_timeout(t, 600);
    tcase_add_test(t, by_hand);
    tcase_add_test(t, besides_by_hand);
    tcase_add_loop_test(t, of_every_report, 0, LENGTH(every));
    suite_add_tcase(s, t);
    return s;
}

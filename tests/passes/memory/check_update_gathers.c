/* `update` gathers new parameters at stages 1 and 2 of ZeRO. These tests count its collectives.
 * They look at when each starts, what runs beside it, and what all hold in memory. Times are
 * estimates of the cost model: nothing here depends on a clock. */
#include "passes/unit/cost.h"
#include "passes/unit/pass.h"
#include "tests/shared/passes/compile.h"
#include "tests/shared/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_GROUP = UINT32_MAX, MOST = 4, MOST_SHOWN = 512 };

/* A compiled update. */
typedef struct subject {
    f8_compiled c;
    const f8_func *f;
    const f8_lowered *p;
    uint32_t *maker;                /* by ref: the group that writes it, or NO_GROUP */
    uint32_t *turn;                 /* by group */
    uint32_t gather[MOST_SHOWN], n; /* collectives that exchange bytes, in their order */
} subject;

typedef struct sort {
    const char *file, *dims, *recipe, *target;
    int ranks, buckets; /* of parameters */
    int under_way[2];   /* at once, at stages 1 and 2: two where other functions have the memory */
    const char *drop;   /* functions that are not there, to save time or room */
    bool fills;         /* codes of what was received are computed while the next bucket travels */
} sort;

static const char gpt[] = "frontend/models/gpt.f8", gpt2[] = "frontend/models/gpt2_124m.f8",
                  mpt[] = "frontend/models/mpt_1b.f8";
static const char alone[] = "eval micro_step micro_step.first", first[] = "micro_step.first";
static const sort sorts[] = {
    {mpt, NULL, "delayed", "sm_90a", 8, 3, {1, 2}, first, true},
    {mpt, NULL, "bf16", "sm_90a", 2, 3, {1, 1}, alone, false},
    {gpt2, "B=1 T=256", "delayed", "sm_90a", 8, 3, {1, 1}, alone, false},
    {gpt2, "B=4 T=256", "f32", "cpu", 3, 3, {2, 2}, NULL, false},
    {gpt2, "B=1 T=256", "block", "sm_90a", 64, 3, {1, 1}, alone, false},
    {gpt, NULL, "mxfp8", "cpu", 4, 3, {2, 2}, first, false},
    {gpt, "L=1 C=32 V=64", "delayed", "cpu", 2, 1, {1, 1}, NULL, false}, /* too little for two
                                                                            buckets */
};
enum { SORTS = sizeof sorts / sizeof *sorts };

static bool travels(const subject *s, uint32_t i)
{
    const f8_group *g = &s->p->group[i];
    return g->kind == F8_GROUP_COLLECTIVE && f8_at(s->f->graph, g->out[0])->op != F8_OP_ALL_SLICE;
}

static void open_subject(subject *s, const sort *k, int zero)
{
    const f8_compile_setup setup = {.file = k->file,
                                    .dims = k->dims,
                                    .recipe = *f8_recipe_by_name(k->recipe),
                                    .target = f8_target_by_name(k->target),
                                    .drop = k->drop,
                                    .ranks = k->ranks,
                                    .zero = zero ? zero : -1};
    *s = (subject){0};
    ck_assert_msg(f8_compile_passes(&s->c, &setup), "%s", s->c.diag.text);
    for (size_t i = 0; i < s->c.unit.module->n_funcs; i++)
        if (!strcmp(s->c.unit.module->func[i].name, "update"))
            s->f = &s->c.unit.module->func[i];
    s->p = s->f->lowered;
    s->maker = malloc(s->f->graph->n_nodes * sizeof *s->maker);
    s->turn = malloc(s->p->n_groups * sizeof *s->turn);
    for (f8_ref r = 0; r < s->f->graph->n_nodes; r++)
        s->maker[r] = NO_GROUP;
    for (uint32_t at = 0; at < s->p->n_groups; at++) {
        const uint32_t i = s->p->order[at];
        s->turn[i] = at;
        for (uint32_t out = 0; out < s->p->group[i].n_out; out++)
            s->maker[s->p->group[i].out[out]] = i;
        if (travels(s, i) && s->n < MOST_SHOWN)
            s->gather[s->n++] = i;
    }
}

static void close_subject(subject *s)
{
    free(s->maker);
    free(s->turn);
    f8_compiled_end(&s->c);
}

/* Through views, to the group that writes the bytes. */
static uint32_t maker_of(const subject *s, f8_ref r)
{
    while (s->maker[r] == NO_GROUP) {
        const f8_node *n = f8_at(s->f->graph, r);
        if (n->n_in == 0 || (n->op != F8_OP_RESHAPE && n->op != F8_OP_SLICE))
            return NO_GROUP;
        r = n->in[0];
    }
    return s->maker[r];
}

static int64_t received(const subject *s, uint32_t i)
{
    return f8_type_bytes(f8_type_of(s->f->graph, s->p->group[i].out[0]));
}

static double seconds(const subject *s, uint32_t i)
{
    return travels(s, i) ? 0 : f8_cost_group(s->f, f8_unit_target(&s->c.unit), i);
}

/* Returns the turn of the first group that reads what i makes, and gives the turn of the last one.
 * If no group does, both are the end of the function. */
static uint32_t first_use(const subject *s, uint32_t i, uint32_t *last)
{
    uint32_t first = s->p->n_groups;
    *last = 0;
    for (uint32_t turn = 0; turn < s->p->n_groups; turn++) {
        const f8_group *g = &s->p->group[s->p->order[turn]];
        for (uint32_t k = 0; k < g->n_in; k++)
            if (maker_of(s, g->in[k]) == i) {
                first = turn < first ? turn : first;
                *last = turn;
            }
    }
    *last = *last ? *last : s->p->n_groups;
    return first;
}

/* The turn of the last kernel that computes a part of what i sends: the groups behind it may put
 * the parts together. */
static uint32_t complete(const subject *s, uint32_t i)
{
    uint32_t last = 0;
    for (uint32_t k = 0; k < s->p->group[i].n_in; k++) {
        const uint32_t from = maker_of(s, s->p->group[i].in[k]);
        const bool joins =
            from != NO_GROUP && f8_at(s->f->graph, s->p->group[from].out[0])->op == F8_OP_CONCAT;
        const uint32_t turn = from == NO_GROUP ? 0 : joins ? complete(s, from) : s->turn[from];
        last = turn > last ? turn : last;
    }
    return last;
}

/* Each bucket starts as soon as its last shard is there, or, if there is no room for another one,
 * as soon as what the one before brought is in its place. The next one's shards are computed before
 * the run waits for it. */
static void check_soon(const subject *s, const sort *k, int zero)
{
    const int under_way = k->under_way[zero - 1];
    for (uint32_t b = 1; b < s->n; b++) {
        const uint32_t i = s->gather[b];
        uint32_t ready = complete(s, i), last;
        if (b > (uint32_t)under_way) {
            first_use(s, s->gather[b - (uint32_t)under_way], &last);
            ready = last > ready ? last : ready;
        }
        ck_assert_uint_lt(ready, s->turn[i]);
        double late = 0;
        for (uint32_t turn = ready + 1; turn < s->turn[i]; turn++)
            late += seconds(s, s->p->order[turn]);
        ck_assert_msg(late == 0, "%s, stage %d: '%s' starts %.1f us late", k->file, zero,
                      s->p->group[i].name, 1e6 * late);
        if (b + 1 < s->n && !k->fills)
            ck_assert_msg(first_use(s, i, &last) > complete(s, s->gather[b + 1]),
                          "%s, stage %d: the run waits for '%s' with work left", k->file, zero,
                          s->p->group[i].name);
    }
}

/* The estimated seconds over those that are computed, if all that travels takes half of these. The
 * last bucket is not hidden; where one is under way at a time, up to one more. Without overlap it
 * would be 1.5. */
static void check_hidden(const subject *s, const sort *k, int zero)
{
    double *end = calloc(s->p->n_groups, sizeof *end), now = 0, engine = 0, computed = 0;
    int64_t all = 0;
    for (uint32_t i = 0; i < s->p->n_groups; i++) {
        computed += seconds(s, i);
        all += travels(s, i) ? received(s, i) : 0;
    }
    for (uint32_t turn = 0; turn < s->p->n_groups; turn++) {
        const uint32_t i = s->p->order[turn];
        for (uint32_t in = 0; in < s->p->group[i].n_in; in++) {
            const uint32_t from = maker_of(s, s->p->group[i].in[in]);
            now = from != NO_GROUP && end[from] > now ? end[from] : now;
        }
        if (travels(s, i))
            end[i] = engine =
                (engine > now ? engine : now) + computed / 2 * (double)received(s, i) / (double)all;
        else
            now += seconds(s, i);
    }
    free(end);
    const double last = (double)received(s, s->gather[s->n - 1]) / (double)all / 2,
                 exposed = k->under_way[zero - 1] == 2 ? last : 2 * last;
    ck_assert_msg(now / computed <= 1.02 + exposed,
                  "%s, stage %d: %.3f times compute; %.3f can't be hidden", k->file, zero,
                  now / computed, exposed);
}

/* The arena has as many buckets as are under way, and what is sent of all. At stage 1 it also has
 * the rows of gradients that the norm has read and the update reads again. */
static void check_bounded(const subject *s, const sort *k, int zero)
{
    enum { SMALL = 1 << 20 };
    int64_t bucket = 0, all = 0;
    for (uint32_t b = 0; b < s->n; b++) {
        bucket = received(s, s->gather[b]) > bucket ? received(s, s->gather[b]) : bucket;
        all += received(s, s->gather[b]);
    }
    const int64_t most =
        k->under_way[zero - 1] * bucket + (zero == 1 ? 2 : 1) * all / k->ranks + SMALL;
    ck_assert_msg(s->p->arena_bytes <= most, "%s, stage %d: %.1f MiB; a bucket has %.1f", k->file,
                  zero, (double)s->p->arena_bytes / (1 << 20), (double)bucket / (1 << 20));
}

static void check_few(const subject *s, const sort *k, int zero)
{
    ck_assert_msg(s->n == (uint32_t)k->buckets + 1, "%s, stage %d: %u collectives", k->file, zero,
                  s->n);
    ck_assert_uint_le(s->n, MOST);
    for (uint32_t b = 0; b < s->n; b++)
        ck_assert_int_eq(f8_at(s->f->graph, s->p->group[s->gather[b]].out[0])->op,
                         F8_OP_ALL_GATHER);
    printf("%s, stage %d, %d ranks: %u all_gathers in update, %.1f MiB of arena\n", k->file, zero,
           k->ranks, s->n, (double)s->p->arena_bytes / (1 << 20));
}

START_TEST(plans)
{
    const sort *k = &sorts[_i];
    for (int zero = 1; zero <= 2; zero++) {
        subject s;
        open_subject(&s, k, zero);
        check_few(&s, k, zero);
        check_soon(&s, k, zero);
        check_hidden(&s, k, zero);
        check_bounded(&s, k, zero);
        close_subject(&s);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("gathers of update");
    TCase *c = tcase_create("plans");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, plans, 0, SORTS);
    suite_add_tcase(suite, c);
    return suite;
}

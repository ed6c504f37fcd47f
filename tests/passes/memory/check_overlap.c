/* Collectives beside other groups: when they start, when the run waits for them, what they hold in
 * memory, and how much of their time a step hides by the estimates of the cost model. Nothing here
 * depends on a clock. */
#include "passes/unit/cost.h"
#include "passes/unit/pass.h"
#include "tests/shared/passes/compile.h"
#include "tests/shared/suite.h"

#include <stdlib.h>
#include <string.h>

/* A compiled micro_step. */
typedef struct subject {
    f8_compiled c;
    const f8_func *f;
    const f8_lowered *p;
    const f8_target *target;
    uint32_t *maker; /* by ref: the group that writes it, or F8_NO_GROUP */
} subject;

enum { NO_GROUP = UINT32_MAX };

typedef struct sort {
    const char *file, *dims, *recipe;
    int ranks;
} sort;

static void open_subject(subject *s, const sort *k, int zero)
{
    const f8_compile_setup setup = {.file = k->file,
                                    .dims = k->dims,
                                    .recipe = *f8_recipe_by_name(k->recipe),
                                    .ranks = k->ranks,
                                    .zero = zero ? zero : -1};
    *s = (subject){0};
    ck_assert_msg(f8_compile_passes(&s->c, &setup), "%s", s->c.diag.text);
    for (size_t i = 0; i < s->c.unit.module->n_funcs; i++)
        if (!strcmp(s->c.unit.module->func[i].name, "micro_step"))
            s->f = &s->c.unit.module->func[i];
    s->p = s->f->lowered;
    s->target = f8_unit_target(&s->c.unit);
    s->maker = malloc(s->f->graph->n_nodes * sizeof *s->maker);
    for (f8_ref r = 0; r < s->f->graph->n_nodes; r++)
        s->maker[r] = NO_GROUP;
    for (uint32_t i = 0; i < s->p->n_groups; i++)
        for (uint32_t out = 0; out < s->p->group[i].n_out; out++)
            s->maker[s->p->group[i].out[out]] = i;
}

static void close_subject(subject *s)
{
    free(s->maker);
    f8_compiled_end(&s->c);
}

static bool travels(const subject *s, uint32_t i)
{
    const f8_group *g = &s->p->group[i];
    return g->kind == F8_GROUP_COLLECTIVE && f8_at(s->f->graph, g->out[0])->op != F8_OP_ALL_SLICE;
}

/* Through views, to the group that writes the bytes. */
static uint32_t maker_of(const subject *s, f8_ref r)
{
    while (s->maker[r] == NO_GROUP) {
        const f8_node *n = f8_at(s->f->graph, r);
        if (n->n_in == 0 ||
            (n->op != F8_OP_RESHAPE && n->op != F8_OP_SLICE && n->op != F8_OP_PROJECT))
            return NO_GROUP;
        r = n->in[0];
    }
    return s->maker[r];
}

static int64_t received(const subject *s, uint32_t i)
{
    return f8_type_bytes(f8_type_of(s->f->graph, s->p->group[i].out[0]));
}

/* Whether it sends gradients. Else it gathers what the ranks share, or sums a loss. */
static bool of_gradients(const subject *s, uint32_t i)
{
    return travels(s, i) && !strncmp(s->p->group[i].name, "grad.", 5);
}

static const char gpt[] = "frontend/models/gpt.f8", gpt2[] = "frontend/models/gpt2_124m.f8",
                  mpt[] = "frontend/models/mpt_125m.f8";
static const sort sorts[] = {
    {gpt, "B=4", "delayed", 2},
    {gpt, NULL, "bf16", 2},
    {gpt, NULL, "mxfp8", 4},
    {gpt2, "B=1", "delayed", 2},
    {gpt2, "B=1", "bf16", 4},
    {gpt2, "B=1 T=256 V=1024", "delayed", 2},
    {gpt2, "B=1 T=256 V=1024", "f32", 8},
    {mpt, "B=1", "delayed", 2},
};
enum { SORTS = sizeof sorts / sizeof *sorts, STAGES = 4 };

/* ---- time ---- */

/* The estimated seconds of a step over those that it computes, if all that travels takes half of
 * these. The engine moves one collective after another. *exposed: what can't be hidden: the last
 * bucket, which is there when nothing is left to compute, and what the first GEMM waits for. */
static double simulate(const subject *s, double *exposed)
{
    double *end = calloc(s->p->n_groups, sizeof *end), now = 0, engine = 0, computed = 0;
    int64_t all = 0, alone = 0;
    const char *name = "";
    int gemms = 0;
    for (uint32_t turn = 0; turn < s->p->n_groups; turn++) {
        const uint32_t i = s->p->order[turn];
        if (!travels(s, i))
            computed += f8_cost_group(s->f, s->target, i);
        else if (of_gradients(s, i))
            name = s->p->group[i].name;
        all += travels(s, i) ? received(s, i) : 0;
    }
    for (uint32_t i = 0; i < s->p->n_groups; i++)
        alone += travels(s, i) && !strcmp(s->p->group[i].name, name) ? received(s, i) : 0;
    for (uint32_t turn = 0; turn < s->p->n_groups; turn++) {
        const uint32_t i = s->p->order[turn];
        for (uint32_t k = 0; k < s->p->group[i].n_in; k++) {
            const uint32_t from = maker_of(s, s->p->group[i].in[k]);
            if (from == NO_GROUP || end[from] <= now)
                continue;
            alone += gemms ? 0 : received(s, from);
            now = end[from];
        }
        gemms += s->p->group[i].kind == F8_GROUP_GEMM;
        if (travels(s, i))
            end[i] = engine =
                (engine > now ? engine : now) + computed / 2 * (double)received(s, i) / (double)all;
        else
            now += f8_cost_group(s->f, s->target, i);
    }
    free(end);
    *exposed = (double)alone / (double)all / 2;
    return (engine > now ? engine : now) / computed;
}

/* Without overlap it would be 1.5. */
static void check_hidden(const subject *s, const sort *k, int zero)
{
    double exposed;
    const double took = simulate(s, &exposed);
    ck_assert_msg(took <= 1.11 + exposed, "%s, stage %d: %.3f times compute; %.3f can't be hidden",
                  k->file, zero, took, exposed);
}

/* ---- memory ---- */

/* What travels in buckets and gathers. */
typedef struct sizes {
    int64_t bucket, last, largest, gathered, n;
} sizes;

static sizes sizes_of(const subject *s)
{
    sizes z = {0};
    for (uint32_t turn = 0; turn < s->p->n_groups; turn++) {
        const uint32_t i = s->p->order[turn];
        const int64_t bytes = travels(s, i) ? received(s, i) : 0;
        if (of_gradients(s, i)) {
            z.last = bytes;
            z.bucket = bytes > z.bucket ? bytes : z.bucket;
        } else if (bytes > 4 * F8_MAX_RANKS) { /* not a loss */
            z.largest = bytes > z.largest ? bytes : z.largest;
            z.gathered += bytes;
            z.n++;
        }
    }
    return z;
}

/* A layer has four linears; where they are small, the scheduler takes some at once. */
static int64_t layer_of(const sizes *z)
{
    enum { LINEARS = 4, SMALL = 1 << 18 };
    const int64_t mean = z->n ? LINEARS * z->gathered / z->n : 0,
                  layer = mean > z->largest ? mean : z->largest;
    return z->n && layer < SMALL ? SMALL : layer;
}

/* Beside what one rank needs: two buckets, one exchange buffer and two gathered layers, and little
 * for amaxes, sums and alignment. The gradient of a tied embedding is begun by the head, in the
 * buffer of the last bucket. One rank adds it to its state. */
static void check_bounded(const subject *s, const sort *k, int zero, int64_t before)
{
    const sizes z = sizes_of(s);
    enum { LITTLE = 1 << 20 };
    const int64_t most = 3 * z.bucket + 2 * layer_of(&z) + z.last + LITTLE;
    ck_assert_msg(s->p->arena_bytes <= before + most,
                  "%s %s, stage %d: %.1f MiB, one rank %.1f; a bucket has %.1f, a layer %.1f",
                  k->file, k->recipe, zero, (double)s->p->arena_bytes / (1 << 20),
                  (double)before / (1 << 20), (double)z.bucket / (1 << 20),
                  (double)layer_of(&z) / (1 << 20));
}

static int64_t arena_of_one_rank(sort k)
{
    subject s;
    k.ranks = 1;
    open_subject(&s, &k, 0);
    const int64_t bytes = s.p->arena_bytes;
    close_subject(&s);
    return bytes;
}

/* ---- turns ---- */

static uint32_t *turns_of(const subject *s)
{
    uint32_t *turn = malloc(s->p->n_groups * sizeof *turn);
    for (uint32_t i = 0; i < s->p->n_groups; i++)
        turn[s->p->order[i]] = i;
    return turn;
}

/* The first turn that reads what group i makes; that of the function's end if none does. */
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
    return first;
}

static bool is_gemm(const subject *s, uint32_t turn)
{
    return s->p->group[s->p->order[turn]].kind == F8_GROUP_GEMM;
}

static int gemms_between(const subject *s, uint32_t from, uint32_t to)
{
    int n = 0;
    for (uint32_t turn = from + 1; turn < to; turn++)
        n += is_gemm(s, turn);
    return n;
}

/* A bucket starts as soon as it is there, unless one before it is still under way: no GEMM runs in
 * between. */
static void check_soon(const subject *s, const sort *k, int zero)
{
    int checked = 0;
    uint32_t *turn = turns_of(s), under_way = 0, last;
    for (uint32_t at = 0; at < s->p->n_groups; at++) {
        const uint32_t i = s->p->order[at], from = maker_of(s, s->p->group[i].in[0]);
        if (!of_gradients(s, i))
            continue;
        ck_assert_uint_ne(from, NO_GROUP);
        const uint32_t free = turn[from] > under_way ? turn[from] : under_way;
        ck_assert_msg(gemms_between(s, free, at) <= 1, "%s, stage %d: '%s' starts late", k->file,
                      zero, s->p->group[i].name);
        checked++;
        first_use(s, i, &last);
        under_way = last > under_way ? last : under_way;
    }
    ck_assert_int_gt(checked, 4);
    free(turn);
}

/* Weights are gathered while a GEMM before their reader runs; no more than two layers of them, and
 * the biases and norms, are there at once. */
static void check_gathered_ahead(const subject *s, const sort *k)
{
    const sizes z = sizes_of(s);
    int64_t *change = calloc(s->p->n_groups + 2, sizeof *change), live = 0;
    uint32_t *turn = turns_of(s), last;
    int checked = 0;
    for (uint32_t i = 0; i < s->p->n_groups; i++) {
        if (!travels(s, i) || of_gradients(s, i) || received(s, i) <= 4 * F8_MAX_RANKS)
            continue;
        const uint32_t first = first_use(s, i, &last);
        ck_assert_msg(last >= first, "nothing reads '%s'", s->p->group[i].name);
        if (strcmp(s->p->group[i].name, "small")) { /* these stay */
            change[turn[i]] += received(s, i);
            change[last + 1] -= received(s, i);
        }
        if (!is_gemm(s, first) || gemms_between(s, 0, first) == 0)
            continue;
        ck_assert_msg(gemms_between(s, turn[i], first) >= 1, "%s: '%s' is gathered too late",
                      k->file, s->p->group[i].name);
        checked++;
    }
    for (uint32_t at = 0; at < s->p->n_groups; at++) {
        live += change[at];
        ck_assert_msg(live <= 2 * layer_of(&z), "%s: %.1f MiB of weights at '%s', a layer has %.1f",
                      k->file, (double)live / (1 << 20), s->p->group[s->p->order[at]].name,
                      (double)layer_of(&z) / (1 << 20));
    }
    ck_assert_int_gt(checked, 20);
    free(change);
    free(turn);
}

/* Each program is compiled once, since that takes longer than to judge it. */
START_TEST(plans)
{
    const sort *k = &sorts[_i];
    const int64_t before = arena_of_one_rank(*k);
    for (int zero = 0; zero < STAGES; zero++) {
        subject s;
        open_subject(&s, k, zero);
        check_hidden(&s, k, zero);
        check_bounded(&s, k, zero, before);
        check_soon(&s, k, zero);
        if (zero == 3)
            check_gathered_ahead(&s, k);
        close_subject(&s);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("overlap");
    TCase *c = tcase_create("plans");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, plans, 0, SORTS);
    suite_add_tcase(suite, c);
    return suite;
}

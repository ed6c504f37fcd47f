/* Merged launches of the CUDA target, without a GPU. Every model's plan is compared with the plan
 * that has one launch for every step. Each step is in the merged plan once, with its own integers.
 * Both plans are run over bytes, in either order: every read, and every variable and result at the
 * end, sees the same writes. The instances of one launch access different memory; a launch's tail
 * writes nothing that the launch accesses. Random lists of steps on little memory, where nearly all
 * steps conflict, are checked too. */
#include "codegen/plan/parts.h"
#include "tests/shared/cuda/byte_memory.h"
#include "tests/shared/cuda/cuda_plan.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- plans ---- */

/* A list of launches, each of instances, each of a step of the list before merging. */
typedef struct instance {
    uint32_t origin;
    uint32_t n_accesses;
    bool is_tail;            /* of the instance before it */
    f8_build_access *access; /* by the plan's arguments where a step has launches of one kernel */
} instance;

typedef struct list {
    instance *instance; /* in order */
    uint32_t *launch;   /* by instance */
    uint32_t n;
} list;

/* Where the argument points, as accesses have it. */
static void point_at(const f8_plan *plan, const f8_plan_func *f, const f8_arg *arg,
                     f8_build_access *a)
{
    const int64_t bytes = a->end - a->begin;
    f8_build_access to = *a;
    int32_t var = -1;
    if (arg->space == F8_SPACE_CONST) /* never written, and functions share the space */
        return;
    to.space = arg->space;
    to.port = arg->port;
    to.begin = arg->offset;
    if (arg->space == F8_SPACE_INPUT || arg->space == F8_SPACE_OUTPUT)
        var = arg->space == F8_SPACE_INPUT ? f->in[arg->port].var : f->out[arg->port].var;
    if (var >= 0) {
        to.space = F8_SPACE_STATE;
        to.begin += plan->var[var].offset;
    }
    if (to.space != F8_SPACE_INPUT && to.space != F8_SPACE_OUTPUT)
        to.port = -1;
    to.end = to.begin + bytes;
    *a = to;
}

/* Of a step of the merged plan: from its arguments, and what is known of the steps it was made of.
 */
static void add_step(list *l, const f8_plan *plan, const f8_plan_func *f, uint32_t step,
                     const f8_step_builder *d, const f8_step_builder *unmerged, f8_arena *arena)
{
    const f8_step *s = &f->step[step];
    const bool has_tail = d->n_launches && d->launch->tail_args;
    uint32_t first = 0, n = has_tail; /* arguments; a tail's counter is none of the step's */
    for (uint32_t i = 0; i < d->n_origins; i++)
        n += unmerged[d->origin[i]].n_accesses;
    /* the arguments of GEMMs and attention are not all accesses, and few of them move */
    const bool all = s->n_phases == 1 && s->n_args == n;
    for (uint32_t i = 0; i < d->n_origins; i++) {
        instance *to = &l->instance[l->n];
        const f8_step_builder *from = &unmerged[d->origin[i]];
        *to = (instance){
            .origin = d->origin[i], .n_accesses = from->n_accesses, .is_tail = has_tail && i > 0};
        to->access = F8_NEW_ARRAY(arena, f8_build_access, from->n_accesses + 1);
        ck_assert_ptr_nonnull(to->access);
        memcpy(to->access, from->access, from->n_accesses * sizeof *to->access);
        for (uint32_t k = 0; k < from->n_accesses; k++)
            if (all || from->access[k].arg)
                point_at(plan, f, &s->arg[all ? first + k : from->access[k].arg - 1],
                         &to->access[k]);
        first += from->n_accesses;
        l->launch[l->n++] = step;
    }
}

static list list_of(const cuda_plan *p, uint32_t func, const f8_step_builder *unmerged, uint32_t n,
                    f8_arena *arena)
{
    list l = {.instance = F8_NEW_ARRAY(arena, instance, n + 1),
              .launch = F8_NEW_ARRAY(arena, uint32_t, n + 1)};
    const f8_plan_func *f = &p->plan.func[func];
    uint32_t instances = 0;
    ck_assert(l.instance && l.launch);
    for (uint32_t i = 0; i < f->n_steps; i++)
        instances += p->stats.builders[func][i].n_origins;
    ck_assert_uint_eq(instances, n);
    for (uint32_t i = 0; i < f->n_steps; i++)
        add_step(&l, &p->plan, f, i, &p->stats.builders[func][i], unmerged, arena);
    return l;
}

/* The list before merging, as its builders have it. */
static list list_before(const f8_step_builder *d, uint32_t n, f8_arena *arena)
{
    list l = {.instance = F8_NEW_ARRAY(arena, instance, n + 1),
              .launch = F8_NEW_ARRAY(arena, uint32_t, n + 1),
              .n = n};
    ck_assert(l.instance && l.launch);
    for (uint32_t i = 0; i < n; i++) {
        l.instance[i] =
            (instance){.origin = i, .n_accesses = d[i].n_accesses, .access = d[i].access};
        l.launch[i] = i;
    }
    return l;
}

/* ---- what is asserted ---- */

/* reads[step][access] of a list run in order; what is there at the end is memory's. */
static byte_memory **run_list(const list *l, byte_memory *at_end, f8_arena *arena)
{
    byte_memory **reads = F8_NEW_ARRAY(arena, byte_memory *, l->n + 1);
    ck_assert_ptr_nonnull(reads);
    for (uint32_t i = 0; i < l->n; i++) {
        const instance *x = &l->instance[i];
        ck_assert_uint_lt(x->origin, l->n);
        ck_assert_msg(!reads[x->origin], "step %u is there twice", x->origin);
        reads[x->origin] = F8_NEW_ARRAY(arena, byte_memory, x->n_accesses + 1);
        ck_assert_ptr_nonnull(reads[x->origin]);
        for (uint32_t k = 0; k < x->n_accesses; k++)
            if (!x->access[k].write || x->access[k].adds)
                reads[x->origin][k] = byte_memory_read(at_end, &x->access[k]);
        for (uint32_t k = 0; k < x->n_accesses; k++)
            if (x->access[k].write)
                byte_memory_write(at_end, &x->access[k], (byte_source){x->origin, k, 0});
    }
    return reads;
}

static void same_bytes(const byte_memory *x, const byte_memory *y, const char *what, uint32_t step,
                       uint32_t access)
{
    const bool same_n = x->n == y->n;
    for (size_t i = 0; same_n && i < x->n; i++) {
        const byte_run *a = &x->run[i], *b = &y->run[i];
        ck_assert_msg(a->begin == b->begin && a->end == b->end && a->from.step == b->from.step &&
                          a->from.access == b->from.access && a->from.offset == b->from.offset,
                      "%s: access %u of step %u sees other bytes: of step %d, not of %d", what,
                      access, step, (int)b->from.step, (int)a->from.step);
    }
    ck_assert_msg(same_n, "%s: access %u of step %u sees bytes of %zu writes, not of %zu", what,
                  access, step, y->n, x->n);
}

/* Variables and results, whoever looks at them. */
static void same_end(const byte_memory *x, const byte_memory *y, const char *what)
{
    for (size_t i = 0; i < x->n; i++) {
        const byte_run *r = &x->run[i];
        if (r->space == F8_SPACE_ARENA)
            continue;
        const f8_build_access all = {
            .space = (f8_space)r->space, .port = r->port, .begin = r->begin, .end = r->end};
        byte_memory a = byte_memory_read(x, &all), b = byte_memory_read(y, &all);
        same_bytes(&a, &b, what, UINT32_MAX, 0);
        free(a.run);
        free(b.run);
    }
}

static void same_run(const list *before, const list *after, const char *what, f8_arena *arena)
{
    byte_memory x = {0}, y = {0};
    ck_assert_uint_eq(before->n, after->n);
    byte_memory **a = run_list(before, &x, arena), **b = run_list(after, &y, arena);
    for (uint32_t s = 0; s < before->n; s++)
        for (uint32_t k = 0; k < before->instance[s].n_accesses; k++) {
            same_bytes(&a[s][k], &b[s][k], what, s, k);
            free(a[s][k].run);
            free(b[s][k].run);
        }
    same_end(&x, &y, what);
    same_end(&y, &x, what);
    free(x.run);
    free(y.run);
}

/* y comes after x in its launch. If it is its tail, it may read what x writes. */
static void apart(const instance *x, const instance *y, const char *what)
{
    for (uint32_t i = 0; i < x->n_accesses; i++)
        for (uint32_t k = 0; k < y->n_accesses; k++) {
            const f8_build_access *a = &x->access[i], *b = &y->access[k];
            const bool matters = b->write || (a->write && !y->is_tail);
            ck_assert_msg(!matters || a->space != b->space || a->port != b->port ||
                              a->begin >= b->end || b->begin >= a->end,
                          "%s: steps %u and %u are one launch and share bytes %" PRId64
                          " to %" PRId64,
                          what, x->origin, y->origin, a->begin, a->end);
        }
}

static void instances_apart(const list *l, const char *what)
{
    for (uint32_t i = 0; i < l->n; i++)
        for (uint32_t k = i + 1; k < l->n && l->launch[k] == l->launch[i]; k++)
            apart(&l->instance[i], &l->instance[k], what);
}

/* A launch with a tail: the arguments of both steps and the counter, the first's integers. */
static void same_with_tail(const f8_step *x, const f8_step *host, const f8_step *tail)
{
    const f8_launch *l = &x->phase[0].launch, *was = &host->phase[0].launch;
    ck_assert(x->n_phases == 1 && l->counts && !l->multi);
    ck_assert_uint_eq(l->n_args, host->n_args + tail->n_args + 1);
    ck_assert_uint_eq(x->n_args, l->n_args);
    ck_assert_int_eq(x->arg[x->n_args - 1].space, F8_SPACE_CONST);
    ck_assert_uint_eq(l->n_ints, was->n_ints);
    ck_assert(!memcmp(x->ints, host->ints, l->n_ints * sizeof *x->ints));
    ck_assert(l->threads == was->threads && l->shared == was->shared);
    ck_assert_int_eq(x->phase[0].n_tasks, host->phase[0].n_tasks);
    ck_assert_int_eq(tail->ints[0], 1);
    ck_assert_int_eq(x->bytes_read, host->bytes_read + tail->bytes_read);
    ck_assert_int_eq(x->bytes_written, host->bytes_written + tail->bytes_written);
}

/* Integers and tasks, instance by instance; the names' kernels. */
static void same_launches(const cuda_plan *before, const cuda_plan *after, uint32_t func)
{
    const f8_plan_func *f = &after->plan.func[func], *g = &before->plan.func[func];
    for (uint32_t s = 0; s < f->n_steps; s++) {
        const f8_step_builder *d = &after->stats.builders[func][s];
        const f8_step *x = &f->step[s];
        if (d->n_origins < 2)
            continue;
        if (d->launch->tail_args) {
            same_with_tail(x, &g->step[d->origin[0]], &g->step[d->origin[1]]);
            continue;
        }
        const f8_launch *l = &x->phase[0].launch;
        ck_assert_uint_eq(x->n_phases, 1);
        ck_assert_uint_eq(l->n_instances, d->n_origins);
        int64_t total = 0, read = 0, written = 0;
        for (uint32_t i = 0; i < d->n_origins; i++) {
            const f8_step *y = &g->step[d->origin[i]];
            const int64_t *ints = x->ints + (size_t)i * l->n_ints;
            ck_assert_uint_eq(y->hash, x->hash);
            ck_assert_uint_eq(y->phase[0].launch.n_ints, l->n_ints);
            ck_assert_uint_eq(y->n_args, l->n_args);
            ck_assert(!memcmp(ints, y->ints, (l->n_ints - 1) * sizeof *ints));
            total += y->phase[0].n_tasks;
            ck_assert_int_eq(ints[l->n_ints - 1], total);
            read += y->bytes_read;
            written += y->bytes_written;
        }
        ck_assert_int_eq(x->phase[0].n_tasks, total);
        ck_assert_int_eq(x->bytes_read, read);
        ck_assert_int_eq(x->bytes_written, written);
    }
}

static void within_arena(const list *l, int64_t bytes)
{
    for (uint32_t i = 0; i < l->n; i++)
        for (uint32_t k = 0; k < l->instance[i].n_accesses; k++)
            if (l->instance[i].access[k].space == F8_SPACE_ARENA)
                ck_assert_int_le(l->instance[i].access[k].end, bytes);
}

/* ---- models ---- */

static const char *const models[] = {"gpt", "gpt2_124m", "mpt_1b", "llama_block",
                                     "llama3_8b_block"};
static const char *const recipes[] = {"f32", "bf16", "delayed", "current"};
enum { N_RECIPES = 4, N_MODELS = 5 };

START_TEST(models_see_the_same)
{
    const char *model = models[_i / N_RECIPES], *recipe = recipes[_i % N_RECIPES];
    const char *arch = _i % 2 ? "sm_90a" : "sm_89";
    cuda_plan before, after;
    char what[128];
    cuda_plan_build(&before, model, NULL, recipe, arch,
                    (f8_build_options){.text_only = true, .unmerged = true});
    ck_assert_msg(before.status == F8_OK, "%s", before.diag.text);
    cuda_plan_build(&after, model, NULL, recipe, arch, (f8_build_options){.text_only = true});
    ck_assert_msg(after.status == F8_OK, "%s", after.diag.text);
    ck_assert_uint_eq(before.plan.n_funcs, after.plan.n_funcs);
    for (uint32_t f = 0; f < after.plan.n_funcs; f++) {
        const f8_plan_func *x = &before.plan.func[f], *y = &after.plan.func[f];
        f8_arena arena;
        f8_arena_init(&arena, NULL);
        snprintf(what, sizeof what, "%s, %s, %s", model, recipe, y->name);
        const f8_step_builder *unmerged = before.stats.builders[f];
        const list a = list_before(unmerged, x->n_steps, &arena);
        const list b = list_of(&after, f, unmerged, x->n_steps, &arena);
        same_run(&a, &b, what, &arena);
        instances_apart(&b, what);
        within_arena(&b, y->arena_bytes);
        same_launches(&before, &after, f);
        f8_arena_end(&arena);
    }
    cuda_plan_end(&before);
    cuda_plan_end(&after);
}
END_TEST

/* ---- random lists ---- */

enum { N_SEEDS = 400, N_SLOTS = 24, N_SOURCES = 4, MOST_STEPS = 90, BIG = 9 << 20 };

static uint32_t few_instances(const f8_kernel_source *u)
{
    return u->kind == F8_SOURCE_ROWS ? 7 : 1;
}

static bool any_tail(const f8_kernel *k, const f8_kernel *tail)
{
    return !k->tail && !tail->tail;
}

/* Slots of memory: whole ones, or every other half of some. */
static f8_build_access random_access(uint32_t *seed, int64_t slot, bool write)
{
    const uint32_t first = test_random(seed) % N_SLOTS, most = N_SLOTS - first;
    const int64_t n = 1 + test_random(seed) % (most < 4 ? most : 4);
    f8_build_access a = {.space = test_random(seed) % 5 ? F8_SPACE_ARENA : F8_SPACE_STATE,
                         .port = -1,
                         .begin = first * slot,
                         .end = (first + n) * slot,
                         .write = write,
                         .whole = write,
                         .width = n * slot};
    if (write && test_random(seed) % 4 == 0) { /* rows; what is between them may be another's */
        const int64_t at = test_random(seed) % 2 ? slot / 2 : 0;
        a.whole = false;
        a.width = slot / 2;
        a.pitch = slot;
        a.begin += at;
        a.end += at - slot / 2;
    } else if (write && test_random(seed) % 8 == 0) {
        a.adds = true;
    }
    return a;
}

static bool share(const f8_build_access *a, const f8_build_access *b)
{
    return a->space == b->space && a->begin < b->end && b->begin < a->end;
}

/* A step with as many reads and writes as its kernel has. Its writes do not overlap. Row kernels
 * add to nothing. */
static void random_step(f8_arena *arena, uint32_t *seed, int64_t slot, f8_step *s,
                        f8_step_builder *d)
{
    const uint32_t source = test_random(seed) % N_SOURCES;
    const uint32_t n_reads = source % 3, n = n_reads + 1 + source % 2;
    d->access = F8_NEW_ARRAY(arena, f8_build_access, n);
    d->launch = F8_NEW(arena, f8_build_launch);
    s->arg = F8_NEW_ARRAY(arena, f8_arg, n);
    s->ints = F8_NEW_ARRAY(arena, int64_t, 1);
    int64_t *tasks = F8_NEW(arena, int64_t);
    ck_assert(d->access && d->launch && s->arg && s->ints && tasks);
    *tasks = s->ints[0] = s->n_ints = 1; /* one row */
    while (d->n_accesses < n) {
        f8_build_access a = random_access(seed, slot, d->n_accesses >= n_reads);
        a.adds = a.adds && source == 0;
        if (d->n_accesses > n_reads && share(&a, &d->access[n_reads]))
            continue;
        s->arg[d->n_accesses] = (f8_arg){a.space, a.port, a.begin};
        d->access[d->n_accesses++] = a;
    }
    s->name = "a step";
    s->n_args = d->n_accesses;
    s->bytes_written = test_random(seed) % 6 ? 1 : BIG;
    *d->launch = (f8_build_launch){
        .source = source, .n_args = s->n_args, .n_ints = 1, .n_instances = 1, .n_tasks = tasks};
    d->n_launches = 1;
}

/* From builders alone, which the arguments must agree with. */
static list list_after(const f8_build *b, uint32_t n, f8_arena *arena)
{
    list l = {.instance = F8_NEW_ARRAY(arena, instance, n + 1),
              .launch = F8_NEW_ARRAY(arena, uint32_t, n + 1)};
    ck_assert(l.instance && l.launch);
    for (uint32_t s = 0; s < b->out->n_steps; s++) {
        const f8_step_builder *d = &b->builder[s];
        const uint32_t tail_args = d->launch->tail_args;
        const uint32_t n_tail = tail_args ? tail_args - 1 : 0; /* without the counter */
        const uint32_t own = d->n_accesses - tail_args;
        const uint32_t each = tail_args ? own : own / d->n_origins;
        for (uint32_t i = 0; i < d->n_accesses; i++)
            ck_assert_int_eq(b->out->step[s].arg[i].offset, d->access[i].begin);
        for (uint32_t i = 0; i < d->n_origins; i++, l.n++) {
            ck_assert_uint_lt(l.n, n);
            const bool is_tail = tail_args && i > 0;
            l.instance[l.n] = (instance){.origin = d->origin[i],
                                         .n_accesses = is_tail ? n_tail : each,
                                         .is_tail = is_tail,
                                         .access = d->access + i * each};
            l.launch[l.n] = s;
        }
    }
    return l;
}

typedef struct counts {
    uint32_t launches, steps, tails;
    int64_t renamed;
} counts;

static void random_list(uint32_t seed, counts *sum)
{
    f8_arena arena;
    f8_diag diag = {0};
    f8_arena_init(&arena, NULL);
    uint32_t at = seed;
    const int64_t slot = seed % 2 ? 64 : 1 << 19; /* the large ones don't all fit the budget */
    const uint32_t n = 2 + test_random(&at) % MOST_STEPS;
    f8_step *step = F8_NEW_ARRAY(&arena, f8_step, n);
    f8_step_builder *builder = F8_NEW_ARRAY(&arena, f8_step_builder, n);
    ck_assert(step && builder);
    for (uint32_t i = 0; i < n; i++)
        random_step(&arena, &at, slot, &step[i], &builder[i]);
    const f8_build_target target = {.most_instances = few_instances, .takes_tail = any_tail};
    const f8_build_options options = {0};
    static const f8_kernel kernel[] = {{.text = "one\n"}, {.text = "two\n"}, {.text = "three\n"}};
    f8_kernel_source source[N_SOURCES] = {{.kind = F8_SOURCE_ATTENTION, .name = "", .text = ""}};
    for (uint32_t i = 1; i < N_SOURCES; i++)
        source[i] = (f8_kernel_source){.kind = F8_SOURCE_ROWS,
                                       .name = "",
                                       .text = kernel[i - 1].text,
                                       .kernel = &kernel[i - 1]};
    f8_plan plan = {0};
    f8_lowered program = {.arena_bytes = N_SLOTS * slot};
    const f8_func func = {.lowered = &program};
    f8_plan_func out = {.step = step, .n_steps = n};
    f8_build b = {.target = &target,
                  .options = &options,
                  .source = source,
                  .n_sources = N_SOURCES,
                  .plan = &plan,
                  .func = &func,
                  .out = &out,
                  .builder = builder,
                  .arena = &arena,
                  .diag = &diag};
    char what[32];
    snprintf(what, sizeof what, "seed %u", seed);
    /* merging marks what it is given; the list as it was */
    f8_step_builder *was = F8_NEW_ARRAY(&arena, f8_step_builder, n);
    ck_assert_ptr_nonnull(was);
    for (uint32_t i = 0; i < n; i++) {
        was[i] = builder[i];
        was[i].access = F8_NEW_ARRAY(&arena, f8_build_access, builder[i].n_accesses + 1);
        ck_assert_ptr_nonnull(was[i].access);
        memcpy(was[i].access, builder[i].access, builder[i].n_accesses * sizeof *was[i].access);
    }
    ck_assert_msg(f8_build_merge(&b) == F8_OK, "%s: %s", what, diag.text);
    ck_assert_msg(f8_build_tails(&b) == F8_OK, "%s: %s", what, diag.text);
    const list before = list_before(was, n, &arena), after = list_after(&b, n, &arena);
    same_run(&before, &after, what, &arena);
    instances_apart(&after, what);
    within_arena(&after, program.arena_bytes + b.renamed);
    ck_assert_int_le(b.renamed, 8 << 20);
    sum->launches += out.n_steps;
    sum->steps += n;
    sum->tails += b.n_counters;
    sum->renamed += b.renamed;
    f8_arena_end(&arena);
}

START_TEST(random_lists_see_the_same)
{
    counts sum = {0};
    for (uint32_t seed = 1; seed <= N_SEEDS; seed++)
        random_list(seed, &sum);
    printf("random lists, seeds 1 to %d: %u steps in %u launches, %u with a tail\n", N_SEEDS,
           sum.steps, sum.launches, sum.tails);
    ck_assert_uint_lt(sum.launches + sum.tails, sum.steps - sum.steps / 10);
    ck_assert_uint_gt(sum.tails, sum.steps / 100);
    ck_assert_int_gt(sum.renamed, 0);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_merge");
    TCase *t = tcase_create("merge");
    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, models_see_the_same, 0, N_MODELS * N_RECIPES);
    tcase_add_test(t, random_lists_see_the_same);
    suite_add_tcase(s, t);
    return s;
}

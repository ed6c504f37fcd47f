/* Collectives beside other groups: when they start, when the run waits for them, what they hold in
 * memory, and how much of their time a step hides by the estimates of the cost model. Nothing here
 * depends on a clock. */
#include "passes/unit/cost.h"
#include "passes/unit/pass.h"
#include "runtime/comm/comm.h"
#include "tests/shared/passes/compile.h"
#include "tests/shared/suite.h"

#include <stdio.h>
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
    int ranks, zero;
} sort;

static void open_subject(subject *s, const sort *k)
{
    const f8_compile_setup setup = {.file = k->file,
                                    .dims = k->dims,
                                    .recipe = *f8_recipe_by_name(k->recipe),
                                    .ranks = k->ranks,
                                    .zero = k->zero ? k->zero : -1};
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
        for (uint32_t k2 = 0; k2 < s->p->group[i].n_out; k2++)
            s->maker[s->p->group[i].out[k2]] = i;
}

static void close_subject(subject *s)
{
    free(s->maker);
    f8_compiled_end(&s->c);
}

static bool travels(const subject *s, uint32_t i)
{
    const f8_group *g = &s->p->group[i];
    return g->kind == F8_GROUP_COLLECTIVE &&
           f8_at(s->f->graph, g->out[0])->op != F8_OP_ALL_SLICE;
}

/* Through views, to the group that writes the bytes. */
static uint32_t maker_of(const subject *s, f8_ref r)
{
    while (s->maker[r] == NO_GROUP) {
        const f8_node *n = f8_at(s->f->graph, r);
        if (n->n_in == 0 || (n->op != F8_OP_RESHAPE && n->op != F8_OP_SLICE && n->op != F8_OP_PROJECT))
            return NO_GROUP;
        r = n->in[0];
    }
    return s->maker[r];
}

static int64_t sent(const subject *s, uint32_t i)
{
    return f8_type_bytes(f8_type_of(s->f->graph, s->p->group[i].in[0]));
}

/* The estimated seconds of a step, when all that travels takes `share` of what is computed. */
static double simulate(const subject *s, double share, double *computed)
{
    double *end = calloc(s->p->n_groups, sizeof *end), now = 0, engine = 0, all = 0;
    *computed = f8_cost_function(s->f, s->target);
    for (uint32_t i = 0; i < s->p->n_groups; i++) {
        all += travels(s, i) ? (double)sent(s, i) : 0;
        *computed -= travels(s, i) ? f8_cost_group(s->f, s->target, i) : 0;
    }
    for (uint32_t turn = 0; turn < s->p->n_groups; turn++) {
        const uint32_t i = s->p->order[turn];
        const f8_group *g = &s->p->group[i];
        for (uint32_t k = 0; k < g->n_in; k++) {
            const uint32_t from = maker_of(s, g->in[k]);
            if (from != NO_GROUP && travels(s, from) && end[from] > now) {
                if (getenv("SHOW")) printf("  %s waits for %s %.4f\n", g->name, s->p->group[from].name, (end[from] - now) / *computed);
                now = end[from];
            }
        }
        if (travels(s, i)) {
            engine = (engine > now ? engine : now) +
                     *computed * share * (double)sent(s, i) / all;
            end[i] = engine;
        } else {
            now += f8_cost_group(s->f, s->target, i);
        }
    }
    free(end);
    return engine > now ? engine : now;
}

START_TEST(hidden)
{
    static const sort sorts[] = {
        {"frontend/models/gpt.f8", "B=4", "delayed", 2, 0},
        {"frontend/models/gpt.f8", NULL, "bf16", 2, 0},
        {"frontend/models/gpt.f8", NULL, "delayed", 4, 0},
        {"frontend/models/gpt2_124m.f8", "B=1", "delayed", 2, 0},
        {"frontend/models/gpt2_124m.f8", "B=1", "bf16", 4, 0},
        {"frontend/models/gpt2_124m.f8", "B=1 T=256 V=1024", "delayed", 2, 0},
        {"frontend/models/mpt_125m.f8", "B=1", "delayed", 2, 0},
    };
    for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++)
        for (int zero = 0; zero < 4; zero++) {
            sort k = sorts[i];
            subject s;
            double computed;
            k.zero = zero;
            open_subject(&s, &k);
            const double took = simulate(&s, 0.5, &computed);
            printf("%s %s %s %d ranks stage %d: %.3f\n", k.file, k.dims ? k.dims : "", k.recipe,
                   k.ranks, zero, took / computed);
            close_subject(&s);
        }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("overlap");
    TCase *c = tcase_create("plans");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, hidden);
    suite_add_tcase(suite, c);
    return suite;
}

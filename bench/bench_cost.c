/* Compares estimated costs (passes/unit/cost.h) with measured ones: GPT-2 of three layers, B=2,
 * T=512, on the CPU.
 *
 * Each group of micro_step and update is timed on its own in every round, and its least time
 * counts. Groups are put into classes (GEMMs by role, attention, row kernels by what they make),
 * and the estimates are scaled so that both sums agree for the recipe: what is left is 1 where the
 * ratios between kinds are right.
 *
 *     bench_cost [--json] [--groups] [ROUNDS [THREADS]] */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/figures.h"
#include "codegen/build.h"
#include "frontend/text/parse.h"
#include "passes/unit/cost.h"
#include "passes/pipeline.h"
#include "runtime/cpu/exec.h"

enum { MAX_CLASSES = 256, N_RECIPES = 2 };

static const char *const recipes[N_RECIPES] = {"bf16", "delayed"};
static const char *const functions[] = {"micro_step", "update"};

typedef struct class
{
    char name[96];
    int groups;
    double measured, estimated;
} class;

typedef struct bench {
    bool json, groups;
    int rounds, threads;
    const f8_target *target;
    f8_arena arena;
    f8_diag diag;
    f8_unit unit;
    f8_plan plan;
    f8_exec *exec;
    double *least[2]; /* by function and step: seconds */
    class class[MAX_CLASSES];
    int n_classes;
} bench;

/* ---- a recipe's program ---- */

static void make(bench *x, const char *recipe)
{
    static const char file[] = "frontend/models/gpt2_124m.f8";
    static const f8_dim_override dims[] = {{"L", 3}, {"B", 2}, {"T", 512}};
    size_t size;
    char *text = read_file(file, &size);
    f8_arena_init(&x->arena, NULL);
    x->unit = (f8_unit){.arena = &x->arena, .diag = &x->diag};
    x->unit.options.recipe = f8_recipe_by_name(recipe);
    x->unit.options.target = x->target;
    const f8_exec_options options = {.n_threads = x->threads, .profile = true};
    must(f8_parse(text, size, file, dims, 3, &x->arena, &x->diag, &x->unit.module) == F8_OK &&
             f8_run_passes(&x->unit) == F8_OK &&
             f8_build_plan(x->unit.module, &(f8_build_options){0}, &x->arena, &x->plan, &x->diag) ==
                 F8_OK &&
             f8_exec_create(&x->plan, &options, &x->exec, &x->diag) == F8_OK,
         x->diag.text);
    must(f8_exec_init(x->exec, 1, NULL, NULL) == F8_OK, "init");
    free(text);
}

static uint32_t plan_func(const bench *x, const char *name)
{
    uint32_t i = 0;
    while (i < x->plan.n_funcs && strcmp(x->plan.func[i].name, name))
        i++;
    must(i < x->plan.n_funcs, name);
    return i;
}

/* ---- measuring ---- */

static void fill_ids(const bench *x, uint32_t func)
{
    const f8_plan_func *f = &x->plan.func[func];
    for (uint32_t i = 0; i < f->n_in; i++)
        if (f->in[i].var < 0 && f->in[i].type.dtype == F8_I32) {
            int32_t *ids = f8_exec_port(x->exec, func, false, i);
            for (int64_t k = 0; k < f8_type_elements(&f->in[i].type); k++)
                ids[k] = (int32_t)((uint32_t)(k + i) * 2654435761u % 50257u);
        }
}

static void measure(bench *x)
{
    double *before[2];
    for (int f = 0; f < 2; f++) {
        const uint32_t func = plan_func(x, functions[f]), n = x->plan.func[func].n_steps;
        before[f] = calloc(n + 1, sizeof(double));
        x->least[f] = calloc(n + 1, sizeof(double));
        must(before[f] && x->least[f], "memory");
        fill_ids(x, func);
    }
    for (int round = -1; round < x->rounds; round++) /* the first touches every page */
        for (int f = 0; f < 2; f++) {
            const uint32_t func = plan_func(x, functions[f]);
            must(f8_exec_run(x->exec, func, &x->diag) == F8_OK, x->diag.text);
            for (uint32_t i = 0; i < x->plan.func[func].n_steps; i++) {
                const double now = f8_exec_step_seconds(x->exec, func, i),
                             took = now - before[f][i];
                before[f][i] = now;
                if (round == 0 || (round > 0 && took < x->least[f][i]))
                    x->least[f][i] = took;
            }
        }
    free(before[0]);
    free(before[1]);
}

/* ---- classes ---- */

/* A name for all layers and chunks. */
static void kind_of(const f8_func *f, const f8_group *group, char *out, size_t size)
{
    const f8_ref r = group->out[0];
    const bool head = !strncmp(group->name, "lm_head", 7);
    switch (group->kind) {
    case F8_GROUP_GEMM:
        snprintf(out, size, "gemm %s%s", f8_attr_s(f->graph, r, F8_A_ROLE),
                 head ? " of the head" : "");
        return;
    case F8_GROUP_ATTENTION: snprintf(out, size, "attention"); return;
    case F8_GROUP_ATTENTION_GRAD: snprintf(out, size, "attention grad"); return;
    case F8_GROUP_SCATTER: snprintf(out, size, "scatter"); return;
    case F8_GROUP_COLLECTIVE: snprintf(out, size, "collective"); return;
    case F8_GROUP_COPY: snprintf(out, size, "copy"); return;
    case F8_GROUP_ROWS: break;
    }
    if (!strcmp(f->name, "update")) {
        snprintf(out, size, "rows of update");
        return;
    }
    size_t at = (size_t)snprintf(out, size, "rows ");
    for (const char *c = group->name; *c && at + 1 < size; c++)
        if (!isdigit((unsigned char)*c))
            out[at++] = *c;
        else if (out[at - 1] != '#')
            out[at++] = '#';
    out[at] = 0;
}

static class *class_of(bench *x, const char *name)
{
    for (int i = 0; i < x->n_classes; i++)
        if (!strcmp(x->class[i].name, name))
            return &x->class[i];
    must(x->n_classes < MAX_CLASSES, "too many classes");
    class *c = &x->class[x->n_classes++];
    *c = (class){0};
    snprintf(c->name, sizeof c->name, "%s", name);
    return c;
}

/* The group's step, with the copies of what it adds to before it. Groups and steps have one order.
 */
static double seconds_of(const bench *x, int f, const f8_group *group, uint32_t *at)
{
    const f8_plan_func *plan = &x->plan.func[plan_func(x, functions[f])];
    double seconds = 0;
    while (*at < plan->n_steps && plan->step[*at].kind == F8_STEP_COPY &&
           !strcmp(plan->step[*at].name, group->name))
        seconds += x->least[f][(*at)++];
    if (group->kind == F8_GROUP_COPY)
        return seconds;
    must(*at < plan->n_steps && !strcmp(plan->step[*at].name, group->name), group->name);
    return seconds + x->least[f][(*at)++];
}

static void classify(bench *x, int function)
{
    const f8_func *f = f8_module_find_func(x->unit.module, functions[function]);
    uint32_t at = 0;
    for (uint32_t i = 0; i < f->lowered->n_groups; i++) {
        const uint32_t index = f->lowered->order[i];
        const f8_group *group = &f->lowered->group[index];
        char name[96];
        kind_of(f, group, name, sizeof name);
        const double measured = seconds_of(x, function, group, &at);
        const double estimated = f8_cost_group(f, x->target, index);
        class *c = class_of(x, name);
        c->groups++;
        c->measured += measured;
        c->estimated += estimated;
        if (x->groups)
            printf("%-10s %-40s measured %10.1f us  estimated %10.1f us  %6.3f\n", f->name,
                   group->name, 1e6 * measured, 1e6 * estimated, estimated / measured);
    }
}

static int by_measured(const void *a, const void *b)
{
    const double d = ((const class *)b)->measured - ((const class *)a)->measured;
    return (d > 0) - (d < 0);
}

static void show(bench *x, const char *recipe)
{
    double measured = 0, estimated = 0;
    for (int i = 0; i < x->n_classes; i++) {
        measured += x->class[i].measured;
        estimated += x->class[i].estimated;
    }
    qsort(x->class, (size_t)x->n_classes, sizeof *x->class, by_measured);
    if (!x->json)
        printf("%s: a step of %.1f ms, estimated %.1f ms\n%-44s %6s %10s %7s %s\n", recipe,
               1e3 * measured, 1e3 * estimated, "class", "groups", "measured", "share",
               "estimate over measurement, scaled");
    for (int i = 0; i < x->n_classes; i++) {
        const class *c = &x->class[i];
        const double ratio = c->estimated / c->measured * measured / estimated,
                     share = c->measured / measured;
        if (!x->json)
            printf("%-44s %6d %7.2f ms %6.1f%% %8.2f\n", c->name, c->groups, 1e3 * c->measured,
                   100 * share, ratio);
        else if (share > 0.03)
            report(true, ratio, "estimate over measurement", "cost %s: %s", recipe, c->name);
    }
    report(x->json, estimated / measured, "estimate over measurement",
           "cost %s: the step, not scaled", recipe);
}

int main(int argc, char **argv)
{
    bench x = {.rounds = 10,
               .threads = (int)sysconf(_SC_NPROCESSORS_ONLN),
               .target = f8_target_by_name("cpu")};
    for (int i = 1, at = 0; i < argc; i++)
        if (!strcmp(argv[i], "--json"))
            x.json = true;
        else if (!strcmp(argv[i], "--groups"))
            x.groups = true;
        else
            *(at++ ? &x.threads : &x.rounds) = atoi(argv[i]);
    must(x.rounds >= 1 && x.threads >= 1, "usage: [--json] [--groups] [ROUNDS [THREADS]]");
    for (int i = 0; i < N_RECIPES; i++) {
        make(&x, recipes[i]);
        measure(&x);
        x.n_classes = 0;
        classify(&x, 0);
        classify(&x, 1);
        show(&x, recipes[i]);
        free(x.least[0]);
        free(x.least[1]);
        f8_exec_destroy(x.exec);
        f8_arena_end(&x.arena);
    }
    return 0;
}

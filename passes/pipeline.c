/* The order of all passes, on one screen, and the runner. Read this first.
 *
 * Every pass rewrites the unit's functions. After each pass the runner verifies the module, notes
 * time and size, and prints the module when asked. `needs`, `gives` and `breaks` are the contract:
 * the runner refuses a table in which a pass needs a fact that no earlier pass gave, or that a
 * later one broke. */
#include "passes/pipeline.h"

#include <string.h>

#include "ir/base/clock.h"
#include "passes/grad/autodiff.h"
#include "passes/fuse/group.h"
#include "passes/instrument/instrument.h"
#include "passes/legalize/legalize.h"
#include "passes/memory/memory.h"
#include "passes/remat/remat.h"
#include "passes/scale/scaling.h"
#include "passes/shard/shard.h"

/* ---- facts about a unit that passes establish or break ---- */

enum {
    LINEARS_NAMED = 1,  /* linears are matmuls with a role and a name */
    ENTRY_POINTS = 2,   /* eval, micro_step, update, ... stand in place of forward */
    RECIPE_APPLIED = 4, /* FP8 operands are explicit */
    PRIMITIVE = 8,      /* no composite op is left */
    LEGAL = 16,         /* every node is one the target's kernels can express */
    GROUPED = 32,
    ORDERED = 64,
    PLACED = 128,
};

static const struct {
    const char *name;
    f8_status (*run)(f8_unit *u);
    unsigned needs, gives, breaks;
} passes[] = {
    {"ids", f8_pass_ids, 0, 0, 0},
    {"precision", f8_pass_precision, 0, LINEARS_NAMED, 0},
    {"serve", f8_pass_serve, LINEARS_NAMED, 0, 0},
    {"autodiff", f8_pass_autodiff, LINEARS_NAMED, ENTRY_POINTS, 0},
    {"chunk", f8_pass_chunk, ENTRY_POINTS, 0, 0},
    {"calibrate", f8_pass_calibrate, ENTRY_POINTS | LINEARS_NAMED, 0, 0},
    {"scaling", f8_pass_scaling, ENTRY_POINTS | LINEARS_NAMED, RECIPE_APPLIED, 0},
    {"shard", f8_pass_shard, RECIPE_APPLIED, 0, 0},
    {"instrument", f8_pass_instrument, RECIPE_APPLIED, 0, 0},
    {"decompose", f8_pass_decompose, RECIPE_APPLIED, PRIMITIVE, 0},
    {"canonicalize", f8_pass_canonicalize, PRIMITIVE, 0, LEGAL},
    {"split", f8_pass_split, PRIMITIVE, 0, 0},
    {"legalize", f8_pass_legalize, PRIMITIVE, LEGAL, 0},
    {"codes", f8_pass_codes, RECIPE_APPLIED | LEGAL, 0, 0},
    {"group", f8_pass_group, LEGAL, GROUPED, 0},
    {"remat", f8_pass_remat, GROUPED, 0, 0},
    {"schedule", f8_pass_schedule, GROUPED, ORDERED, 0},
    {"memory", f8_pass_memory, ORDERED, PLACED, 0},
};

enum { N_PASSES = sizeof passes / sizeof passes[0] };

/* ---- the runner ---- */

const char *f8_pass_name(size_t index)
{
    return index < N_PASSES ? passes[index].name : NULL;
}

static uint32_t count_nodes(const f8_module *m)
{
    uint32_t n = 0;
    for (size_t i = 0; i < m->n_funcs; i++)
        n += m->func[i].graph->n_nodes;
    return n;
}

/* The reference target interprets nodes one by one. It needs no kernels, so its pipeline ends
 * before group. */
static bool ends_here(const f8_unit *u, size_t next)
{
    return f8_unit_target(u)->kind == F8_TARGET_REFERENCE && passes[next].gives == GROUPED;
}

static f8_status run_one(f8_unit *u, size_t i)
{
    const double start = f8_seconds_now();
    F8_TRY(passes[i].run(u));
    if (u->options.after)
        F8_TRY(u->options.after(u->options.after_user, u, passes[i].name));
    F8_TRY(f8_arena_status(u->arena, u->diag));
    F8_TRY(f8_arena_status(u->module->arena, u->diag));
    const double end = f8_seconds_now();
    F8_TRY(f8_verify(u->module, u->diag));
    if (u->n_times < F8_MAX_PASSES)
        u->time[u->n_times++] =
            (f8_pass_time){passes[i].name, end - start, count_nodes(u->module)};
    f8_log_say(u->options.log, F8_LOG_DEBUG, "pass %s: %.3f s, %u nodes", passes[i].name,
               end - start, count_nodes(u->module));
    if (u->options.show)
        u->options.show(u->options.show_user, u, passes[i].name);
    const char *wanted = u->options.print_after;
    if (wanted && !strcmp(wanted, passes[i].name))
        F8_TRY(f8_print_module(u->module, &u->options.print_to));
    return F8_OK;
}

static f8_status run_all(f8_unit *u, int64_t n)
{
    unsigned facts = 0;
    if (!f8_module_find_func(u->module, "forward"))
        return f8_fail(u->diag, F8_ERR_INPUT, F8_NOWHERE, "module '%s' has no function 'forward'",
                       u->module->name);
    if (u->options.show)
        u->options.show(u->options.show_user, u, NULL);
    for (size_t i = 0; i < (size_t)n; i++) {
        u->pass = passes[i].name;
        F8_TRY(f8_unit_go_on(u));
        if ((facts & passes[i].needs) != passes[i].needs)
            return f8_fail(u->diag, F8_ERR_INTERNAL, F8_NOWHERE,
                           "pass '%s' requires a fact that no earlier pass establishes",
                           passes[i].name);
        F8_TRY(run_one(u, i));
        facts = (facts & ~passes[i].breaks) | passes[i].gives;
    }
    return F8_OK;
}

f8_status f8_run_passes(f8_unit *u)
{
    int64_t n = 0;
    while (n < N_PASSES && !ends_here(u, (size_t)n))
        n++;
    f8_unit_listen(u, "passes", n);
    return f8_unit_end(u, run_all(u, n));
}

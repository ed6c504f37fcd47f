/* Recomputation changes no bit. TransformerEngine's issue 1190 is tested by name. Models are
 * trained for 50 steps under every recipe, at budgets down to the least possible, and compared with
 * themselves without a budget (shared/remat/remat_case.h).
 *
 * FP8C_REMAT=all tries every budget of every model and recipe, some 290 programs. `budgets` has
 * those that run otherwise. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/program.h"
#include "tests/shared/api/api_run.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/remat/remat_case.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 900 };

static const char *const recipes[] = {"f32",           "bf16",  "delayed", "current", "rowwise",
                                      "rowwise_gw_hp", "block", "mxfp8",   "fake"};
enum { RECIPES = sizeof recipes / sizeof *recipes };

/* Where not all are looked at. */
static const char *const some[] = {"f32", "delayed", "block"};
enum { SOME_RECIPES = sizeof some / sizeof *some };

/* ---- TransformerEngine's issue 1190 ---- */

static const char *const scaled[] = {
    "delayed", "delayed {history = 2}", "current", "rowwise", "block", "mxfp8"};
enum { SCALED = sizeof scaled / sizeof *scaled, TE_STEPS = 10, SCALES = 64 };

/* Scales that moved, over the steps so far: the elements of fp8.scale, or the first ones of the
 * kept results "*.scale_inv". Not those of weights: powers of two, or what was the largest value 16
 * updates ago, may well stay. */
typedef struct scales {
    float last[SCALES];
    bool moved[SCALES];
    int n;
} scales;

static void see(scales *s, int i, float now)
{
    ck_assert_int_lt(i, SCALES);
    s->moved[i] |= i < s->n && memcmp(&now, &s->last[i], sizeof now);
    s->last[i] = now;
}

static void look_at_scales(remat_case *c, scales *s)
{
    int n = 0;
    f8_type t;
    float *scale = remat_variable(c, -1, "fp8.scale", &t);
    const bool kept = scale == NULL;
    const f8_elements *e = c->plain.unit.elements;
    for (int i = 0; !kept && i < t.dim[0]; i++)
        if (strcmp(strrchr(e->name[i], '.'), ".w"))
            see(s, n++, scale[i]);
    free(scale);
    const int step = f8_compiled_func(&c->plain, "micro_step");
    const f8_plan_func *f = &c->plain.plan.func[step];
    for (uint32_t i = 0; i < f->n_out && kept; i++) {
        const char *name = f->out[i].name, *dot = strrchr(name, '.');
        const void *at = c->plain.instance.kind->port(&c->plain.instance, (uint32_t)step, 1, i);
        if (!dot || strcmp(dot, ".scale_inv") || strstr(name, ".w."))
            continue;
        see(s, n++, f->out[i].type.dtype == F8_F32 ? *(const float *)at : *(const uint8_t *)at);
    }
    s->n = n;
}

/* One push for an update, whatever was computed how often: rows are a step older, the newest entry
 * is what was seen. */
static void check_pushed(remat_case *c, int which, const float *before, const float *seen,
                         int slots)
{
    f8_type t;
    float *now = remat_variable(c, which, "fp8.amax_history", &t);
    const int64_t length = t.dim[1];
    ck_assert_int_eq(t.dim[0], slots);
    for (int i = 0; i < slots; i++) {
        ck_assert_msg(
            !memcmp(now + i * length + 1, before + i * length, (size_t)(length - 1) * sizeof *now),
            "%s: the history of slot %d was not pushed once", c->way[which].name, i);
        const char *name = c->plain.unit.elements->name[i];
        if (!strcmp(strrchr(name, '.'), ".w")) /* a bound of what the update makes of it */
            ck_assert_float_gt(now[i * length], seen[i]);
        else
            ck_assert_msg(now[i * length] == seen[i], "%s: slot %d: %g, seen was %g",
                          c->way[which].name, i, (double)now[i * length], (double)seen[i]);
    }
    free(now);
}

/* The amaxes that the micro-steps of a step see are all in fp8.amax before its update; it is zero
 * after. */
static void te_step(remat_case *c, int micro_steps)
{
    f8_type t, history_type;
    float *before[REMAT_WAYS], *seen[REMAT_WAYS];
    bool delayed = false;
    for (int i = 0; i < c->n; i++) {
        before[i] = remat_variable(c, i, "fp8.amax_history", &history_type);
        delayed = before[i] != NULL;
    }
    ck_assert_msg(remat_micro_steps(c, micro_steps), "%s", c->difference);
    for (int i = 0; i < c->n; i++)
        seen[i] = remat_variable(c, i, "fp8.amax", &t);
    ck_assert_msg(remat_update(c), "%s", c->difference);
    for (int i = 0; i < c->n; i++) {
        if (delayed)
            check_pushed(c, i, before[i], seen[i], (int)t.dim[0]);
        free(before[i]);
        free(seen[i]);
    }
}

static void run_te_1190(remat_case *c, int micro_steps)
{
    scales s = {0};
    for (int i = 0; i < TE_STEPS; i++) {
        te_step(c, micro_steps);
        look_at_scales(c, &s);
    }
    ck_assert_int_ge(s.n, 2);
    for (int i = 0; i < s.n; i++)
        ck_assert_msg(s.moved[i], "%s: scale %d never changed", c->model.recipe, i);
    remat_check(c);
}

static remat_model te_model(const char *recipe, const char *dims)
{
    const bool kept = !strncmp(recipe, "delayed", 7); /* scales are variables */
    return (remat_model){.file = "tests/models/te_1190.f8",
                         .dims = dims,
                         .recipe = recipe,
                         .keep = kept ? NULL : "*.scale_inv"};
}

static const remat_way checkpointed = {.name = "checkpointed", .checkpoint = ""},
                       tightest = {.name = "the least", .least = true};

START_TEST(te_1190)
{
    const remat_model model = te_model("delayed", "N=768");
    remat_case c;
    remat_open(&c, &model);
    remat_add(&c, &checkpointed);
    remat_add(&c, &(remat_way){.name = "copies again", .recompute = "*.q"});
    remat_add(&c,
              &(remat_way){.name = "checkpointed, two threads", .checkpoint = "", .threads = 2});
    ck_assert_int_eq(c.n, 3);
    run_te_1190(&c, 1);
    remat_close(&c);
}
END_TEST

/* Three linears: the last one's copies are recomputed from what is itself recomputed, twice. */
START_TEST(te_1190_nested)
{
    const remat_model model = te_model(scaled[_i], "N=96 L=3");
    remat_case c;
    remat_open(&c, &model);
    ck_assert_int_ge(remat_depth(&c.other[remat_add(&c, &checkpointed)]), 2);
    remat_add(&c, &tightest);
    run_te_1190(&c, 1);
    remat_close(&c);
}
END_TEST

/* Four micro-steps, one update. */
START_TEST(te_1190_accumulated)
{
    const remat_model model = te_model(scaled[_i], "N=96 L=2");
    remat_case c;
    remat_open(&c, &model);
    remat_add(&c, &checkpointed);
    remat_add(&c, &tightest);
    run_te_1190(&c, 4);
    remat_close(&c);
}
END_TEST

/* ---- states ---- */

START_TEST(states_of_the_model)
{
    const remat_model model = {.file = "tests/models/running.f8", .recipe = some[_i]};
    remat_case c;
    remat_open(&c, &model);
    remat_add(&c, &checkpointed);
    remat_add(&c, &tightest);
    for (int i = 0; i < TE_STEPS; i++)
        ck_assert_msg(remat_micro_steps(&c, 2) && remat_update(&c), "%s", c.difference);
    remat_check(&c);
    remat_close(&c);
}
END_TEST

/* ---- broken: what would be wrong is seen ---- */

static f8_status recompute_in_groups(f8_unit *u, f8_func *f, f8_rewrite_fn rewrite)
{
    F8_TRY(f8_func_rewrite(f, rewrite, NULL));
    return f8_group_function(u, f, true);
}

static f8_ref doubled_scale(void *user, f8_graph *to, const f8_graph *from, f8_ref old,
                            const f8_ref *in)
{
    (void)user;
    const f8_node *n = f8_at(from, old);
    if (n->op != F8_OP_QUANTIZE || !f8_is_recomputed(from, old))
        return 0;
    const f8_ref with[] = {in[0], f8_binary(to, F8_OP_MUL, in[1], f8_const(to, 2))};
    return f8_make_clone(to, n->op, with, 2, n->attr, f8_op_facts(n->op)->n_attrs, n->clone);
}

/* What is quantized again reads another scale than at first. */
static f8_status other_scales(void *user, f8_unit *u, const char *pass)
{
    (void)user;
    f8_func *f = f8_module_find_func(u->module, "micro_step");
    return strcmp(pass, "remat") ? F8_OK : recompute_in_groups(u, f, doubled_scale);
}

static f8_port *result_of(f8_unit *u, const char *func, const char *var)
{
    f8_func *f = f8_module_find_func(u->module, func);
    for (size_t i = 0; i < f->n_out; i++)
        if (f->out[i].var >= 0 && !strcmp(u->module->var[f->out[i].var].name, var))
            return &f->out[i];
    ck_abort_msg("%s does not replace %s", func, var);
}

/* The report: what the backward sees reaches no scale. */
static f8_status backward_not_updated(void *user, f8_unit *u, const char *pass)
{
    (void)user;
    if (strcmp(pass, "scaling"))
        return F8_OK;
    f8_func *f = f8_module_find_func(u->module, "micro_step");
    f8_port *amax = result_of(u, "micro_step", "fp8.amax");
    const f8_ref before = f8_func_var(f, amax->var);
    const f8_elements *e = u->elements;
    while (e->var != amax->var)
        e++;
    f8_ref part[SCALES];
    for (int64_t i = 0; i < e->n; i++) {
        const char *dot = strrchr(e->name[i], '.');
        part[i] = f8_slice(f->graph, !strcmp(dot, ".dy") ? before : amax->ref, 0, i, i + 1);
    }
    amax = result_of(u, "micro_step", "fp8.amax");
    amax->ref = f8_concat(f->graph, part, (int)e->n, 0);
    return F8_OK;
}

/* Histories are pushed for what was computed, not for a step. */
static f8_status pushed_twice(void *user, f8_unit *u, const char *pass)
{
    (void)user;
    if (strcmp(pass, "scaling"))
        return F8_OK;
    f8_graph *g = f8_module_find_func(u->module, "update")->graph;
    f8_port *history = result_of(u, "update", "fp8.amax_history");
    const int64_t n = history->type.dim[1];
    const f8_ref part[] = {f8_slice(g, history->ref, 1, 0, 1),
                           f8_slice(g, history->ref, 1, 0, n - 1)};
    history->ref = f8_concat(g, part, 2, 1);
    return F8_OK;
}

static const struct {
    remat_way way;
    const char *seen_in; /* the variable that differs first */
} broken[] = {
    {{.name = "other scales", .checkpoint = "", .after = other_scales}, "grad."},
    {{.name = "backward not updated", .checkpoint = "", .after = backward_not_updated},
     "fp8.amax["},
    {{.name = "pushed twice", .checkpoint = "", .after = pushed_twice}, "fp8.amax_history["},
};
enum { BROKEN = sizeof broken / sizeof *broken };

START_TEST(te_1190_broken)
{
    const remat_model model = te_model("delayed", "N=96 L=2");
    remat_case c;
    remat_open(&c, &model);
    const int i = remat_add(&c, &broken[_i].way);
    ck_assert_int_gt(remat_count_recomputed(&c.other[i], F8_OP_QUANTIZE), 0);
    bool same = true;
    for (int k = 0; k < 2 && same; k++)
        same = remat_micro_steps(&c, 1) && remat_update(&c);
    ck_assert_msg(!same, "%s is not seen", broken[_i].way.name);
    ck_assert_msg(strstr(c.difference, broken[_i].seen_in), "%s", c.difference);
    remat_close(&c);
}
END_TEST

/* ---- every recipe, at budgets down to the least ---- */

/* Small enough for many; blocks of 32 and of 128 are ragged. A checkpoint at each layer keeps what
 * the blocks read. */
static const struct {
    const char *file, *dims, *checkpoint;
} models[] = {
    {"frontend/models/gpt.f8", "B=2 T=16 C=48 H=3 L=2 V=64", "x.*"},
    {"frontend/models/llama_block.f8", "B=2 T=16 C=32 F=80 H=4 KV=2 L=2 V=64", "x.*"},
    {"frontend/models/mpt_125m.f8", "B=1 T=32 C=48 H=3 L=2 V=64", "x.*"},
    {"frontend/models/llama3_8b_block.f8", "B=1 T=32 C=64 F=208 H=4 KV=1 L=1 V=64", "embedded"},
};
enum { MODELS = sizeof models / sizeof *models, ALL_STEPS = 50 };

/* Compiling takes the time, half a second each: without FP8C_REMAT each way is for the models whose
 * bit is set in `every` under every recipe, for those in `few` under `some`. */
static const struct {
    remat_way way;
    unsigned every, few;
} budgets[] = {
    {{.name = "the least", .least = true}, 1, 15},
    {{.name = "a share of 0.5", .share = 0.5}, 2, 3},
    {{.name = "a checkpoint at each layer", .checkpoint = "", .follows = true}, 0, 15},
    {{.name = "a share of 0.9", .share = 0.9, .follows = true}, 0, 0},
    {{.name = "a share of 0.7", .share = 0.7, .follows = true}, 0, 0},
    {{.name = "a share of 0.3", .share = 0.3, .follows = true}, 0, 0},
    {{.name = "nothing kept", .checkpoint = "", .follows = true}, 0, 0},
    {{.name = "all by name", .recompute = "*", .follows = true}, 0, 0},
};
enum { BUDGETS = sizeof budgets / sizeof *budgets, EACH_LAYER = 2 };

static bool all_of_them(void)
{
    const char *wish = getenv("FP8C_REMAT");
    return wish && !strcmp(wish, "all");
}

static bool is_some(const char *recipe)
{
    for (int i = 0; i < SOME_RECIPES; i++)
        if (!strcmp(recipe, some[i]))
            return true;
    return false;
}

/* At the least budget there is little to choose from: values are recomputed from recomputed values,
 * and more than once. If the planner gets by with less, this test needs a harder model. */
static void check_nested(const f8_compiled *p)
{
    ck_assert_int_ge(remat_depth(p), 2);
    ck_assert_int_ge(remat_most_again(p, F8_OP_QUANTIZE), 2);
}

/* In a model with layers a checkpoint at each layer saves memory, since only one layer's values are
 * recomputed at a time. */
static void check_checkpoints(const remat_case *c, const char *each_layer)
{
    for (int i = 0; i < c->n; i++) {
        const f8_remat_summary *r = &c->other[i].unit.remat;
        if (c->way[i].checkpoint == each_layer && !strcmp(each_layer, "x.*"))
            ck_assert_msg(r->after < r->before - r->activations_before / 4,
                          "%s, %s: an arena of %lld for %lld, %lld of them activations",
                          c->model.file, c->model.recipe, (long long)r->after, (long long)r->before,
                          (long long)r->activations_before);
    }
}

/* The first two models under every recipe, the others, built alike, under some. */
START_TEST(every_budget)
{
    const int model_index = _i / RECIPES;
    const char *recipe = recipes[_i % RECIPES];
    const bool all = all_of_them(), one_of_some = is_some(recipe);
    if (!all && !one_of_some && (model_index > 1 || f8_cli_sanitized()))
        return;
    const remat_model model = {
        .file = models[model_index].file, .dims = models[model_index].dims, .recipe = recipe};
    remat_case c;
    remat_open(&c, &model);
    for (int i = 0; i < BUDGETS; i++) {
        remat_way way = budgets[i].way;
        const unsigned chosen = one_of_some ? budgets[i].few : budgets[i].every;
        if (i == EACH_LAYER)
            way.checkpoint = models[model_index].checkpoint;
        if (all || chosen >> model_index & 1)
            remat_add(&c, &way);
    }
    float first = 0;
    for (int i = 0; i < ALL_STEPS; i++) {
        ck_assert_msg(remat_micro_steps(&c, 1) && remat_update(&c), "%s", c.difference);
        first = i ? first : c.loss;
    }
    ck_assert(c.loss != first);
    check_checkpoints(&c, models[model_index].checkpoint);
    if (model_index == 1 && one_of_some && strcmp(recipe, "f32"))
        check_nested(&c.other[0]);
    remat_check(&c);
    remat_close(&c);
}
END_TEST

/* Together with everything else: accumulation, threads, no fusion. */
START_TEST(every_way)
{
    const remat_model model = {
        .file = models[_i].file, .dims = models[_i].dims, .recipe = _i ? "rowwise" : "delayed"};
    remat_case c;
    remat_open(&c, &model);
    remat_add(&c, &(remat_way){.name = "two threads", .share = 0.5, .threads = 2, .follows = true});
    remat_add(&c,
              &(remat_way){.name = "not fused", .share = 0.5, .no_fuse = true, .follows = true});
    remat_add(
        &c, &(remat_way){
                .name = "two patterns", .checkpoint = "x.*", .recompute = "*.q", .follows = true});
    for (int i = 0; i < 3; i++)
        ck_assert_msg(remat_micro_steps(&c, 4) && remat_update(&c), "%s", c.difference);
    remat_check(&c);
    remat_close(&c);
}
END_TEST

/* ---- bytes in all ---- */

typedef struct outcome {
    fp8c_info info;
    unsigned char *state;
    size_t bytes;
    float loss;
    int64_t in_first; /* FP8 GEMMs in the form of micro_step for the first step */
} outcome;

/* FP8 GEMMs in the plan of a function. */
static int64_t fp8_gemms_of(fp8c_program *p, const char *name)
{
    const f8_plan_func *f = &p->now->plan.func[fp8c_program_function(p, name)];
    int64_t n = 0;
    for (uint32_t i = 0; i < f->n_steps; i++)
        n += f->step[i].fp8;
    return n;
}

static outcome train(const char *recipe, int64_t memory)
{
    static const fp8c_dim dims[] = {{"B", 2}, {"T", 64}, {"C", 48}, {"H", 3}, {"L", 2}, {"V", 64}};
    const f8_api_setup setup = {
        .file = "frontend/models/gpt.f8",
        .dims = dims,
        .n_dims = sizeof dims / sizeof *dims,
        .options = {.recipe = recipe, .threads = 1, .memory_bytes = memory}};
    f8_api_run r;
    outcome o = {0};
    ck_assert_msg(f8_api_open(&r, &setup), "%s", r.failed);
    for (uint64_t i = 0; i < 3; i++)
        o.loss = f8_api_step(&r, 64, i);
    ck_assert_msg(!r.failed, "%s", r.failed);
    o.state = f8_api_state(&r, &o.bytes);
    o.info.struct_size = sizeof o.info;
    fp8c_program_info(r.program, &o.info);
    ck_assert_int_eq(fp8_gemms_of(r.program, "micro_step"), o.info.fp8_gemms_planned);
    o.in_first = fp8_gemms_of(r.program, "micro_step.first");
    f8_api_close(&r);
    return o;
}

/* As an embedder asks for it: what is allocated is within the bytes, all of them, and every
 * variable is the same. */
START_TEST(bytes_in_all)
{
    static const char *const recipe = "delayed";
    const outcome plain = train(recipe, 0);
    const int64_t room = plain.info.planned_bytes - plain.info.arena_bytes * 3 / 10;
    const outcome less = train(recipe, room);
    ck_assert_int_le(less.info.planned_bytes, room);
    ck_assert_int_eq(less.info.peak_bytes, less.info.planned_bytes);
    /* each form recomputes what its own arena asks for */
    ck_assert_int_eq(plain.in_first, plain.info.fp8_gemms_planned);
    ck_assert_int_eq(less.info.fp8_gemms_executed, less.in_first + 2 * less.info.fp8_gemms_planned);
    ck_assert(!memcmp(&plain.loss, &less.loss, sizeof less.loss));
    ck_assert_uint_eq(plain.bytes, less.bytes);
    ck_assert(!memcmp(plain.state, less.state, less.bytes));
    free(plain.state);
    free(less.state);
}
END_TEST

/* Sanitizers see nothing of kernels, and what plans is the same in all recipes. */
Suite *f8_suite(void)
{
    const bool few = f8_cli_sanitized();
    Suite *s = suite_create("remat bits");
    TCase *te = tcase_create("TransformerEngine 1190");
    tcase_set_timeout(te, TIMEOUT);
    tcase_add_test(te, te_1190);
    tcase_add_loop_test(te, te_1190_nested, 0, few ? 1 : SCALED);
    tcase_add_loop_test(te, te_1190_accumulated, 0, few ? 1 : SCALED);
    tcase_add_loop_test(te, states_of_the_model, 0, few ? 1 : SOME_RECIPES);
    tcase_add_loop_test(te, te_1190_broken, 0, BROKEN);
    TCase *sweep = tcase_create("budgets");
    tcase_set_timeout(sweep, TIMEOUT);
    tcase_add_loop_test(sweep, every_budget, 0, few ? RECIPES : MODELS * RECIPES);
    tcase_add_loop_test(sweep, every_way, 0, few ? 1 : 2);
    tcase_add_test(sweep, bytes_in_all);
    suite_add_tcase(s, te);
    suite_add_tcase(s, sweep);
    return s;
}

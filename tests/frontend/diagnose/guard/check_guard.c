/* Guards through the public API: synthetic losses (healthy ones raise nothing, whatever the seed;
 * ones that diverge raise one alarm soon), scales that collapse, statistics, and the tensor that is
 * not finite. The limits were chosen on real runs with the seeds 101 to 106, and the rule for the
 * beginning also on these curves, with the seeds 1 to 60, 1001 to 1060 and 2001 to 2060. The test's
 * seeds are others. */
#include <math.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/diagnose/guard/judge.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/api_run.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

enum { STEPS = 600, SEEDS = 60, TURN = 300 };

/* ---- losses ---- */

/* About normal, of deviation 1. */
static double noise(uint32_t *seed)
{
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += test_random(seed) * 0x1p-24;
    return sum - 6;
}

/* A run of a language model: a warm-up that learns little, a fast fall, a slow one. */
static double learning(int t, double scatter, uint32_t *seed)
{
    const double level =
        t < 20 ? 5.5 - 0.01 * t : 2.2 + 2.6 * exp(-(t - 20) / 25.0) + 0.5 * exp(-t / 400.0);
    return level * (1 + scatter * noise(seed));
}

typedef double curve_fn(int t, uint32_t *seed);

static double quiet(int t, uint32_t *seed)
{
    return learning(t, 0.002, seed);
}

static double usual(int t, uint32_t *seed)
{
    return learning(t, 0.03, seed);
}

static double noisy(int t, uint32_t *seed)
{
    return learning(t, 0.15, seed);
}

/* Batches of a few rows. */
static double rows(int t, uint32_t *seed)
{
    return (0.4 + 0.7 * exp(-t / 60.0)) * exp(0.35 * noise(seed));
}

/* Three steps of up to 3.5 times the loss that fall back, now and then. */
static double spikes(int t, uint32_t *seed)
{
    static const double height[] = {3.5, 2.4, 1.4};
    const double x = usual(t, seed);
    return t % 97 >= 90 && t % 97 < 93 ? x * height[t % 97 - 90] : x;
}

/* A learning rate that is raised again: the loss goes up by a sixth and comes back. */
static double restart(int t, uint32_t *seed)
{
    const double x = usual(t, seed);
    return t > TURN ? x * (1 + 0.17 * exp(-(t - TURN) / 30.0)) : x;
}

static double plateau(int t, uint32_t *seed)
{
    (void)t;
    return 5.5 * (1 + 0.01 * noise(seed));
}

/* Without any noise, as where each batch is all of the data. */
static double exact(int t, uint32_t *seed)
{
    (void)seed;
    return 3 * exp(-t / 100.0);
}

/* A square error that comes near 0, where Adam makes spikes of hundreds of times the loss. */
static double small(int t, uint32_t *seed)
{
    const double x = (exp(-t / 20.0) + 1e-6) * exp(0.3 * noise(seed));
    return t > 200 && t % 50 < 12 ? x * 300 : x;
}

/* A log-likelihood: it goes through 0, and is below it then. */
static double density(int t, uint32_t *seed)
{
    return 3 - 6 * (1 - exp(-t / 80.0)) + 0.2 * noise(seed);
}

/* ---- and ones that go wrong in step TURN ---- */

static double grows(int t, uint32_t *seed)
{
    return usual(t, seed) * (t < TURN ? 1 : pow(1.05, t - TURN));
}

/* What it has learned is lost. */
static double forgets(int t, uint32_t *seed)
{
    return t < TURN ? usual(t, seed) : 5.5 * (1 + 0.03 * noise(seed));
}

static double leaps(int t, uint32_t *seed)
{
    return t < TURN ? usual(t, seed) : 400 * (1 + 0.1 * noise(seed));
}

/* From the first step on. */
static double never_learns(int t, uint32_t *seed)
{
    return 5.5 * pow(1.4, t < 12 ? t - 1 : 11) * (1 + 0.2 * noise(seed));
}

static double density_grows(int t, uint32_t *seed)
{
    return density(t, seed) + (t < TURN ? 0 : 0.2 * (t - TURN));
}

static fp8c_guard *new_guard(fp8c_context *ctx)
{
    fp8c_guard *g;
    ck_assert_msg(fp8c_guard_create(ctx, NULL, &g) == FP8C_OK, "%s", fp8c_context_message(ctx));
    return g;
}

/* How many alarms a step raises; *out: the first. */
static int judge(fp8c_guard *g, const fp8c_guard_facts *facts, fp8c_alarm *out)
{
    fp8c_alarm a = {.struct_size = sizeof a};
    int n = 0;
    ck_assert_int_eq(fp8c_guard_step(g, facts), FP8C_OK);
    for (; fp8c_guard_alarm(g, n, &a) == FP8C_OK; n++)
        if (n == 0)
            *out = a;
    return n;
}

static int judge_loss(fp8c_guard *g, int step, double loss, fp8c_alarm *out)
{
    const fp8c_guard_facts facts = {.struct_size = sizeof facts, .step = step, .loss = loss};
    return judge(g, &facts, out);
}

static const struct {
    curve_fn *curve;
    int turn; /* the step that goes wrong */
    int late; /* steps from there until the alarm, at most; 0: none may come */
} curves[] = {
    {quiet, 0, 0},         {usual, 0, 0},
    {noisy, 0, 0},         {rows, 0, 0},
    {spikes, 0, 0},        {restart, 0, 0},
    {plateau, 0, 0},       {exact, 0, 0},
    {small, 0, 0},         {density, 0, 0},
    {grows, TURN, 25},     {forgets, TURN, 5},
    {leaps, TURN, 1},      {density_grows, TURN, 25},
    {never_learns, 1, 14},
};
enum { CURVES = sizeof curves / sizeof *curves };

static fp8c_guard_info info_of(const fp8c_guard *g)
{
    fp8c_guard_info info = {.struct_size = sizeof info};
    fp8c_guard_report(g, &info);
    return info;
}

START_TEST(losses)
{
    fp8c_context *ctx = new_context();
    const int turn = curves[_i].turn, late = curves[_i].late;
    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        fp8c_guard *g = new_guard(ctx);
        fp8c_alarm a = {.struct_size = sizeof a};
        uint32_t random = (9000 + seed) * 7919;
        int raised = 0;
        for (int t = 1; t <= STEPS; t++) {
            const double x = curves[_i].curve(t, &random);
            const int n = judge_loss(g, t, x, &a);
            raised += n;
            ck_assert_msg(!n || late, "seed %u, step %d: %s", seed, t, a.text);
            if (!n)
                continue;
            ck_assert_int_eq(a.kind, FP8C_ALARM_LOSS_EXPLODES);
            ck_assert_msg(t >= turn && t < turn + late, "seed %u: at step %d: %s", seed, t, a.text);
            ck_assert(a.step == t && a.value == x && a.limit < x && a.tensor == NULL);
            ck_assert_msg(a.since >= turn - 1 && a.since < t, "since %ld", (long)a.since);
            ck_assert_int_eq(info_of(g).suspects, a.since);
        }
        ck_assert_int_eq(raised, late > 0); /* once: it does not recover */
        fp8c_guard_destroy(g);
    }
    fp8c_context_destroy(ctx);
}
END_TEST

/* While a spike lasts, and 7 steps longer, an alarm might come; an alarm comes again after it was
 * quiet for 8 steps. */
START_TEST(suspects_and_recovers)
{
    fp8c_context *ctx = new_context();
    fp8c_guard *g = new_guard(ctx);
    fp8c_alarm a = {.struct_size = sizeof a};
    int t;
    for (t = 1; t <= 40; t++)
        ck_assert_int_eq(judge_loss(g, t, 2 + 0.01 * (t % 3), &a), 0);
    t = 40;
    ck_assert_int_eq(info_of(g).suspects, 0);
    ck_assert_int_eq(judge_loss(g, ++t, 5, &a), 0);
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(info_of(g).suspects, 40);
        judge_loss(g, ++t, 2, &a);
    }
    ck_assert_int_eq(info_of(g).suspects, 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 20; i++)
            ck_assert_int_eq(judge_loss(g, ++t, 5, &a), i == 4);
        ck_assert(info_of(g).raised >> FP8C_ALARM_LOSS_EXPLODES & 1);
        for (int i = 0; i < 20; i++)
            ck_assert_int_eq(judge_loss(g, ++t, 2, &a), 0);
        ck_assert(!(info_of(g).raised >> FP8C_ALARM_LOSS_EXPLODES & 1));
    }
    for (int i = 0; i < 20; i++) { /* of one that is not finite the others learn nothing */
        ck_assert_int_eq(judge_loss(g, ++t, i % 2 ? NAN : INFINITY, &a), i == 0);
        ck_assert(i || a.kind == FP8C_ALARM_LOSS_NONFINITE);
        ck_assert(i || a.since == t);
    }
    ck_assert_int_eq(judge_loss(g, ++t, 2, &a), 0);
    fp8c_guard_destroy(g);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(kinds_and_options)
{
    fp8c_context *ctx = new_context();
    fp8c_guard *g;
    const fp8c_guard_options wrong = {0};
    const fp8c_guard_facts unset = {0};
    ck_assert_int_eq(fp8c_guard_create(ctx, &wrong, &g), FP8C_ERR_INPUT);
    said(ctx, "fp8c_guard_options has struct_size 0");
    ck_assert_ptr_null(g);
    g = new_guard(ctx);
    ck_assert_int_eq(fp8c_guard_step(g, &unset), FP8C_ERR_INPUT);
    said(ctx, "fp8c_guard_facts has struct_size 0");
    fp8c_guard_destroy(g);
    fp8c_guard_destroy(NULL);
    ck_assert_str_eq(fp8c_name(FP8C_NAME_ALARM, FP8C_ALARM_LOSS_EXPLODES), "loss_explodes");
    ck_assert_str_eq(fp8c_name(FP8C_NAME_ALARM, FP8C_ALARM_OVERFLOW), "overflow");
    ck_assert_str_eq(fp8c_name(FP8C_NAME_ALARM, FP8C_ALARM_RANGE), "range");
    ck_assert_ptr_null(fp8c_name(FP8C_NAME_ALARM, FP8C_ALARM_RANGE + 1));
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- scales ---- */

static fp8c_program *new_program(fp8c_context *ctx, const char *text, fp8c_compile_options o)
{
    fp8c_module *m = parse(ctx, text);
    fp8c_program *p = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    fp8c_module_destroy(m);
    return p;
}

static void write_scale(fp8c_program *p, int64_t element, float value)
{
    const int v = fp8c_program_find_variable(p, "fp8.scale");
    float scale[64];
    fp8c_variable of;
    ck_assert_int_eq(fp8c_program_variable(p, v, &of), FP8C_OK);
    ck_assert_int_le(fp8c_type_bytes(&of.type), (int64_t)sizeof scale);
    ck_assert_int_eq(fp8c_program_read(p, v, scale), FP8C_OK);
    scale[element] = value;
    ck_assert_int_eq(fp8c_program_write(p, v, scale), FP8C_OK);
}

static fp8c_guard_facts facts_of(fp8c_program *p, int step, int function)
{
    return (fp8c_guard_facts){.struct_size = sizeof(fp8c_guard_facts),
                              .step = step,
                              .loss = 2,
                              .grad_norm = 1,
                              .program = p,
                              .function = function};
}

/* From step 21 on a scale has a value, at first it is 1. */
START_TEST(scales)
{
    static const struct {
        float value;
        bool raises;
    } want[] = {{1e-4f, true}, {1e4f, true}, {1e-3f, false},  {3e3f, false},
                {0, true},     {NAN, true},  {INFINITY, true}};
    fp8c_context *ctx = new_context();
    fp8c_program *p = new_program(ctx, model, recipe("delayed"));
    const char *operand = fp8c_program_element(p, fp8c_program_find_variable(p, "fp8.scale"), 1, 0);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        fp8c_guard *g = new_guard(ctx);
        fp8c_alarm a = {.struct_size = sizeof a};
        for (int t = 1; t <= 60; t++) {
            const fp8c_guard_facts facts = facts_of(p, t, 0);
            write_scale(p, 1, t > 20 ? want[i].value : 1);
            ck_assert_int_eq(judge(g, &facts, &a), t == 21 && want[i].raises);
            if (t != 21 || !want[i].raises)
                continue;
            ck_assert_int_eq(a.kind, FP8C_ALARM_SCALE);
            ck_assert_str_eq(a.tensor, operand);
            ck_assert(!memcmp(&(float){(float)a.value}, &want[i].value, 4) || isnan(a.value));
            ck_assert(isnan(a.limit) || a.limit == (a.value < 1 ? 0x1p-12 : 0x1p12));
            ck_assert_msg(strstr(a.text, operand), "%s", a.text);
        }
        fp8c_guard_destroy(g);
    }
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* With fewer than eight values nothing is compared; what was far by then is dated afterwards. */
START_TEST(scale_ago)
{
    float ring[F8_SCALE_KEPT];
    double limit;
    int64_t ago;
    for (int64_t n = 0; n < 8; n++)
        ck_assert(!f8_judge_scale(ring, n, n < 5 ? 1 : 1e-9F, &limit, &ago) && ago == 0);
    ck_assert(f8_judge_scale(ring, 8, 1e-9F, &limit, &ago));
    ck_assert_int_eq(ago, 3);
    ck_assert(limit == 0x1p-12);
    ck_assert(!f8_judge_scale(ring, 9, 1, &limit, &ago) && ago == 0);
    /* beyond the other limit is another alarm */
    ck_assert(f8_judge_scale(ring, 10, 1e9F, &limit, &ago));
    ck_assert_int_eq(ago, 0);
}
END_TEST

/* ---- statistics ---- */

/* A scale that is far too small makes an operand underflow, one that is too large saturates it. The
 * third look in a row raises the alarm; figures of a recipe that is not used raise none. The fourth
 * look says that the small one uses little of the range, too. */
START_TEST(statistics)
{
    static const struct {
        float scale;
        fp8c_alarm_kind kind;
    } want[] = {{1e-9f, FP8C_ALARM_UNDERFLOW}, {1e9f, FP8C_ALARM_OVERFLOW}};
    fp8c_context *ctx = new_context();
    fp8c_compile_options o = recipe("delayed");
    o.stats = "fc.x";
    o.stats_recipe = "current";
    fp8c_program *p = new_program(ctx, model, o);
    const int stats = fp8c_program_function(p, "micro_step.stats"),
              scale = fp8c_program_find_variable(p, "fp8.scale");
    int64_t x = 0;
    while (strcmp(fp8c_program_element(p, scale, x, 0), "fc.x"))
        x++;
    train_step(p); /* from here on the scale that is kept counts */
    for (size_t i = 0; i < 2; i++) {
        const fp8c_guard_options options = {.struct_size = sizeof options, .scale_every = -1};
        fp8c_alarm a = {.struct_size = sizeof a, .tensor = ""};
        fp8c_guard *g;
        ck_assert_int_eq(fp8c_guard_create(ctx, &options, &g), FP8C_OK);
        for (int t = 1; t <= 6; t++) {
            const fp8c_guard_facts facts = facts_of(p, t, stats);
            fill_batch(p, stats);
            write_scale(p, x, want[i].scale);
            ck_assert_int_eq(fp8c_program_run(p, stats), FP8C_OK);
            ck_assert_int_eq(judge(g, &facts, &a), t == 3 || (t == 4 && i == 0));
            if (t == 3) {
                ck_assert_int_eq(a.kind, want[i].kind);
                ck_assert_int_eq(a.since, 1); /* the first of the three looks */
                ck_assert_msg(a.value > 0.5 && a.others == 0, "%s", a.text);
            }
            ck_assert_str_eq(a.tensor, t < 3 ? "" : "fc.x");
        }
        ck_assert_int_eq(a.kind, i ? FP8C_ALARM_OVERFLOW : FP8C_ALARM_RANGE);
        ck_assert_msg(i || strstr(a.text, "its scale is 1e-09, and its largest value"), "%s",
                      a.text);
        const fp8c_guard_facts plain = facts_of(p, 7, fp8c_program_function(p, "micro_step"));
        ck_assert_int_eq(judge(g, &plain, &a), 0);
        fp8c_guard_destroy(g);
    }
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A tiny GPT trained with all statistics. `says`: what the only alarm says, in step `step`; NULL:
 * no recipe that is as it should be raises one. */
static const struct {
    const char *recipe, *says;
    int step;
} ranges[] = {
    {"delayed", NULL, 0},
    {"current", NULL, 0},
    {"rowwise", NULL, 0},
    {"rowwise_gw_hp", NULL, 0},
    {"block", NULL, 0},
    {"mxfp8", NULL, 0},
    {"fake", NULL, 0},
    {"current {pow2 = true}", NULL, 0},
    {"rowwise {margin = 3}", NULL, 0},
    {"current {margin = 8}",
     "'h.0.attn.c_attn.x' uses 0.391% of the range of f8e4m3 (median of its last looks; the limit "
     "is "
     "6.25%): 'margin = 8' makes its scales 2^8 times smaller",
     4},
    {"delayed {margin = 8}", "'margin = 8' makes its scales 2^8 times smaller", 4},
    {"block {margin = 5}", "'margin = 5' makes its scales 2^5 times smaller", 4},
};

START_TEST(range_in_use)
{
    static const fp8c_dim dims[] = {{"B", 2}, {"T", 16}, {"C", 32}, {"H", 2}, {"L", 1}};
    const f8_api_setup setup = {
        .file = "frontend/models/gpt.f8",
        .dims = dims,
        .n_dims = 5,
        .options = {.recipe = ranges[_i].recipe, .stats = "*", .threads = 1}};
    f8_api_run r;
    ck_assert_msg(f8_api_open(&r, &setup), "%s", r.failed);
    fp8c_guard *g = new_guard(r.ctx);
    fp8c_alarm a = {.struct_size = sizeof a};
    r.step = fp8c_program_function(r.program, "micro_step.stats");
    for (int t = 1; t <= 40; t++) {
        const bool raises = ranges[_i].says && t == ranges[_i].step;
        fp8c_guard_facts facts = facts_of(r.program, t, r.step);
        facts.loss = (double)f8_api_step(&r, 256, (uint64_t)t);
        const int n = judge(g, &facts, &a);
        ck_assert_msg(n == raises, "%s, step %d: %s", ranges[_i].recipe, t, n ? a.text : "nothing");
        if (!raises)
            continue;
        ck_assert_int_eq(a.kind, FP8C_ALARM_RANGE);
        ck_assert_msg(strstr(a.text, ranges[_i].says) != NULL, "%s", a.text);
        ck_assert_int_gt(a.others, 3);
        ck_assert_double_eq(a.limit, 0.0625);
        ck_assert_str_eq(a.role, "operand");
        ck_assert(!strncmp(a.text + 1, a.tensor, strlen(a.tensor)));
    }
    fp8c_guard_destroy(g);
    f8_api_close(&r);
}
END_TEST

/* ---- what is not finite ---- */

/* At 0 the derivative of a square root is Inf: the loss is finite, and the gradient of z is not. */
static const char root[] =
    "module root\n"
    "param w: f32[6, 3] normal(0.5)\n"
    "param z: f32[4] zeros\n"
    "state seen: f32[] zeros\n"
    "func forward(%x: f32[4, 6], %label: i32[4]) -> (%loss: f32[]) {\n"
    "  %r = reshape(reduce_sum(sqrt(mul(z, z))) {axis = 0}) {shape = []}\n"
    "  return add(cross_entropy(linear(%x, w), %label), %r), seen <- add(seen, 1)\n"
    "}\n"
    "optimizer adamw {lr = 0.05}\n";

static void *port(fp8c_program *p, int f, fp8c_side side, const char *name)
{
    return fp8c_program_buffer(p, f, side, fp8c_program_find_port(p, f, side, name));
}

static unsigned char *all_bytes(fp8c_program *p, size_t *n)
{
    fp8c_variable v;
    unsigned char *all = malloc(1 << 16);
    *n = 0;
    for (int i = 0; fp8c_program_variable(p, i, &v) == FP8C_OK; i++) {
        ck_assert_int_eq(fp8c_program_read(p, i, all + *n), FP8C_OK);
        *n += (size_t)fp8c_type_bytes(&v.type);
        ck_assert_uint_lt(*n, 1 << 16);
    }
    return all;
}

static fp8c_found find(fp8c_program *p, int function, int again)
{
    fp8c_found f = {.struct_size = sizeof f};
    size_t n, m;
    unsigned char *before = all_bytes(p, &n);
    ck_assert_int_eq(fp8c_program_find_nonfinite(p, function, again, &f), FP8C_OK);
    unsigned char *after = all_bytes(p, &m);
    ck_assert(n == m && !memcmp(before, after, n)); /* it leaves no trace */
    free(before);
    free(after);
    return f;
}

static void is(const fp8c_found *f, const char *role, const char *tensor, int64_t index)
{
    ck_assert_pstr_eq(f->tensor, tensor);
    ck_assert_pstr_eq(f->role, role);
    ck_assert_int_eq(f->index, index);
}

START_TEST(found)
{
    fp8c_context *ctx = new_context();
    fp8c_program *p = new_program(ctx, root, recipe("f32"));
    const int step = fp8c_program_function(p, "micro_step"),
              update = fp8c_program_function(p, "update");
    float *x = port(p, step, FP8C_INPUT, "x"), w[18];
    int32_t *label = port(p, step, FP8C_INPUT, "label");
    for (int i = 0; i < 24; i++)
        x[i] = (float)(i % 5) - 2;
    for (int i = 0; i < 4; i++)
        label[i] = i % 3;
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
    ck_assert(isfinite(*(float *)port(p, step, FP8C_OUTPUT, "loss")));
    fp8c_found f = find(p, step, 0);
    is(&f, "gradient", "grad.z", 0);
    ck_assert(f.nonfinite == 4 && f.elements == 4 && f.others == 0 && isnan(f.value));
    ck_assert_int_eq(fp8c_program_run(p, update), FP8C_OK);
    ck_assert(*(float *)port(p, update, FP8C_OUTPUT, "skipped") == 1);
    f = find(p, step, 0);
    ck_assert_ptr_null(f.tensor); /* update has cleared it */
    f = find(p, step, 1);
    is(&f, "gradient", "grad.z", 0);
    const int v = fp8c_program_find_variable(p, "w");
    ck_assert_int_eq(fp8c_program_read(p, v, w), FP8C_OK);
    w[7] = w[9] = INFINITY;
    ck_assert_int_eq(fp8c_program_write(p, v, w), FP8C_OK);
    f = find(p, step, 1);
    is(&f, "parameter", "w", 7);
    ck_assert(f.nonfinite == 2 && isinf(f.value));
    x[23] = NAN;
    f = find(p, step, 1);
    is(&f, "input", "x", 23);
    fp8c_alarm a = {.struct_size = sizeof a};
    fp8c_guard *g = new_guard(ctx);
    fp8c_guard_facts facts = facts_of(p, 9, step);
    facts.loss = NAN;
    facts.found = &f;
    ck_assert_int_eq(judge(g, &facts, &a), 1);
    ck_assert_str_eq(a.text, "the loss is not finite: input 'x' has nan at element 23 (1 of 24)");
    ck_assert(a.since == 9);
    fp8c_guard_destroy(g);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("guard");
    TCase *t = tcase_create("guard");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, losses, 0, CURVES);
    tcase_add_test(t, suspects_and_recovers);
    tcase_add_test(t, kinds_and_options);
    tcase_add_test(t, scales);
    tcase_add_test(t, scale_ago);
    tcase_add_test(t, statistics);
    tcase_add_loop_test(t, range_in_use, 0, (int)(sizeof ranges / sizeof *ranges));
    tcase_add_test(t, found);
    suite_add_tcase(s, t);
    return s;
}

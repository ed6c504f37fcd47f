/* The witness on the CPU: runs under observation have the bits of plain ones, and what is right is
 * called right. Faults that are put in (tests/faults) are found in the values that have them, and
 * in no others. */
#include <math.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_ranks.h"
#include "tests/faults/fault.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/rank_case.h"
#include "tests/shared/api/witness_case.h"
#include "tests/shared/suite.h"

static const char *const recipes[] = {"bf16", "delayed", "current", "rowwise", "block"};
enum { RECIPES = sizeof recipes / sizeof *recipes };

START_TEST(agrees)
{
    witness_agrees("cpu", recipes[_i], 2);
}
END_TEST

START_TEST(agrees_in_parts)
{
    witness_size = witness_larger;
    witness_agrees("cpu", recipes[_i], 1);
}
END_TEST

/* ---- faults ---- */

typedef struct fault_case {
    const char *fault;
    const char *wrong; /* the value that must be called wrong, or several; NULL: none */
    int values;        /* how many are */
    int64_t n, at;     /* its wrong elements, and the first; n -1: any */
    int happened;      /* how often the fault was put in */
} fault_case;

static const fault_case faults[] = {
    {"kind=flip,value=h.1.mlp.c_fc.x.q,step=2,element=5,bit=6", "h.1.mlp.c_fc.x.q", 1, 1, 5, 1},
    {"kind=flip,value=loss,step=2,bit=0", "loss", 1, 1, 0, 1},
    {"kind=flip,function=update,value=h.0.ln_1.weight,step=2,element=31,bit=12", "h.0.ln_1.weight",
     1, 1, 31, 1},
    {"kind=flip,function=eval,value=x.0,step=2,element=2,bit=0", "x.0", 1, 1, 2, 1},
    {"kind=corrupt,value=d.x.0,step=2,element=3,count=10", "d.x.0", 1, 10, 3, 1},
    {"kind=corrupt,value=r.0,step=1,when=always,count=1", "r.0", 2, 1, 0, 2},
    {"kind=flip,value=#0,step=2,element=7,bit=3", "embedded", 1, 1, 7, 1},
    {"kind=gemm,value=h.0.mlp.c_fc.wgrad,step=2,element=40,factor=1.1", "h.0.mlp.c_fc.wgrad", 1, 1,
     40, 1},
    {"kind=gemm,value=h.0.mlp.c_fc.wgrad,step=2,factor=1.0000002", NULL, 0, 0, 0, 1},
    {"kind=gemm,value=h.1.attn.c_attn.fprop,step=2", "h.1.attn.c_attn.fprop", 1, 1, -1, 1},
    {"kind=stale,step=2", "fp8.scale fp8.amax_history", 2, -1, -1, 2},
    {"kind=stale,value=fp8.scale,step=2", "fp8.scale", 1, -1, -1, 1},
    {"kind=zero,value=h.0.ln_1.weight,step=2", "grad.h.0.ln_1.weight", 1, 32, 0, 1},
    {"kind=flip,value=x.0,step=2,bit=3,rank=1", NULL, 0, 0, 0, 0},
    {"kind=flip,value=x.0,step=2,bit=3,recipe=block", NULL, 0, 0, 0, 0},
};

/* Faults in parts after the first, or across the end of a part. */
static const fault_case faults_in_parts[] = {
    {"kind=flip,value=r.0,step=2,element=24000,bit=3", "r.0", 1, 1, 24000, 1},
    {"kind=corrupt,value=r.0,step=2,element=16380,count=10", "r.0", 1, 10, 16380, 1},
    {"kind=flip,function=update,value=h.0.mlp.c_fc.weight,step=2,element=65000,bit=12",
     "h.0.mlp.c_fc.weight", 1, 1, 65000, 1},
    {"kind=flip,function=update,value=wte.weight,step=2,element=32767,bit=12", "wte.weight", 1, 1,
     32767, 1},
    {"kind=gemm,value=h.0.mlp.c_fc.wgrad,step=2,element=60000,factor=1.1", "h.0.mlp.c_fc.wgrad", 1,
     1, 60000, 1},
    {"kind=flip,value=h.0.mlp.c_fc.x.q,step=2,element=20000,bit=6", "h.0.mlp.c_fc.x.q", 1, 1, 20000,
     1},
};

static f8_fault parsed(const char *text)
{
    char why[F8_FAULT_WHY];
    f8_fault f;
    ck_assert_msg(f8_fault_parse(text, &f, why), "%s: %s", text, why);
    return f;
}

static void judge(const fault_case *c, const witness_log *l)
{
    ck_assert_msg(l->wrong == c->values, "%s: %d values are wrong", c->fault, l->wrong);
    for (int i = 0; i < l->n; i++) {
        const witness_said *s = &l->value[i];
        if (s->verdict == FP8C_RIGHT)
            continue;
        ck_assert_msg(s->verdict == FP8C_WRONG && strstr(c->wrong, s->value), "%s: %s", c->fault,
                      s->value);
        ck_assert_msg((c->n < 0 || s->wrong == c->n) && (c->at < 0 || s->at == c->at),
                      "%s: %d elements, the first %d", c->fault, (int)s->wrong, (int)s->at);
        ck_assert(fabs(s->got - s->want) > s->allowed);
    }
}

static void find(const fault_case *c)
{
    const f8_fault f = parsed(c->fault);
    f8_api_run r;
    witness_log l = witness_new_log();
    float loss[2];
    f8_fault_use(&f, NULL);
    witness_begin(&r, "cpu", "delayed", true);
    for (int s = 0; s < 2; s++)
        witness_step(&r, (uint64_t)s, true, &l, loss);
    ck_assert_int_eq(f8_fault_count(), c->happened);
    f8_fault_use(NULL, NULL);
    judge(c, &l);
    free(l.value);
    f8_api_close(&r);
}

START_TEST(faults_are_found)
{
    find(&faults[_i]);
}
END_TEST

START_TEST(faults_are_found_in_parts)
{
    witness_size = witness_larger;
    find(&faults_in_parts[_i]);
}
END_TEST

START_TEST(wrong_faults)
{
    static const char *const wrong[][2] = {
        {"kind=flop,step=1", "kind=flop: not one of"},
        {"kind=flip,step=1", "value=... is missing"},
        {"kind=flip,value=x", "step=... is missing"},
        {"kind=flip,value=x,step=0", "step=0: not such a number"},
        {"kind=flip,value=x,step=1,size=3", "size=3: no such key"},
        {"kind=flip,value=x,step=1,function=forwards", "function=forwards: no function"},
        {"kind=flip,value=x,step=1,when=never", "when=never: not once or always"},
        {"kind=flip,value=x,step=1,target=cuda", "target=cuda: only kinds inf, nan and bit"},
        {"flip", "flip=: KEY=VALUE is wanted"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char why[F8_FAULT_WHY];
        f8_fault f;
        ck_assert_msg(!f8_fault_parse(wrong[i][0], &f, why), "%s", wrong[i][0]);
        ck_assert_msg(strstr(why, wrong[i][1]) != NULL, "%s: %s", wrong[i][0], why);
    }
}
END_TEST

/* What a program can't have ends the process with exit code 2. */
START_TEST(impossible_faults)
{
    static const char *const impossible[] = {"kind=gemm,value=nonsense,step=1",
                                             "kind=flip,value=#9999,step=1",
                                             "kind=gemm,value=x.0,step=1",
                                             "kind=flip,value=x.0,step=1,element=2048",
                                             "kind=flip,value=x.0,step=1,bit=16",
                                             "kind=inf,value=nonsense,step=1",
                                             "kind=nan,step=1"};
    const f8_fault f = parsed(impossible[_i]);
    f8_api_run r;
    f8_fault_use(&f, NULL);
    witness_begin(&r, "cpu", "bf16", true);
}
END_TEST

/* ---- NaN and Inf ---- */

/* The first value with NaN or Inf. */
static const witness_said *first_nonfinite(const witness_log *l)
{
    for (int i = 0; i < l->n; i++)
        if (l->value[i].nonfinite)
            return &l->value[i];
    ck_abort_msg("no value has NaN or Inf");
    return NULL;
}

START_TEST(inf_in_a_weight)
{
    const f8_fault f = parsed("kind=inf,value=h.1.mlp.c_proj.weight,step=1,element=77");
    f8_api_run r;
    witness_log l = witness_new_log();
    f8_fault_use(&f, NULL);
    witness_begin(&r, "cpu", _i ? "rowwise" : "bf16", true);
    f8_api_batch(&r, WITNESS_BYTES, 0);
    witness_run(&r, "micro_step", true, &l);
    ck_assert_int_eq(f8_fault_count(), 1);
    f8_fault_use(NULL, NULL);
    const witness_said *s = first_nonfinite(&l);
    ck_assert_str_eq(s->input, "h.1.mlp.c_proj.weight");
    ck_assert_str_eq(s->op, "");
    ck_assert_int_eq(l.wrong, 0);
    for (int i = 0; i < l.n; i++) /* each says where it has them from */
        ck_assert_msg(!l.value[i].nonfinite == !(*l.value[i].input || *l.value[i].op), "%s",
                      l.value[i].value);
    free(l.value);
    f8_api_close(&r);
}
END_TEST

static const char overflows[] =
    "module overflows\nparam w: f32[8, 8] ones\n"
    "func forward(%x: f32[4, 8], %g: f32[]) -> (%loss: f32[]) {\n"
    "  %y = cast(linear(mul(%x, %g), w) {name = \"fc\"})\n"
    "  return reshape(reduce_sum(mul(%y, %y)) {axes = [0, 1]}) {shape = []}\n"
    "}\noptimizer adamw {lr = 0.001}\n";

static float *input(fp8c_program *p, int f, const char *name)
{
    return fp8c_program_buffer(p, f, FP8C_INPUT, fp8c_program_find_port(p, f, FP8C_INPUT, name));
}

/* The same, with an Inf that does no harm in the kernel that makes the other. */
static const char harmless[] = "module harmless\nparam w: f32[8, 8] ones\n"
                               "func forward(%x: f32[4, 8], %g: f32[]) -> (%loss: f32[]) {\n"
                               "  %scale = select(eq(%g, 0.0), 1.0, div(1.0, %g))\n"
                               "  %y = cast(linear(mul(mul(%x, %scale), %x), w) {name = \"fc\"})\n"
                               "  return reshape(reduce_sum(%y) {axes = [0, 1]}) {shape = []}\n"
                               "}\noptimizer adamw {lr = 0.001}\n";

/* Runs micro_step with all x the same. */
static void run_overflowing(const char *text, float x, float gain, witness_log *l)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, text);
    fp8c_compile_options o = recipe("bf16");
    o.witness = 1;
    fp8c_program *p = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    const int f = fp8c_program_function(p, "micro_step");
    for (int i = 0; i < 32; i++)
        input(p, f, "x")[i] = x;
    *input(p, f, "g") = gain;
    ck_assert_int_eq(fp8c_program_run_witnessed(p, f, 1, witness_note, l), FP8C_OK);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}

/* Of finite operands a kernel's op makes Inf, or a product does. */
START_TEST(an_op_overflows)
{
    static const char *const text[] = {overflows, overflows, harmless};
    static const float x[] = {1e30f, 3e38f, 1e30f}, gain[] = {1e30f, 1, 0};
    static const char *const op[] = {"mul", "matmul", "mul"};
    witness_log l = witness_new_log();
    run_overflowing(text[_i], x[_i], gain[_i], &l);
    const witness_said *s = first_nonfinite(&l);
    ck_assert_msg(!strcmp(s->op, op[_i]) && !*s->input, "%s: op '%s', input '%s'", s->value, s->op,
                  s->input);
    ck_assert_int_eq(l.wrong, 0);
    free(l.value);
}
END_TEST

START_TEST(nan_in_a_batch)
{
    const f8_fault f = parsed("kind=nan,step=1,element=9");
    witness_log l = witness_new_log();
    f8_fault_use(&f, NULL);
    run_overflowing(overflows, 1, 1, &l);
    ck_assert_int_eq(f8_fault_count(), 1);
    f8_fault_use(NULL, NULL);
    const witness_said *s = first_nonfinite(&l);
    ck_assert_str_eq(s->input, "x");
    ck_assert_str_eq(s->op, "");
    ck_assert_int_eq(l.wrong, 0);
    free(l.value);
}
END_TEST

/* ---- ranks ---- */

static void fill_ids(const rank_case *c, int rank, int batch, const char *port,
                     const fp8c_type *type, void *data)
{
    (void)c;
    for (int64_t i = 0; i < type->dim[0]; i++)
        ((int32_t *)data)[i] = (int32_t)((i * 7 + rank * 5 + batch * 3 + (*port == 'x')) % V);
}

/* The ranks' last step: with the witness, or plain. */
static void witnessed_step(rank_case *c, const fp8c_comm *comm, const fp8c_program *program)
{
    static const char *const functions[] = {"micro_step", "update"};
    fp8c_program *p = (fp8c_program *)(uintptr_t)program;
    witness_log l = witness_new_log();
    (void)c;
    for (int i = 0; i < 2; i++) {
        const int f = fp8c_program_function(p, functions[i]);
        ck_assert_int_eq(fp8c_program_run_witnessed(p, f, 1, witness_note, &l), FP8C_OK);
    }
    int collectives = 0;
    for (int i = 0; i < l.n; i++) {
        ck_assert_msg(l.value[i].verdict != FP8C_WRONG, "rank %d: %s", comm->rank,
                      l.value[i].value);
        collectives += l.value[i].verdict == FP8C_NOT_JUDGED;
    }
    ck_assert_int_gt(collectives, 0);
    ck_assert_int_gt(l.n, 4 * collectives);
    free(l.value);
}

static void plain_step(rank_case *c, const fp8c_comm *comm, const fp8c_program *program)
{
    static const char *const functions[] = {"micro_step", "update"};
    fp8c_program *p = (fp8c_program *)(uintptr_t)program;
    (void)c, (void)comm;
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, functions[i])), FP8C_OK);
}

START_TEST(ranks_that_share)
{
    static rank_case plain, witnessed;
    plain = (rank_case){.text = model,
                        .options = {.recipe = _i % 2 ? "delayed" : "block", .zero = _i},
                        .ranks = 2,
                        .steps = 1,
                        .fill = fill_ids,
                        .at_end = plain_step};
    witnessed = plain;
    witnessed.options.witness = 1;
    witnessed.at_end = witnessed_step;
    rank_case_run(&plain);
    rank_case_run(&witnessed);
    for (int r = 0; r < 2; r++)
        rank_case_same(&plain, r, &witnessed, r, "under the witness");
    rank_case_end(&plain);
    rank_case_end(&witnessed);
}
END_TEST

/* Which values are wrong on this rank: rank 1's product alone. */
static void one_wrong_rank(rank_case *c, const fp8c_comm *comm, const fp8c_program *program)
{
    fp8c_program *p = (fp8c_program *)(uintptr_t)program;
    witness_log l = witness_new_log();
    (void)c;
    ck_assert_int_eq(
        fp8c_program_run_witnessed(p, fp8c_program_function(p, "micro_step"), 1, witness_note, &l),
        FP8C_OK);
    ck_assert_int_eq(l.wrong, comm->rank);
    for (int i = 0; i < l.n; i++)
        ck_assert(l.value[i].verdict != FP8C_WRONG || !strcmp(l.value[i].value, "fc.fprop"));
    free(l.value);
}

START_TEST(a_fault_of_one_rank)
{
    static rank_case c;
    const f8_fault f = parsed("kind=gemm,value=fc.fprop,step=2,rank=1,factor=2");
    c = (rank_case){.text = model,
                    .options = {.recipe = "bf16", .witness = 1},
                    .ranks = 2,
                    .steps = 1,
                    .fill = fill_ids,
                    .at_end = one_wrong_rank};
    f8_fault_use(&f, NULL);
    rank_case_run(&c);
    ck_assert_int_eq(f8_fault_count(), 1);
    f8_fault_use(NULL, NULL);
    rank_case_end(&c);
}
END_TEST

/* ---- bad use ---- */

START_TEST(without_the_option)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("bf16");
    fp8c_program *p = compile(ctx, m, &o);
    witness_log l = witness_new_log();
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_run_witnessed(p, 0, 1, witness_note, &l), FP8C_ERR_INPUT);
    said(ctx, "compiled without `witness`");
    ck_assert_int_eq(fp8c_program_run_witnessed(p, 99, 1, witness_note, &l), FP8C_ERR_INPUT);
    ck_assert_int_eq(l.n, 0);
    ck_assert_int_eq(fp8c_program_run_witnessed(p, 0, 1, NULL, NULL), FP8C_ERR_INPUT);
    said(ctx, "`fn` is NULL");
    free(l.value);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(refusals)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("bf16");
    fp8c_program *p;
    o.witness = 1;
    ck_assert_int_eq(fp8c_compile_file(m, &o, 1, "unwritten.f8x"), FP8C_ERR_INPUT);
    said(ctx, "witness");
    o.target = "reference";
    ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_UNSUPPORTED);
    said(ctx, "target reference is the witness");
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- a callback that calls back ---- */

typedef struct meddler {
    fp8c_context *ctx;
    fp8c_program *program;
    int function, what, calls;
} meddler;

static void meddle(void *user, const fp8c_witnessed *v)
{
    meddler *m = user;
    fp8c_program *p = m->program;
    fp8c_status status = FP8C_OK;
    if (m->calls++)
        return;
    switch (m->what) {
    case 0: status = fp8c_program_run(p, m->function); break;
    case 1: status = fp8c_program_run_witnessed(p, m->function, 1, meddle, user); break;
    case 2: status = fp8c_program_initialize(p, 2); break;
    default: status = fp8c_program_call(p, m->function, NULL, 0, NULL, 0); break;
    }
    ck_assert_int_eq(status, FP8C_ERR_INPUT);
    said(m->ctx, "the callback of fp8c_program_run_witnessed");
    ck_assert_int_eq(v->function, m->function);
}

/* Is refused, and the run goes on as if it had not. */
START_TEST(meddling)
{
    float loss[2][2];
    f8_api_run r[2];
    for (int k = 0; k < 2; k++) {
        witness_begin(&r[k], "cpu", "bf16", true);
        meddler m = {r[k].ctx, r[k].program, r[k].step, _i, k};
        f8_api_batch(&r[k], WITNESS_BYTES, 0);
        ck_assert_int_eq(fp8c_program_run_witnessed(m.program, m.function, 1, meddle, &m), FP8C_OK);
        ck_assert_int_gt(m.calls, 10);
        loss[k][0] = *(float *)f8_api_buffer(&r[k], r[k].step, FP8C_OUTPUT, "loss", NULL);
        ck_assert_int_eq(fp8c_program_run(r[k].program, r[k].step), FP8C_OK); /* free again */
        loss[k][1] = *(float *)f8_api_buffer(&r[k], r[k].step, FP8C_OUTPUT, "loss", NULL);
    }
    ck_assert_mem_eq(loss[0], loss[1], sizeof loss[0]);
    ck_assert_ptr_null(f8_api_differs(&r[0], &r[1]));
    f8_api_close(&r[0]);
    f8_api_close(&r[1]);
}
END_TEST

/* ---- memory ---- */

static void has_name(void *user, const fp8c_witnessed *v)
{
    *(int *)user += v->value && v->name && v->kind;
}

/* Each allocation of a run fails once: it is said, or the run needs none of it. */
START_TEST(no_memory)
{
    counting c = {0};
    const fp8c_context_options co = counted_options(&c);
    fp8c_compile_options o = recipe("current");
    fp8c_context *ctx;
    o.witness = 1;
    o.threads = 1;
    ck_assert_int_eq(fp8c_context_create(&co, &ctx), FP8C_OK);
    fp8c_module *m = parse(ctx, model);
    fp8c_program *p = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    const int step = fp8c_program_function(p, "micro_step");
    int values = 0, seen, failed = 0;
    ck_assert_int_eq(fp8c_program_run_witnessed(p, step, 1, has_name, &values), FP8C_OK);
    for (bool fails = true; fails; failed += fails) {
        seen = 0;
        c.fail_at = c.n + failed + 1;
        const fp8c_status status = fp8c_program_run_witnessed(p, step, 1, has_name, &seen);
        fails = c.n >= c.fail_at;
        c.fail_at = 0;
        ck_assert_msg(status == (fails ? FP8C_ERR_MEMORY : FP8C_OK), "allocation %d: %d",
                      failed + 1, (int)status);
        ck_assert(fails ? seen < values : seen == values);
    }
    ck_assert_int_gt(failed, 10);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    ck_assert_int_eq(c.live, 0);
}
END_TEST

static const char large[] =
    "module large\ndim B = 16, T = 128, C = 64\nparam wte: f32[64, C] normal(0.1)\n"
    "param up: f32[C, 4*C] normal(0.1)\nparam down: f32[4*C, C] normal(0.1)\n"
    "func forward(%tokens: i32[B, T], %targets: i32[B, T]) -> f32[] {\n"
    "  %x = embedding(wte, %tokens)\n"
    "  %h = linear(%x, up)\n"
    "  %q = slice(%h) {axis = -1, start = 0, stop = C}\n"
    "  %k = slice(%h) {axis = -1, start = C, stop = 2*C}\n"
    "  %v = slice(%h) {axis = -1, start = 2*C, stop = 3*C}\n"
    "  %a = attention(%q, %k, %v) {heads = 2}\n"
    "  %y = add(%a, linear(gelu(%h), down))\n"
    "  return cross_entropy(linear(%y, wte) {transpose_b = true, name = \"head\"}, %targets)\n}\n"
    "optimizer adamw {lr = 1e-3}\n";

/* Judging takes less memory than the largest value of a step, [2048, 256] in f32, though several
 * such values lie inside kernels. A program keeps at most KEPT bytes for its witness. */
START_TEST(memory_of_judging)
{
    enum { LARGEST = 2048 * 256 * 4, KEPT = 600 << 10 };
    counting c = {0};
    const fp8c_context_options co = counted_options(&c);
    fp8c_compile_options o = recipe(recipes[_i]);
    fp8c_context *ctx;
    int values = 0;
    o.threads = 1;
    ck_assert_int_eq(fp8c_context_create(&co, &ctx), FP8C_OK);
    fp8c_module *m = parse(ctx, large);
    size_t before = c.bytes, kept[2];
    for (int witness = 0; witness < 2; witness++) {
        o.witness = witness;
        fp8c_program *p = compile(ctx, m, &o);
        ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
        kept[witness] = c.bytes - before;
        const int functions[] = {fp8c_program_function(p, "micro_step"),
                                 fp8c_program_function(p, "update")};
        for (int f = 0; witness && f < 2; f++) {
            c.most = before = c.bytes;
            ck_assert_int_eq(fp8c_program_run_witnessed(p, functions[f], 1, has_name, &values),
                             FP8C_OK);
            ck_assert_msg(c.most - before < LARGEST, "%s: %zu bytes", o.recipe, c.most - before);
        }
        fp8c_program_destroy(p);
        before = c.bytes;
    }
    ck_assert_msg(kept[1] < kept[0] + KEPT, "%zu bytes more", kept[1] - kept[0]);
    ck_assert_int_gt(values, 20);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

static const char huge[] =
    "module huge\nparam wte: f32[65536, 64] normal(0.1)\n"
    "func forward(%tokens: i32[16], %targets: i32[16]) -> f32[] {\n"
    "  %x = embedding(wte, %tokens)\n"
    "  return cross_entropy(linear(%x, wte) {transpose_b = true, name = \"head\"}, %targets)\n}\n"
    "optimizer adamw {lr = 1e-3}\n";

/* With a folder, large values that a step writes over are put aside in files, and judging takes
 * less memory than one of them. Without a folder it takes more, and finds the same. */
START_TEST(memory_of_large_values)
{
    enum { LARGE = 65536 * 64 * 4 };
    counting c = {0};
    const fp8c_context_options co = counted_options(&c);
    fp8c_compile_options o = recipe("bf16");
    const f8_fault f = parsed("kind=flip,function=update,value=wte,step=1,element=4000000,bit=12");
    const char *folders[] = {NULL, "/tmp"};
    fp8c_context *ctx;
    o.witness = 1;
    ck_assert_int_eq(fp8c_context_create(&co, &ctx), FP8C_OK);
    fp8c_module *m = parse(ctx, huge);
    for (int aside = 0; aside < 2; aside++) {
        f8_fault_use(&f, NULL);
        fp8c_program *p = compile(ctx, m, &o);
        witness_log l = witness_new_log();
        ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
        p->aside = folders[aside];
        const size_t before = c.most = c.bytes;
        for (int k = 0; k < 2; k++)
            ck_assert_int_eq(
                fp8c_program_run_witnessed(p, fp8c_program_function(p, k ? "update" : "micro_step"),
                                           1, witness_note, &l),
                FP8C_OK);
        ck_assert_int_eq(f8_fault_count(), 1);
        f8_fault_use(NULL, NULL);
        ck_assert_msg((c.most - before < LARGE) == aside, "%zu bytes", c.most - before);
        ck_assert_int_eq(l.wrong, 1);
        for (int i = 0; i < l.n; i++)
            if (l.value[i].verdict == FP8C_WRONG)
                ck_assert(l.value[i].at == 4000000 && l.value[i].wrong == 1);
        free(l.value);
        fp8c_program_destroy(p);
    }
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("witness");
    TCase *t = tcase_create("witness");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, agrees, 0, RECIPES);
    tcase_add_loop_test(t, agrees_in_parts, 0, RECIPES);
    tcase_add_loop_test(t, faults_are_found, 0, (int)(sizeof faults / sizeof *faults));
    tcase_add_loop_test(t, faults_are_found_in_parts, 0,
                        (int)(sizeof faults_in_parts / sizeof *faults_in_parts));
    tcase_add_loop_test(t, memory_of_judging, 0, RECIPES);
    tcase_add_test(t, memory_of_large_values);
    tcase_add_test(t, wrong_faults);
    tcase_add_loop_exit_test(t, impossible_faults, 2, 0, 7);
    tcase_add_loop_test(t, inf_in_a_weight, 0, 2);
    tcase_add_loop_test(t, an_op_overflows, 0, 3);
    tcase_add_test(t, nan_in_a_batch);
    tcase_add_loop_test(t, ranks_that_share, 0, 4); /* by stage of ZeRO */
    tcase_add_test(t, a_fault_of_one_rank);
    tcase_add_test(t, without_the_option);
    tcase_add_test(t, refusals);
    tcase_add_loop_test(t, meddling, 0, 4);
    tcase_add_test(t, no_memory);
    suite_add_tcase(s, t);
    return s;
}

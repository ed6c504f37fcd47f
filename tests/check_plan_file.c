/* Plans as bytes: what is read is the plan that was written, and a plan that could make a run read
 * or write outside of what it has is refused in words. */
#include "frontend/program.h"
#include "runtime/gemm_tuning.h"
#include "runtime/plan_file.h"
#include "tests/api.h"
#include "tests/shared/random.h"

static fp8c_context *ctx;
static fp8c_program *program;
static f8_arena arena;
static const f8_plan *plan;

static void setup(void)
{
    fp8c_compile_options o = recipe("delayed");
    o.no_device = 1;
    ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    program = compile(ctx, m, &o);
    fp8c_module_destroy(m);
    plan = &program->now->plan;
    f8_arena_init(&arena, NULL);
}

static void teardown(void)
{
    f8_arena_end(&arena);
    fp8c_program_destroy(program);
    fp8c_context_destroy(ctx);
}

/* A copy through bytes, with the parts that are kept apart. */
static f8_plan copy(void)
{
    f8_wire w, r;
    f8_plan from = *plan, to = {0};
    f8_diag d = {0};
    f8_wire_begin_write(&w, &arena);
    f8_plan_wire(&w, &from);
    f8_wire_begin_read(&r, w.bytes, w.size, &arena, "the plan");
    f8_plan_wire(&r, &to);
    ck_assert_msg(f8_wire_end(&r, &d) == F8_OK, "%s", d.text);
    to.needs = plan->needs;
    to.constants = plan->constants;
    to.blob = plan->blob;
    for (uint32_t i = 0; i < to.n_images; i++)
        to.image[i].bytes = plan->image[i].bytes;
    return to;
}

/* ---- equal ---- */

static void same_gemm(const f8_gemm_desc *a, const f8_gemm_desc *b)
{
    ck_assert(a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda &&
              a->ldb == b->ldb && a->ldc == b->ldc && a->a == b->a && a->b == b->b &&
              a->c == b->c && a->trans_a == b->trans_a && a->trans_b == b->trans_b &&
              a->round_a == b->round_a && a->round_b == b->round_b &&
              a->accumulate == b->accumulate && a->has_alpha == b->has_alpha &&
              a->scale == b->scale && a->scale_layout == b->scale_layout &&
              a->fast_accumulate == b->fast_accumulate && a->algorithm == b->algorithm);
    ck_assert(f8_granularity_equal(a->scale_a, b->scale_a) &&
              f8_granularity_equal(a->scale_b, b->scale_b));
    ck_assert(f8_gemm_tuning_equal(&a->tuning, &b->tuning));
}

static void same_step(const f8_step *a, const f8_step *b)
{
    ck_assert(a->kind == b->kind && !strcmp(a->name, b->name) && a->n_args == b->n_args &&
              a->n_ints == b->n_ints && a->n_phases == b->n_phases &&
              a->bytes_read == b->bytes_read && a->bytes_written == b->bytes_written &&
              a->hash == b->hash && a->fp8 == b->fp8 && a->choice == b->choice);
    for (uint32_t i = 0; i < a->n_args; i++)
        ck_assert(a->arg[i].space == b->arg[i].space && a->arg[i].port == b->arg[i].port &&
                  a->arg[i].offset == b->arg[i].offset);
    for (uint32_t i = 0; i < a->n_ints; i++)
        ck_assert_int_eq(a->ints[i], b->ints[i]);
    for (uint32_t i = 0; i < a->n_phases; i++) {
        const f8_step_phase *x = &a->phase[i], *y = &b->phase[i];
        ck_assert(x->entry == y->entry && x->n_tasks == y->n_tasks && x->scratch == y->scratch &&
                  x->first_arg == y->first_arg && x->first_int == y->first_int &&
                  x->choice == y->choice);
    }
    if (a->kind == F8_STEP_GEMM)
        same_gemm(&a->gemm, &b->gemm);
    if (a->kind != F8_STEP_COPY)
        return;
    ck_assert(a->copy.rank == b->copy.rank && a->copy.element == b->copy.element);
    for (int i = 0; i < a->copy.rank; i++)
        ck_assert(a->copy.size[i] == b->copy.size[i] && a->copy.from[i] == b->copy.from[i] &&
                  a->copy.to[i] == b->copy.to[i]);
}

static void same_ports(const f8_plan_port *a, const f8_plan_port *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ck_assert(!strcmp(a[i].name, b[i].name) && f8_type_equal(&a[i].type, &b[i].type) &&
                  a[i].var == b[i].var);
}

START_TEST(round_trip)
{
    f8_plan got = copy();
    f8_diag d = {0};
    ck_assert_msg(f8_plan_check(&got, &d) == F8_OK, "%s", d.text);
    ck_assert(!strcmp(got.module, plan->module) && !strcmp(got.target, plan->target) &&
              got.state_bytes == plan->state_bytes && got.n_kernels == plan->n_kernels &&
              got.blob_code_bytes == plan->blob_code_bytes &&
              got.gemm_workspace == plan->gemm_workspace);
    ck_assert_uint_eq(got.n_vars, plan->n_vars);
    for (uint32_t i = 0; i < got.n_vars; i++) {
        const f8_plan_var *a = &plan->var[i], *b = &got.var[i];
        ck_assert(!strcmp(a->name, b->name) && f8_type_equal(&a->type, &b->type) &&
                  a->is_param == b->is_param && a->init == b->init && a->init_arg == b->init_arg &&
                  a->offset == b->offset);
    }
    ck_assert_uint_eq(got.n_funcs, plan->n_funcs);
    int kinds[4] = {0};
    for (uint32_t i = 0; i < got.n_funcs; i++) {
        const f8_plan_func *a = &plan->func[i], *b = &got.func[i];
        ck_assert(!strcmp(a->name, b->name) && a->n_in == b->n_in && a->n_out == b->n_out &&
                  a->n_steps == b->n_steps && a->arena_bytes == b->arena_bytes &&
                  a->lower_bound == b->lower_bound);
        same_ports(a->in, b->in, a->n_in);
        same_ports(a->out, b->out, a->n_out);
        for (uint32_t k = 0; k < a->n_steps; k++) {
            same_step(&a->step[k], &b->step[k]);
            kinds[a->step[k].kind]++;
        }
    }
    ck_assert_uint_eq(got.n_choices, plan->n_choices);
    for (uint32_t i = 0; i < got.n_choices; i++)
        ck_assert(!strcmp(got.choice[i].problem, plan->choice[i].problem) &&
                  !strcmp(got.choice[i].candidate, plan->choice[i].candidate) &&
                  got.choice[i].tuned == plan->choice[i].tuned);
    ck_assert(kinds[F8_STEP_KERNEL] > 0 &&
              kinds[F8_STEP_GEMM] > 0); /* there was something to compare */
}
END_TEST

/* A field that is not written would come back as zero: every byte of what goes in must change what
 * comes out. */
START_TEST(every_field)
{
    f8_plan from = copy(), to = {0};
    f8_step *s = &from.func[0].step[0];
    s->kind = F8_STEP_GEMM;
    memset(&s->gemm, 1, sizeof s->gemm); /* enumerators and flags 1, numbers 0x0101... */
    s->gemm.a = F8_E4M3;
    s->gemm.b = s->gemm.scale = F8_BF16;
    s->gemm.c = F8_F16;
    s->gemm.scale_layout = F8_SCALES_CUBLASLT;
    f8_step *a = &from.func[0].step[1];
    a->kind = F8_STEP_ATTENTION;
    memset(&a->attention, 1, sizeof a->attention);
    f8_wire w, r;
    f8_diag d = {0};
    f8_wire_begin_write(&w, &arena);
    f8_plan_wire(&w, &from);
    f8_wire_begin_read(&r, w.bytes, w.size, &arena, "the plan");
    f8_plan_wire(&r, &to);
    ck_assert_msg(f8_wire_end(&r, &d) == F8_OK, "%s", d.text);
    same_gemm(&s->gemm, &to.func[0].step[0].gemm);
    const f8_cudnn_attention_desc *x = &a->attention, *y = &to.func[0].step[1].attention;
    ck_assert(x->B == y->B && x->T == y->T && x->H == y->H && x->Hkv == y->Hkv && x->D == y->D &&
              x->causal == y->causal && x->backward == y->backward && x->scale == y->scale);
    ck_assert_mem_eq(&x->stride, &y->stride, sizeof x->stride);
}
END_TEST

/* ---- refused ---- */

static f8_plan bad;

static f8_step *first(f8_step_kind kind)
{
    for (uint32_t f = 0; f < bad.n_funcs; f++)
        for (uint32_t i = 0; i < bad.func[f].n_steps; i++)
            if (bad.func[f].step[i].kind == kind)
                return &bad.func[f].step[i];
    ck_abort_msg("the plan has no such step");
    return NULL;
}

static f8_step *a_copy(void)
{
    f8_step *s = first(F8_STEP_GEMM);
    s->kind = F8_STEP_COPY;
    s->n_args = 2;
    for (int i = 0; i < 2; i++)
        s->arg[i] = (f8_arg){.space = F8_SPACE_STATE, .port = -1};
    s->copy.rank = 2;
    s->copy.element = 4;
    for (int i = 0; i < 2; i++) {
        s->copy.size[i] = 2;
        s->copy.from[i] = s->copy.to[i] = i ? 1 : 2;
    }
    return s;
}

/* Each changes one thing. */
static void kernel_outside(void)
{
    first(F8_STEP_KERNEL)->phase[0].entry = (uint64_t)plan->blob_code_bytes;
}
static void kernel_args(void)
{
    first(F8_STEP_KERNEL)->phase[0].first_arg = 1000;
}
static void kernel_ints(void)
{
    first(F8_STEP_KERNEL)->phase[0].first_int = 1000;
}
static void kernel_choice(void)
{
    first(F8_STEP_KERNEL)->phase[0].choice = plan->n_choices + 1;
}
static void kernel_scratch(void)
{
    first(F8_STEP_KERNEL)->phase[0].scratch = INT64_MAX;
}
static void arg_behind(void)
{
    first(F8_STEP_KERNEL)->arg[0] = (f8_arg){F8_SPACE_STATE, -1, plan->state_bytes + 1};
}
static void arg_before(void)
{
    first(F8_STEP_KERNEL)->arg[0] = (f8_arg){F8_SPACE_STATE, -1, -1};
}
static void arg_port(void)
{
    first(F8_STEP_KERNEL)->arg[0] = (f8_arg){F8_SPACE_INPUT, 1000, 0};
}
static void arg_no_port(void)
{
    first(F8_STEP_KERNEL)->arg[0] = (f8_arg){F8_SPACE_OUTPUT, -1, 0};
}
static void arg_constants(void)
{
    first(F8_STEP_KERNEL)->arg[0] = (f8_arg){F8_SPACE_CONST, -1, plan->constants_bytes + 1};
}
static void gemm_m(void)
{
    first(F8_STEP_GEMM)->gemm.m = 0;
}
static void gemm_k(void)
{
    first(F8_STEP_GEMM)->gemm.k = INT64_MAX;
}
static void gemm_rows(void)
{
    first(F8_STEP_GEMM)->gemm.m = 1 << 20;
}
static void gemm_stride(void)
{
    first(F8_STEP_GEMM)->gemm.ldc = 1;
}
static void gemm_dtype(void)
{
    first(F8_STEP_GEMM)->gemm.a = F8_I32;
}
static void gemm_result(void)
{
    first(F8_STEP_GEMM)->gemm.c = F8_E4M3;
}
static void gemm_args(void)
{
    first(F8_STEP_GEMM)->n_args = 4;
}
static void gemm_nowhere(void)
{
    first(F8_STEP_GEMM)->arg[2].space = F8_SPACE_NONE;
}
static void gemm_choice(void)
{
    first(F8_STEP_GEMM)->choice = plan->n_choices + 1;
}
static void gemm_scale(void)
{
    f8_step *s = first(F8_STEP_GEMM);
    s->gemm.has_alpha = false;
    s->arg[3] = (f8_arg){F8_SPACE_STATE, -1, 0};
}
static void gemm_grain(void)
{
    f8_step *s = first(F8_STEP_GEMM);
    s->gemm.has_alpha = true;
    s->gemm.scale_a.rows = INT64_MAX;
    s->arg[3] = (f8_arg){F8_SPACE_STATE, -1, 0};
}
static void copy_far(void)
{
    a_copy()->copy.from[0] = plan->state_bytes;
}
static void copy_back(void)
{
    a_copy()->copy.to[0] = -2;
}
static void copy_size(void)
{
    a_copy()->copy.size[1] = 0;
}
static void copy_overflow(void)
{
    a_copy()->copy.size[0] = INT64_MAX;
}
static void copy_element(void)
{
    a_copy()->copy.element = 3;
}
static void copy_args(void)
{
    a_copy()->n_args = 1;
}
static void attention_sizes(void)
{
    f8_step *s = first(F8_STEP_GEMM);
    s->kind = F8_STEP_ATTENTION;
    s->attention = (f8_cudnn_attention_desc){.B = 0};
}
static void attention_outside(void)
{
    f8_step *s = first(F8_STEP_GEMM);
    s->kind = F8_STEP_ATTENTION;
    s->attention = (f8_cudnn_attention_desc){.B = 1 << 10,
                                             .T = 1 << 10,
                                             .H = 1,
                                             .Hkv = 1,
                                             .D = 64,
                                             .stride = {64, 64, 64, 64, 0, 0, 0, 0}};
    for (int i = 0; i < 5; i++)
        s->arg[i] = (f8_arg){F8_SPACE_STATE, -1, 0};
}
static void attention_overflow(void)
{
    attention_outside();
    f8_cudnn_attention_desc *d = &first(F8_STEP_ATTENTION)->attention;
    d->B = d->T = 1 << 20;
    d->stride.q = INT32_MAX;
}
static void gemm_result_width(void)
{
    first(F8_STEP_GEMM)->gemm.c = F8_BF16; /* a CPU writes f32 */
}
static void gemm_phases(void)
{
    static f8_step_phase phase = {.scratch = INT64_MAX};
    f8_step *s = first(F8_STEP_GEMM);
    s->phase = &phase;
    s->n_phases = 1;
}
static void gemm_fp8(void)
{
    first(F8_STEP_GEMM)->fp8 = INT64_MAX;
}
static void bytes_in_all(void)
{
    static f8_step many[1 << 17];
    f8_step *s = first(F8_STEP_KERNEL);
    s->bytes_read = (int64_t)1 << 44;
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        many[i] = *s;
    for (uint32_t f = 0; f < bad.n_funcs; f++)
        if (s >= bad.func[f].step && s < bad.func[f].step + bad.func[f].n_steps) {
            bad.func[f].step = many;
            bad.func[f].n_steps = sizeof many / sizeof *many;
        }
}
static void no_function(void)
{
    bad.n_funcs = 0;
}
static void var_outside(void)
{
    bad.var[0].offset = plan->state_bytes;
}
static void step_bytes(void)
{
    first(F8_STEP_KERNEL)->bytes_read = INT64_MAX;
}
static void var_on_another(void)
{
    bad.var[1].offset = bad.var[0].offset;
}
static void var_odd(void)
{
    bad.var[0].offset += 4;
}
static void var_init(void)
{
    bad.var[0].init = 77;
}
static void port_var(void)
{
    bad.func[0].in[0].var = 1000;
}
static void port_less(void)
{
    bad.func[0].in[0].var = -2;
}
static void port_type(void)
{
    for (uint32_t i = 0; i < bad.func[0].n_in; i++)
        if (bad.func[0].in[i].var >= 0)
            bad.func[0].in[i].type.dtype = F8_BOOL;
}
static void memory_arena(void)
{
    bad.func[0].arena_bytes = INT64_MAX;
}
static void memory_state(void)
{
    bad.state_bytes = INT64_MAX;
}
static void memory_ports(void)
{
    for (uint32_t i = 0; i < bad.func[0].n_in; i++)
        bad.func[0].in[i].type = (f8_type){.dtype = F8_F32, .rank = 1, .dim = {(int64_t)1 << 60}};
}
static void target_reference(void)
{
    bad.target = "reference"; /* which would interpret a module, and a file has none */
}
static void target_gpu(void)
{
    bad.target = "sm_90a";
}
static void code_gpu(void)
{
    static f8_image image = {.size = 1};
    bad.image = &image;
    bad.n_images = 1;
    bad.blob_bytes = bad.blob_code_bytes = 0;
}
static void code_size(void)
{
    bad.blob_code_bytes = bad.blob_bytes + 4096;
}
static void code_page(void)
{
    bad.blob_code_bytes -= 1;
}

#define BAD(f, words) {f, #f, words}
static const struct {
    void (*change)(void);
    const char *name, *says;
} cases[] = {
    BAD(kernel_outside, "phase 0 begins outside of the code"),
    BAD(kernel_args, "phase 0 begins behind the arguments"),
    BAD(kernel_ints, "phase 0 begins behind the arguments"),
    BAD(kernel_choice, "in a way that is not listed"),
    BAD(kernel_scratch, "bytes of scratch"),
    BAD(arg_behind, "argument 0 lies at byte"),
    BAD(arg_before, "argument 0 lies at byte -1"),
    BAD(arg_port, "argument 0 is of port 1000, and there is none"),
    BAD(arg_no_port, "argument 0 is of port -1, and there is none"),
    BAD(arg_constants, "argument 0 lies at byte"),
    BAD(gemm_m, "a GEMM of m = 0"),
    BAD(gemm_k, "a GEMM of m = "),
    BAD(gemm_rows, "bytes from there are used"),
    BAD(gemm_stride, "1 apart"),
    BAD(gemm_dtype, "a GEMM of i32 by"),
    BAD(gemm_result, "to f8e4m3"),
    BAD(gemm_args, "it has 4 arguments instead of 5"),
    BAD(gemm_nowhere, "argument 2 has no place"),
    BAD(gemm_choice, "in a way that is not listed"),
    BAD(gemm_scale, "argument 3 is scales of no kind"),
    BAD(gemm_grain, "argument 3 is scales of no kind"),
    BAD(copy_far, "bytes from there are used"),
    BAD(copy_back, "argument 1 lies at byte 0"),
    BAD(copy_size, "a copy of sizes that can't be"),
    BAD(copy_overflow, "a copy of sizes that can't be"),
    BAD(copy_element, "elements of 3 bytes"),
    BAD(copy_args, "it has 1 arguments instead of 2"),
    BAD(attention_sizes, "attention of sizes that can't be"),
    BAD(attention_outside, "argument 0 lies at byte 0"),
    BAD(attention_overflow, "argument 0 is too large"),
    BAD(gemm_result_width, " to bf16"),
    BAD(gemm_phases, "phases, and it is no kernel"),
    BAD(gemm_fp8, "counts for 9223372036854775807 FP8 GEMMs"),
    BAD(bytes_in_all, "its steps move more bytes than can be"),
    BAD(no_function, "it has no function"),
    BAD(var_outside, "lies outside of the state"),
    BAD(var_odd, "lies outside of the state"),
    BAD(var_on_another, "or on another"),
    BAD(step_bytes, "moves more bytes than can be"),
    BAD(var_init, "begins with no value there is"),
    BAD(port_var, "carries no variable of its type"),
    BAD(port_less, "carries no variable of its type"),
    BAD(port_type, "carries no variable of its type"),
    BAD(memory_arena, "more memory than an address can name"),
    BAD(memory_state, "more memory than an address can name"),
    BAD(memory_ports, "more memory than an address can name"),
    BAD(target_reference, "there is no code for target 'reference'"),
    BAD(target_gpu, "it has code of a CPU for target sm_90a"),
    BAD(code_gpu, "it has code of a GPU for target cpu"),
    BAD(code_size, "bytes of code in a blob"),
    BAD(code_page, "bytes of code in a blob"),
};

START_TEST(refused)
{
    f8_diag d = {0};
    bad = copy();
    ck_assert_msg(f8_plan_check(&bad, &d) == F8_OK, "%s", d.text);
    cases[_i].change();
    ck_assert_msg(f8_plan_check(&bad, &d) == F8_ERR_INPUT, "%s is not refused", cases[_i].name);
    ck_assert_msg(strstr(d.text, cases[_i].says) != NULL, "%s: '%s' does not say '%s'",
                  cases[_i].name, d.text, cases[_i].says);
}
END_TEST

/* Copies that are right pass. */
START_TEST(good_copy)
{
    f8_diag d = {0};
    bad = copy();
    a_copy();
    ck_assert_msg(f8_plan_check(&bad, &d) == F8_OK, "%s", d.text);
}
END_TEST

/* Bytes changed at random: refused, or a plan that holds what is promised. */
START_TEST(noise)
{
    enum { ROUNDS = 3000 };
    uint32_t seed = 5;
    f8_wire w;
    f8_plan from = *plan;
    int refused = 0;
    printf("seed %u\n", seed);
    f8_wire_begin_write(&w, &arena);
    f8_plan_wire(&w, &from);
    for (int i = 0; i < ROUNDS; i++) {
        uint8_t *bytes = malloc(w.size);
        f8_arena own;
        f8_wire r;
        f8_plan got = {0};
        f8_diag d = {0};
        memcpy(bytes, w.bytes, w.size);
        for (uint32_t k = 1 + test_random(&seed) % 4; k > 0; k--)
            bytes[test_random(&seed) % w.size] = (uint8_t)test_random(&seed);
        f8_arena_init(&own, NULL);
        f8_wire_begin_read(&r, bytes, w.size, &own, "the plan");
        f8_plan_wire(&r, &got);
        f8_status status = f8_wire_end(&r, &d);
        if (status == F8_OK)
            status = f8_plan_check(&got, &d);
        ck_assert(status == F8_OK || (status == F8_ERR_INPUT && d.text[0]));
        refused += status != F8_OK;
        f8_arena_end(&own);
        free(bytes);
    }
    printf("%d of %d refused\n", refused, ROUNDS);
    ck_assert_int_gt(refused, ROUNDS / 10);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("plan file");
    TCase *t = tcase_create("plan file");
    tcase_add_unchecked_fixture(t, setup, teardown); /* one compile for all */
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, round_trip);
    tcase_add_test(t, every_field);
    tcase_add_loop_test(t, refused, 0, sizeof cases / sizeof *cases);
    tcase_add_test(t, good_copy);
    tcase_add_test(t, noise);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}

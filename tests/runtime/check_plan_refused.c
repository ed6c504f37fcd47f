/* Plans that could make a run access memory outside of what it has: each is refused with a message.
 */
#include "tests/shared/api/plan_copy.h"
#include "tests/shared/suite.h"

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
static void gemm_batch(void)
{
    f8_gemm_desc *d = &first(F8_STEP_GEMM)->gemm;
    d->batch = 3; /* which nothing else of it allows */
    d->stride_c = 1;
}
static void gemm_batch_outside(void)
{
    f8_gemm_desc *d = &first(F8_STEP_GEMM)->gemm;
    d->accumulate = d->has_alpha = false;
    d->batch = 1 << 20;
    d->stride_c = d->m * d->ldc;
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
static void gemm_adds_never(void)
{
    f8_step *s = first(F8_STEP_GEMM);
    s->arg[F8_GEMM_ADDS] = s->arg[F8_GEMM_A];
}
static void gemm_bias_f32(void)
{
    first(F8_STEP_GEMM)->gemm.bias = true;
}
static void gemm_bias_unasked(void)
{
    f8_step *s = first(F8_STEP_GEMM);
    s->arg[F8_GEMM_BIAS] = s->arg[F8_GEMM_A];
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
static void copy_across(void) /* from the first variable into the second */
{
    a_copy()->copy.from[0] = f8_type_bytes(&plan->var[0].type) / 4;
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
    s->n_args = 5;
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
/* The function that has a form for an empty history. */
static f8_plan_func *with_form(void)
{
    for (uint32_t f = 0; f < bad.n_funcs; f++)
        if (bad.func[f].first)
            return &bad.func[f];
    ck_abort_msg("no function has a form for an empty history");
}
static void form_outside(void)
{
    with_form()->first = bad.n_funcs + 1;
}
static void form_of_itself(void)
{
    f8_plan_func *f = with_form();
    f->first = (uint32_t)(f - bad.func) + 1;
}
static void form_of_two(void)
{
    const uint32_t form = with_form()->first;
    for (uint32_t f = bad.n_funcs; f-- > 0;)
        if (f + 1 != form)
            bad.func[f].first = form;
}
static void form_with_ports(void)
{
    f8_plan_func *f = with_form();
    bad.func[f->first - 1].n_out--;
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
static void var_rows(void)
{
    bad.var[0].rows = bad.var[0].type.dim[0]; /* one rank has all */
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
static void dependent_cpu(void)
{
    bad.dependent_launch = true;
}
static void branch_cpu(void)
{
    first(F8_STEP_GEMM)->branch = true;
}
static void branch_kernel(void)
{
    first(F8_STEP_KERNEL)->branch = true;
}
static void joins_none(void)
{
    first(F8_STEP_GEMM)->joins = 1;
}
static void joins_later(void)
{
    first(F8_STEP_KERNEL)->joins = 1 << 20;
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
    BAD(kernel_outside, "phase 0 begins outside the code"),
    BAD(kernel_args, "phase 0 begins after the last argument"),
    BAD(kernel_ints, "phase 0 begins after the last argument"),
    BAD(kernel_choice, "names a choice that the plan does not list"),
    BAD(kernel_scratch, "bytes of scratch"),
    BAD(arg_behind, "argument 0 lies at byte"),
    BAD(arg_before, "argument 0 lies at byte -1"),
    BAD(arg_port, "argument 0 names port 1000, which the function does not have"),
    BAD(arg_no_port, "argument 0 names port -1, which the function does not have"),
    BAD(arg_constants, "argument 0 lies at byte"),
    BAD(gemm_m, "a GEMM can't have m = 0"),
    BAD(gemm_k, "a GEMM can't have m = "),
    BAD(gemm_rows, "bytes from there are used"),
    BAD(gemm_stride, "1 apart"),
    BAD(gemm_batch, "there is no batch of 3 GEMMs with matrices 0, 0, 1 apart"),
    BAD(gemm_batch_outside, "bytes from there are used"),
    BAD(gemm_dtype, "a GEMM can't multiply i32 by"),
    BAD(gemm_result, "to f8e4m3"),
    BAD(gemm_args, "it has 4 arguments instead of 7"),
    BAD(gemm_adds_never, "argument 6 says whether C is added to, and it never is"),
    BAD(gemm_bias_f32, "a bias is added where C is bf16 and overwritten"),
    BAD(gemm_bias_unasked, "argument 5 is a bias that the GEMM does not add"),
    BAD(gemm_nowhere, "argument 2 has no place"),
    BAD(gemm_choice, "names a choice that the plan does not list"),
    BAD(gemm_scale, "argument 3 has scales that the GEMM does not allow"),
    BAD(gemm_grain, "argument 3 has scales that the GEMM does not allow"),
    BAD(copy_far, "bytes from there are used"),
    BAD(copy_across, "bytes from there are used"),
    BAD(copy_back, "argument 1 lies at byte 0"),
    BAD(copy_size, "a copy has sizes or strides out of range"),
    BAD(copy_overflow, "a copy has sizes or strides out of range"),
    BAD(copy_element, "elements of 3 bytes"),
    BAD(copy_args, "it has 1 arguments instead of 2"),
    BAD(attention_sizes, "an attention has sizes out of range"),
    BAD(attention_outside, "argument 0 lies at byte 0"),
    BAD(attention_overflow, "argument 0 is too large"),
    BAD(gemm_result_width, " to bf16"),
    BAD(gemm_phases, "phases, but it is not a kernel"),
    BAD(gemm_fp8, "counts as 9223372036854775807 FP8 GEMMs"),
    BAD(bytes_in_all, "its steps say that they move too many bytes"),
    BAD(no_function, "it has no function"),
    BAD(form_outside, "form for an empty history does not belong to it"),
    BAD(form_of_itself, "form for an empty history does not belong to it"),
    BAD(form_of_two, "form for an empty history does not belong to it"),
    BAD(form_with_ports, "form for an empty history does not belong to it"),
    BAD(var_outside, "lies outside the state"),
    BAD(var_odd, "lies outside the state"),
    BAD(var_on_another, "or overlaps another variable"),
    BAD(step_bytes, "says that it moves too many bytes"),
    BAD(var_init, "is of an unknown kind"),
    BAD(var_rows, "is not a rank's part of its rows"),
    BAD(port_var, "carries no variable of its type"),
    BAD(port_less, "carries no variable of its type"),
    BAD(port_type, "carries no variable of its type"),
    BAD(memory_arena, "more memory than there are addresses"),
    BAD(memory_state, "more memory than there are addresses"),
    BAD(memory_ports, "more memory than there are addresses"),
    BAD(target_reference, "there is no code for target 'reference'"),
    BAD(target_gpu, "it has code of a CPU for target sm_90a"),
    BAD(code_gpu, "it has code of a GPU for target cpu"),
    BAD(code_size, "bytes of code in a blob"),
    BAD(code_page, "bytes of code in a blob"),
    BAD(dependent_cpu, "it has dependent launches for target cpu"),
    BAD(branch_cpu, "it runs beside others, but it is no GEMM of a GPU"),
    BAD(branch_kernel, "it runs beside others, but it is no GEMM of a GPU"),
    BAD(joins_none, "which is none before it that runs beside others"),
    BAD(joins_later, "which is none before it that runs beside others"),
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

Suite *f8_suite(void)
{
    Suite *s = suite_create("plan refused");
    TCase *t = tcase_create("plan refused");
    tcase_add_unchecked_fixture(t, setup, teardown); /* one compile for all */
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, refused, 0, sizeof cases / sizeof *cases);
    tcase_add_test(t, good_copy);
    suite_add_tcase(s, t);
    return s;
}

/* Plans as bytes: what is read is the plan that was written. check_plan_refused.c tests plans that
 * are refused. */
#include <stddef.h>

#include "runtime/base/gemm_desc.h"
#include "tests/shared/api/plan_copy.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

/* ---- equal ---- */

static void same_gemm(const f8_gemm_desc *a, const f8_gemm_desc *b)
{
    ck_assert(a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda &&
              a->ldb == b->ldb && a->ldc == b->ldc && a->a == b->a && a->b == b->b &&
              a->c == b->c && a->trans_a == b->trans_a && a->trans_b == b->trans_b &&
              a->round_a == b->round_a && a->round_b == b->round_b &&
              a->accumulate == b->accumulate && a->has_alpha == b->has_alpha &&
              a->scale == b->scale && a->scale_layout == b->scale_layout &&
              a->fast_accumulate == b->fast_accumulate && a->algorithm == b->algorithm &&
              a->batch == b->batch && a->stride_a == b->stride_a && a->stride_b == b->stride_b &&
              a->stride_c == b->stride_c);
    ck_assert(f8_granularity_equal(a->scale_a, b->scale_a) &&
              f8_granularity_equal(a->scale_b, b->scale_b));
    ck_assert(f8_gemm_tuning_equal(&a->tuning, &b->tuning));
}

static void same_step(const f8_step *a, const f8_step *b)
{
    ck_assert(a->kind == b->kind && !strcmp(a->name, b->name) && a->n_args == b->n_args &&
              a->n_ints == b->n_ints && a->n_phases == b->n_phases &&
              a->bytes_read == b->bytes_read && a->bytes_written == b->bytes_written &&
              a->hash == b->hash && a->fp8 == b->fp8 && a->choice == b->choice &&
              a->branch == b->branch && a->joins == b->joins);
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
              got.gemm_workspace == plan->gemm_workspace &&
              got.attention_workspace == plan->attention_workspace);
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
                  got.choice[i].source == plan->choice[i].source);
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

/* ---- what a step does not hold ---- */

/* Bytes of the payload that the step's kind uses. */
static size_t payload(const f8_step *s)
{
    switch (s->kind) {
    case F8_STEP_KERNEL: return 0;
    case F8_STEP_GEMM: return sizeof s->gemm;
    case F8_STEP_COPY: return sizeof s->copy;
    case F8_STEP_ATTENTION: return sizeof s->attention;
    case F8_STEP_COLLECTIVE: return sizeof s->collective;
    case F8_STEP_WAIT: return sizeof s->waits;
    }
    return 0;
}

static f8_wire written(f8_plan *p)
{
    f8_wire w;
    f8_wire_begin_write(&w, &arena);
    f8_plan_wire(&w, p);
    return w;
}

/* The payloads of all kinds share their bytes. Those that a step does not use reach no file,
 * whatever they are. */
START_TEST(other_payloads)
{
    const size_t all = sizeof(f8_gemm_desc);
    f8_plan p = copy();
    ck_assert_uint_le(sizeof(f8_step), 320);
    for (int kind = 0; kind < F8_STEP_KINDS; kind++) {
        f8_step *s = &p.func[0].step[kind];
        uint8_t *bytes = (uint8_t *)&s->gemm;
        s->kind = (f8_step_kind)kind;
        ck_assert_uint_le(payload(s), all);
        memset(bytes, 0, all);
        const f8_wire before = written(&p);
        memset(bytes + payload(s), 0xff, all - payload(s));
        if (s->kind == F8_STEP_COPY) /* its rank is 0: no axis counts */
            memset(s->copy.size, 0xff,
                   sizeof s->copy - offsetof(f8_step, copy.size) + offsetof(f8_step, copy));
        const f8_wire after = written(&p);
        ck_assert_uint_eq(before.size, after.size);
        ck_assert_mem_eq(before.bytes, after.bytes, after.size);
    }
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

Suite *f8_suite(void)
{
    Suite *s = suite_create("plan file");
    TCase *t = tcase_create("plan file");
    tcase_add_unchecked_fixture(t, setup, teardown); /* one compile for all */
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, round_trip);
    tcase_add_test(t, every_field);
    tcase_add_test(t, other_payloads);
    tcase_add_test(t, noise);
    suite_add_tcase(s, t);
    return s;
}

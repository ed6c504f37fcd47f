/* E4M3, E5M2 and E8M0 from f32, saturating and not, against an oracle made of the formats' values
 * alone (shared/codec_oracle.h), code for code: the codec (ir/fp8.c), the scalar programs
 * (ir/scalar.def) and what the CPU target compiles of these. Over 2^24 structured inputs, every
 * bf16 value among them; over all 2^32 with FP8C_CODECS=all, as `make check-codecs` does. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/build.h"
#include "ir/scalar.h"
#include "runtime/exec.h"
#include "tests/shared/codec_func.h"

/* ---- the oracle itself ---- */

/* Values with their codes as OCP 8-bit Floating Point (E4M3, E5M2) and OCP Microscaling (E8M0)
 * print them. */
START_TEST(oracle_has_published_values)
{
    enum { E4M3 = 1, E5M2 = 3, E8M0 = 5 }; /* of codec_ways */
    static const struct {
        int way;
        uint8_t code;
        double value;
    } rows[] = {
        {E4M3, 0x00, 0}, {E4M3, 0x01, 0x1p-9},   {E4M3, 0x07, 0x1.cp-7},
        {E4M3, 0x38, 1}, {E4M3, 0x08, 0x1p-6},   {E4M3, 0x7e, 448},
        {E5M2, 0x00, 0}, {E5M2, 0x01, 0x1p-16},  {E5M2, 0x03, 0x1.8p-15},
        {E5M2, 0x3c, 1}, {E5M2, 0x04, 0x1p-14},  {E5M2, 0x7b, 57344},
        {E8M0, 0x7f, 1}, {E8M0, 0x00, 0x1p-127}, {E8M0, 0xfe, 0x1p127},
    };
    static const uint32_t n_values[CODEC_WAYS] = {127, 127, 124, 124, 255, 255};
    codec_oracle oracle[CODEC_WAYS];
    for (int i = 0; i < CODEC_WAYS; i++) {
        codec_oracle_make(&oracle[i], &codec_ways[i]);
        ck_assert_uint_eq(oracle[i].n_values, n_values[i]);
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert(oracle[rows[i].way].value[rows[i].code] == rows[i].value);
}
END_TEST

/* What lies at the border of two codes, on both sides, is among the structured inputs: see lower()
 * in codec_oracle.c. And decoding gives the values that the borders were made from. */
START_TEST(borders_and_values)
{
    codec_oracle o;
    codec_oracle_make(&o, &codec_ways[_i]);
    for (uint32_t r = 0; r < o.n; r++)
        ck_assert_msg((o.first[r] & 0xffff) <= 1, "run %u begins at %08llx", r,
                      (unsigned long long)o.first[r]);
    for (uint32_t c = 0; c < o.n_values; c++) {
        ck_assert((double)f8_decode(codec_ways[_i].format, c) == o.value[c]);
        if (codec_ways[_i].format != F8_E8M0)
            ck_assert((double)f8_decode(codec_ways[_i].format, c | 0x80) == -o.value[c]);
    }
}
END_TEST

/* ---- the codec and the scalar programs: a chunk at a time, on every CPU ---- */

typedef struct job {
    const codec_way *way;
    bool program;
    codec_oracle oracle;
    atomic_uint next;
} job;

typedef struct worker {
    job *job;
    codec_tally tally;
    uint32_t in[CODEC_CHUNK], wide[CODEC_CHUNK];
    uint8_t got[CODEC_CHUNK], want[CODEC_CHUNK];
} worker;

static void encode(worker *w)
{
    const codec_way *way = w->job->way;
    if (!w->job->program) {
        for (size_t i = 0; i < CODEC_CHUNK; i++)
            w->got[i] = (uint8_t)f8_encode(way->format, f8_from_bits(w->in[i]), way->saturate);
        return;
    }
    f8_scalar_eval(f8_scalar_encode_fn(way->format, way->saturate), w->in, w->wide, CODEC_CHUNK);
    for (size_t i = 0; i < CODEC_CHUNK; i++)
        w->got[i] = (uint8_t)w->wide[i];
}

static void *work(void *p)
{
    worker *w = p;
    for (uint32_t chunk; (chunk = atomic_fetch_add(&w->job->next, 1)) < codec_chunks();) {
        codec_inputs(chunk, w->in);
        codec_oracle_codes(&w->job->oracle, w->in, CODEC_CHUNK, w->want);
        encode(w);
        codec_tally_codes(&w->tally, w->in, w->got, w->want, CODEC_CHUNK);
    }
    return NULL;
}

static void check_way(const codec_way *way, bool program)
{
    enum { MOST = 64 };
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const int n = cpus < 1 ? 1 : cpus > MOST ? MOST : (int)cpus;
    job j = {.way = way, .program = program};
    codec_oracle_make(&j.oracle, way);
    pthread_t thread[MOST];
    worker *w = calloc((size_t)n, sizeof *w);
    ck_assert_ptr_nonnull(w);
    for (int i = 0; i < n; i++) {
        w[i].job = &j;
        ck_assert(!pthread_create(&thread[i], NULL, work, &w[i]));
    }
    codec_tally all = {0};
    for (int i = 0; i < n; i++) {
        ck_assert(!pthread_join(thread[i], NULL));
        codec_tally_add(&all, &w[i].tally);
    }
    free(w);
    codec_tally_check(&all, program ? "scalar program" : "codec", way->name);
}

START_TEST(codec)
{
    check_way(&codec_ways[_i], false);
}
END_TEST

START_TEST(programs)
{
    check_way(&codec_ways[_i], true);
}
END_TEST

/* ---- kernels ---- */

START_TEST(compiled)
{
    static uint8_t want[CODEC_CHUNK];
    static codec_oracle oracle[CODEC_WAYS];
    codec_tally tally[CODEC_WAYS] = {0};
    f8_arena arena;
    f8_diag diag = {0};
    f8_plan plan;
    f8_exec *exec;
    f8_arena_init(&arena, NULL);
    f8_unit u = {.arena = &arena, .diag = &diag};
    codec_func(&u);
    ck_assert_msg(f8_build_plan(u.module, &(f8_build_options){0}, &arena, &plan, &diag) == F8_OK &&
                      f8_exec_create(&plan, &(f8_exec_options){0}, &exec, &diag) == F8_OK,
                  "%s", diag.text);
    for (int i = 0; i < CODEC_WAYS; i++)
        codec_oracle_make(&oracle[i], &codec_ways[i]);
    uint32_t *in = f8_exec_port(exec, 0, false, 0);
    for (uint32_t chunk = 0; chunk < codec_chunks(); chunk++) {
        codec_inputs(chunk, in);
        ck_assert_msg(f8_exec_run(exec, 0, &diag) == F8_OK, "%s", diag.text);
        for (uint32_t i = 0; i < CODEC_WAYS; i++) {
            codec_oracle_codes(&oracle[i], in, CODEC_CHUNK, want);
            codec_tally_codes(&tally[i], in, f8_exec_port(exec, 0, true, i), want, CODEC_CHUNK);
        }
    }
    f8_exec_destroy(exec);
    f8_arena_end(&arena);
    for (int i = 0; i < CODEC_WAYS; i++)
        codec_tally_check(&tally[i], "cpu kernel", codec_ways[i].name);
}
END_TEST

int main(void)
{
    printf("seed %u\n", codec_seed);
    Suite *s = suite_create("codecs");
    TCase *t = tcase_create("codecs");
    tcase_set_timeout(t, codec_chunks() > 16 ? 0 : 120);
    tcase_add_test(t, oracle_has_published_values);
    tcase_add_loop_test(t, borders_and_values, 0, CODEC_WAYS);
    tcase_add_loop_test(t, codec, 0, CODEC_WAYS);
    tcase_add_loop_test(t, programs, 0, CODEC_WAYS);
    tcase_add_test(t, compiled);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}

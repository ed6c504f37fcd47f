/* Conversions from f32 to E4M3, E5M2 and E8M0, saturating and not, code for code against an oracle
 * made from the formats' values alone (shared/num/codec_oracle.h). Three implementations are
 * tested: the codec (ir/num/fp8.c), the scalar functions (ir/num/scalar.def), and what the CPU
 * target compiles from those. The inputs are 2^24 chosen ones, among them every bf16 value; with
 * FP8C_CODECS=all (`make check-codecs`) all 2^32. */

#include "codegen/build.h"
#include "ir/num/scalar.h"
#include "runtime/cpu/exec.h"
#include "tests/shared/num/codec_func.h"
#include "tests/shared/num/codec_run.h"
#include "tests/shared/suite.h"

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
 * in codec_inputs.c. And decoding gives the values that the borders were made from. */
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

/* ---- the codec and the scalar programs ---- */

static void program(const codec_way *way, const uint32_t *in, uint8_t *code)
{
    enum { PART = 4096 };
    uint32_t wide[PART];
    const f8_sfn fn = f8_scalar_encode_fn(way->format, way->saturate);
    for (size_t begin = 0; begin < CODEC_CHUNK; begin += PART) {
        f8_scalar_eval(fn, in + begin, wide, PART);
        for (size_t i = 0; i < PART; i++)
            code[begin + i] = (uint8_t)wide[i];
    }
}

START_TEST(codecs)
{
    codec_compare("codec", &codec_ways[_i], codec_of_ir, codec_of_oracle);
}
END_TEST

START_TEST(programs)
{
    codec_compare("scalar program", &codec_ways[_i], program, codec_of_oracle);
}
END_TEST

/* ---- kernels ---- */

START_TEST(kernels)
{
    static uint8_t want[CODEC_CHUNK];
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
    uint32_t *in = f8_exec_port(exec, 0, false, 0);
    for (uint32_t chunk = 0; chunk < codec_chunks(); chunk++) {
        codec_inputs(chunk, in);
        ck_assert_msg(f8_exec_run(exec, 0, &diag) == F8_OK, "%s", diag.text);
        for (uint32_t i = 0; i < CODEC_WAYS; i++) {
            codec_of_oracle(&codec_ways[i], in, want);
            codec_tally_add(&tally[i], in, f8_exec_port(exec, 0, true, i), want, CODEC_CHUNK);
        }
    }
    f8_exec_destroy(exec);
    f8_arena_end(&arena);
    for (int i = 0; i < CODEC_WAYS; i++)
        codec_tally_check(&tally[i], "cpu kernel", &codec_ways[i]);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("codecs");
    TCase *t = tcase_create("codecs");
    tcase_add_test(t, oracle_has_published_values);
    tcase_add_loop_test(t, borders_and_values, 0, CODEC_WAYS);
    tcase_add_loop_test(t, codecs, 0, CODEC_WAYS);
    tcase_add_loop_test(t, programs, 0, CODEC_WAYS);
    tcase_add_test(t, kernels);
    return codec_suite(s, t);
}

/* fp8c_convert_weights: what the command does, as a call. */
#include <math.h>

#include "frontend/fp8c_weights.h"
#include "tests/shared/formats/convert_case.h"

static fp8c_context *context;

static void begin(void)
{
    setup();
    ck_assert_int_eq(fp8c_context_create(NULL, &context), FP8C_OK);
}

static void end(void)
{
    fp8c_context_destroy(context);
    f8_cli_teardown();
}

typedef struct told {
    int n, kept, requantized;
    double least;
} told;

static void count(void *user, const fp8c_converted *x)
{
    told *t = user;
    t->n++;
    t->kept += !strcmp(x->fate, "kept");
    t->requantized += !strcmp(x->fate, "requantized");
    ck_assert_ptr_nonnull(strstr(x->weight, "model.layers."));
    ck_assert(isnan(x->added));
    ck_assert_int_eq(!strcmp(x->fate, "requantized"), x->why != NULL);
    if (!strcmp(x->fate, "requantized"))
        t->least = fmin(t->least, x->sqnr);
    else
        ck_assert(isnan(x->sqnr));
}

static fp8c_convert_options from_to(const char *format)
{
    return (fp8c_convert_options){.struct_size = sizeof(fp8c_convert_options),
                                  .from = p.from,
                                  .format = format,
                                  .out = p.out};
}

START_TEST(converts)
{
    told t = {.least = INFINITY};
    write_made((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS}, p.from);
    fp8c_convert_options o = from_to("modelopt");
    o.report = count;
    o.user = &t;
    o.most = 100000;
    ck_assert_int_eq(fp8c_convert_weights(context, &o), FP8C_OK);
    ck_assert_int_eq(t.n, 14);
    ck_assert_int_eq(t.kept, 14);
    is_sound(p.out);
    char index[PATH + 40];
    snprintf(index, sizeof index, "%s/model.safetensors.index.json", p.out);
    ck_assert(is_there(index)); /* files of at most 100000 bytes */
}
END_TEST

START_TEST(quantizes_again)
{
    told t = {.least = INFINITY};
    write_made((made_spec){.format = MADE_CT, .scales = MADE_ROWS}, p.from);
    fp8c_convert_options o = from_to("hf-fp8");
    o.report = count;
    o.user = &t;
    ck_assert_int_eq(fp8c_convert_weights(context, &o), FP8C_OK);
    ck_assert_int_eq(t.requantized, 14);
    ck_assert(t.least > 25 && t.least < 40);
    is_sound(p.out);
}
END_TEST

static void refused(fp8c_convert_options o, const char *message)
{
    ck_assert_int_eq(fp8c_convert_weights(context, &o), FP8C_ERR_INPUT);
    ck_assert_msg(strstr(fp8c_context_message(context), message), "%s",
                  fp8c_context_message(context));
    ck_assert(!is_there(p.out));
}

START_TEST(refuses)
{
    const char *map = "a=b";
    write_made((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS}, p.from);
    refused(from_to("gguf"), "there is no format 'gguf'");
    refused(from_to(NULL), "needs from, format and out");
    fp8c_convert_options o = from_to("modelopt");
    o.most = -1;
    refused(o, "most is negative");
    o = from_to("modelopt");
    o.map = &map;
    o.n_map = 1;
    refused(o, "map and ignore name");
    o = from_to("modelopt");
    o.adapters = p.nowhere;
    refused(o, "it is no folder");
    o = from_to("modelopt");
    o.model = p.from;
    refused(o, "its weights are FP8 already");
    o.struct_size = 0;
    refused(o, "fp8c_convert_options");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("convert call");
    TCase *t = tcase_create("calls");
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, converts);
    tcase_add_test(t, quantizes_again);
    tcase_add_test(t, refuses);
    suite_add_tcase(s, t);
    return s;
}

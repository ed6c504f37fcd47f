/* Conversions that are refused: one message each, exit code 1, and nothing is written. */
#include <limits.h>
#include <math.h>

#include "tests/shared/formats/convert_case.h"

/* ---- what is refused ---- */

static void refused(const char *message)
{
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "compressed-tensors", "-o", p.out), 1, message);
    ck_assert(!is_there(p.out));
    f8_cli_fails(F8_CLI("weights", p.from), 1, message);
}

START_TEST(unwritable)
{
    f8_cli_write("file", "x", 1);
    write_made((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS}, p.from);
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "modelopt", "-o", p.under), 1,
                 "Not a directory");
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "modelopt", "-o", p.file), 1, "it is a file");
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "modelopt", "-o", p.nowhere), 1,
                 "No such file or directory");
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "native", "-o", p.nowhere), 1,
                 "No such file or directory");
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "native", "-o", p.from), 1, "");
    nothing_left(2);
    ck_assert(!mkdir(p.out, 0777));
    made_text(p.out, "mine", "x");
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "modelopt", "-o", p.out), 1,
                 "the folder is not empty");
    nothing_left(3);
    size_t n;
    char path[PATH + 10];
    snprintf(path, sizeof path, "%s/mine", p.out);
    char *text = f8_cli_read(path, &n);
    ck_assert_uint_eq(n, 1);
    free(text);
    ck_assert(!unlink(path)); /* an empty folder is as good as none */
    runs(run_convert(p.from, "modelopt", NULL, p.out));
    is_sound(p.out);
}
END_TEST

/* A name that is too long for the one that is made of it. What is left of that, where it is cut, is
 * somebody's folder. */
START_TEST(long_name)
{
    static char path[PATH_MAX], longer[PATH_MAX + 1];
    size_t n = strlen(p.out), ends[PATH_MAX / 2], depth = 0;
    write_made((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS}, p.from);
    memcpy(path, p.out, n + 1);
    ck_assert(!mkdir(path, 0777));
    while (n < PATH_MAX - 1) { /* components of 100 characters, the last of 2 to 101 */
        const size_t left = PATH_MAX - 1 - n, more = left < 102 ? left : 101;
        ends[depth++] = n;
        path[n] = '/';
        memset(path + n + 1, 'x', more - 1);
        n += more;
        ck_assert(!mkdir(path, 0777));
    }
    snprintf(longer, sizeof longer, "%sy", path);
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "modelopt", "-o", longer), 1,
                 "the name is too long");
    while (depth) {
        ck_assert(!rmdir(path)); /* it is still there */
        path[ends[--depth]] = 0;
    }
}
END_TEST

/* What is compared with has to be wider. */
START_TEST(beside_fp8)
{
    write_made((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS}, p.from);
    f8_cli_fails(F8_CLI("weights", p.from, "--beside", p.from), 1,
                 "its weights are FP8, too: --beside takes the model in a wider dtype");
}
END_TEST

/* A new folder can't take the place of the one that it is made of, but it may lie in it. */
START_TEST(into_itself)
{
    char inside[PATH + 10];
    write_made((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS}, p.from);
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "modelopt", "-o", p.from), 1,
                 "the folder is not empty");
    snprintf(inside, sizeof inside, "%s/new", p.from);
    runs(run_convert(p.from, "modelopt", NULL, inside));
    is_sound(inside);
    is_sound(p.from);
}
END_TEST

START_TEST(truncated)
{
    char path[PATH + 30];
    struct stat s;
    write_made((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS}, p.from);
    snprintf(path, sizeof path, "%s/model.safetensors", p.from);
    ck_assert(!stat(path, &s) && !truncate(path, s.st_size - 100));
    refused("it is truncated");
    nothing_left(1);
}
END_TEST

/* Methods that are no FP8. */
START_TEST(other_methods)
{
    static const char *const configs[] = {
        "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 128}",
        "{\"quant_method\": \"awq\", \"bits\": 4, \"version\": \"gemm\"}",
        "{\"quant_method\": \"bitsandbytes\", \"load_in_8bit\": true}",
        "{\"load_in_4bit\": true}",
        "{\"quant_method\": \"fbgemm_fp8\"}",
    };
    static const char *const words[] = {"gptq", "awq", "bitsandbytes", "''", "fbgemm_fp8"};
    char text[300], message[100];
    write_made((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS}, p.from);
    snprintf(text, sizeof text, "{\"quantization_config\": %s}", configs[_i]);
    made_text(p.from, "config.json", text);
    snprintf(message, sizeof message, "%s", words[_i]);
    refused(message);
}
END_TEST

START_TEST(no_json)
{
    write_made((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS}, p.from);
    made_text(p.from, "config.json", "{\"a\": ");
    refused("it is not valid JSON");
    made_text(p.from, "config.json", "[1]");
    refused("it is no JSON object");
    made_text(p.from, "config.json", "");
    refused("it is not valid JSON");
}
END_TEST

START_TEST(no_weights)
{
    ck_assert(!mkdir(p.from, 0777));
    made_text(p.from, "config.json", "{}");
    refused("the folder has no weights");
    made_text(p.from, "model.safetensors.index.json",
              "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\"}}");
    refused("model-00001-of-00002.safetensors");
    made_text(p.from, "model.safetensors.index.json", "{}");
    refused("it has no 'weight_map'");
}
END_TEST

/* What the linter finds is not converted, where it would give wrong values. */
START_TEST(faulty)
{
    made_folder *f = made_new((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS});
    made_drop(f, made_scale(f, "model.layers.0.mlp.up_proj")->name);
    made_write(f, p.from);
    made_free(f);
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "modelopt", "-o", p.out), 1,
                 "'model.layers.0.mlp.up_proj.weight' has no scales that go with it");
    f8_cli_forget(p.from);
    f = made_new((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS});
    made_find(f, "model.layers.0.mlp.up_proj.weight")->dtype = F8_ST_F8_E4M3FNUZ;
    made_write(f, p.from);
    made_free(f);
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "modelopt", "-o", p.out), 1,
                 "are F8_E4M3FNUZ, not F8_E4M3");
    f8_cli_forget(p.from);
    write_wide((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS}, p.from);
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "modelopt", "-o", p.out), 1,
                 "none of its weights is in FP8");
    nothing_left(1);
}
END_TEST

/* Scales that are no numbers. */
START_TEST(faulty_scales)
{
    made_folder *f = made_new((made_spec){.format = MADE_CT, .scales = MADE_ROWS});
    static const char name[] = "model.layers.0.mlp.up_proj.weight_scale";
    if (_i == 0) {
        made_drop(f, name);
        made_add(f, name, F8_ST_I32, 384, 1, -1, -1);
    } else {
        made_set(made_find(f, name), 7, NAN);
    }
    made_write(f, p.from);
    made_free(f);
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "hf-fp8", "-o", p.out), 1,
                 _i ? "'model.layers.0.mlp.up_proj' has values that are NaN or Inf" : "I32");
    nothing_left(1);
}
END_TEST

/* ---- what a format has no room for ---- */

/* Where no weight can stay, the new folder would be FP8 by its config alone. */
START_TEST(all_ragged)
{
    write_made((made_spec){.format = MADE_CT, .scales = MADE_ROWS, .hidden = 192, .wide = 200},
               p.from);
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "hf-fp8", "-o", p.out), 1,
                 "no weight can be FP8 in hf-fp8");
    nothing_left(1);
}
END_TEST

/* Codes that are no linear's weight: experts in one tensor. */
START_TEST(other_codes)
{
    made_folder *f = made_new((made_spec){.format = MADE_HF, .scales = MADE_BLOCKS});
    made_add(f, "model.layers.0.mlp.experts.gate_up_proj", F8_ST_F8_E4M3, 4, 256, 128, -1);
    made_add(f, "model.layers.0.mlp.experts.gate_up_proj_scale_inv", F8_ST_F32, 4, 2, 1, -1);
    made_write(f, p.from);
    made_free(f);
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "modelopt", "-o", p.out), 1,
                 "'model.layers.0.mlp.experts.gate_up_proj' is F8_E4M3, but no linear's weight");
    nothing_left(1);
}
END_TEST

START_TEST(no_scales_of_inputs)
{
    write_made((made_spec){.format = MADE_CT, .scales = MADE_TENSOR}, p.from);
    f8_cli_fails(F8_CLI("weights", p.from, "--as", "modelopt", "-o", p.out), 1,
                 "modelopt's FP8 has a scale for the input of each linear");
    ck_assert(!is_there(p.out));
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("convert_refused");
    TCase *t = tcase_create("folders");
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_test(t, unwritable);
    tcase_add_test(t, long_name);
    tcase_add_test(t, beside_fp8);
    tcase_add_test(t, into_itself);
    tcase_add_test(t, truncated);
    tcase_add_loop_test(t, other_methods, 0, 5);
    tcase_add_test(t, no_json);
    tcase_add_test(t, no_weights);
    tcase_add_test(t, faulty);
    tcase_add_loop_test(t, faulty_scales, 0, 2);
    tcase_add_test(t, all_ragged);
    tcase_add_test(t, other_codes);
    tcase_add_test(t, no_scales_of_inputs);
    suite_add_tcase(s, t);
    return s;
}

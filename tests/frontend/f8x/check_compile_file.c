/* `fp8c compile -o NAME.f8x` and `fp8c inspect`, as a user runs them. Opening a file loads no
 * compiler. A file is written whole or not at all. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frontend/fp8c.h"
#include "ir/base/clock.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

#define MODEL "frontend/models/gpt.f8"
#define SMALL "-D", "L=1", "-D", "B=1", "-D", "T=16", "-D", "C=32"

enum { TIMEOUT = 600 };

/* f8_cli_temp's, whose buffers rotate, for the length of a test. */
static char path[512];

static void setup(void)
{
    f8_cli_setup();
    snprintf(path, sizeof path, "%s", f8_cli_temp("gpt.f8x"));
}

/* `words` must be somewhere in what was said on stdout. */
static void says(f8_cli_result r, const char *words)
{
    ck_assert_msg(strstr(r.out, words) != NULL, "'%s' is not in:\n%.3000s", words, r.out);
}

static void compile_it(void)
{
    f8_cli_result r = F8_CLI("compile", MODEL, SMALL, "--recipe", "delayed", "--target",
                             "cpu,cpu:x86-64-v3,cpu:x86-64-v4", "-o", path);
    f8_cli_ok(r);
    says(r, "for cpu, cpu:x86-64-v3, cpu:x86-64-v4");
}

START_TEST(round_trip)
{
    compile_it();
    f8_cli_result r = F8_CLI("inspect", path);
    f8_cli_ok(r);
    static const char *const words[] = {"format 1.11",
                                        "checksum ",
                                        "\ntarget cpu\n",
                                        "\ntarget cpu:x86-64-v3\n",
                                        "\nmicro_step: ",
                                        "\nupdate: ",
                                        "GEMMs by onednn-f32",
                                        "input  tokens               i32[1, 16]",
                                        "output loss                 f32[]",
                                        "parameter h.0.mlp.c_fc.weight",
                                        "state     opt.m.wte.weight",
                                        "activations",
                                        "h.0.attn.c_attn",
                                        "distinct kernels"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        says(r, words[i]);
    ck_assert_ptr_null(strstr(r.out, "GEMMs by auto"));
    ck_assert_ptr_null(strstr(r.out, "GEMMs by ?"));
    r = F8_CLI("inspect", path, "--target", "cpu:x86-64-v4", "--kernels");
    f8_cli_ok(r);
    says(r, "\ntarget cpu:x86-64-v4");
    says(r, "GEMMs; kernels move");
    ck_assert_ptr_null(strstr(r.out, "target cpu\n"));
    r = F8_CLI("inspect", path, "--json", "-");
    f8_cli_ok(r);
    static const char *const records[] = {"{\"event\":\"file\",",     "{\"event\":\"target\",",
                                          "{\"event\":\"function\",", "{\"event\":\"port\",",
                                          "{\"event\":\"variable\",", "{\"event\":\"memory\",",
                                          "{\"event\":\"decision\","};
    for (size_t i = 0; i < sizeof records / sizeof *records; i++)
        says(r, records[i]);
    for (const char *line = r.out; *line; line = strchr(line, '\n') + 1)
        ck_assert_int_eq(*line, '{');
}
END_TEST

START_TEST(same_bytes)
{
    size_t n, k;
    char b[sizeof path + 8];
    snprintf(b, sizeof b, "%s.b.f8x", path);
    char *text = f8_cli_read(MODEL, &n);
    const char *copy = f8_cli_write("copy.f8", text, n);
    free(text);
    setenv("FP8C_CACHE_DIR", "", 1); /* both compile, and neither takes the other's kernels */
    f8_cli_ok(F8_CLI("compile", MODEL, SMALL, "--threads", "1", "-o", path));
    f8_cli_result r = F8_CLI("compile", copy, SMALL, "--threads", "2", "-o", b, "--json", "-");
    f8_cli_ok(r);
    says(r, "{\"event\":\"file\",");
    char *x = f8_cli_read(path, &n), *y = f8_cli_read(b, &k);
    ck_assert(n == k && !memcmp(x, y, n));
    free(x);
    free(y);
}
END_TEST

START_TEST(refused)
{
    size_t n;
    compile_it();
    char *bytes = f8_cli_read(path, &n);
    const char *cut = f8_cli_write("cut.f8x", bytes, n / 2);
    f8_cli_fails(F8_CLI("inspect", cut), 1, "cut.f8x: error: the file is damaged: it has");
    bytes[n / 2] ^= 4;
    const char *flipped = f8_cli_write("flipped.f8x", bytes, n);
    f8_cli_fails(F8_CLI("inspect", flipped), 1,
                 "flipped.f8x: error: the file is damaged: its contents");
    bytes[n / 2] ^= 4;
    const char *large = f8_cli_write("large.f8x", bytes, n); /* with a hole: not read to its end */
    free(bytes);
    ck_assert(!truncate(large, (off_t)1 << 40));
    f8_cli_fails(F8_CLI("inspect", large), 1,
                 "the file is damaged: it has 1099511627776 bytes, and its header says ");
    large = f8_cli_write("large", MODEL, sizeof MODEL);
    ck_assert(!truncate(large, (off_t)1 << 40));
    f8_cli_fails(F8_CLI("inspect", large), 1, "error: this is not a .f8x file");
    f8_cli_fails(F8_CLI("inspect", MODEL), 1, "error: this is not a .f8x file");
    f8_cli_fails(F8_CLI("inspect", f8_cli_temp("none.f8x")), 1, "No such file");
    f8_cli_fails(F8_CLI("inspect"), 2, "an argument is missing: 'FILE.f8");
    f8_cli_fails(F8_CLI("compile", MODEL, "--target", "cpu,cpu", "-o", path), 1,
                 "target cpu is given twice");
    static const char *const empty[] = {"cpu,,", ",", ",cpu", "cpu,,cpu:x86-64-v3"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
        f8_cli_fails(F8_CLI("compile", MODEL, "--target", empty[i], "-o", path), 2,
                     "bad value for --target: name ");
    f8_cli_fails(F8_CLI("compile", MODEL, "--target", "reference", "-o", path), 1,
                 "target reference interprets");
    f8_cli_fails(F8_CLI("compile", MODEL, "--target", "cpu,tpu", "-o", path), 1, "no target 'tpu'");
    f8_cli_fails(F8_CLI("compile", MODEL, "--recipe", "auto", "-o", path), 2, "auto");
    f8_cli_fails(F8_CLI("compile", MODEL, "-o", f8_cli_temp("no/folder.f8x")), 1,
                 "folder.f8x: error: ");
    f8_cli_ok(F8_CLI("inspect", path)); /* as it was */
    f8_cli_result r = F8_CLI("inspect", path, "--target", "sm_90a");
    ck_assert_int_eq(r.code, 1);
    ck_assert_ptr_nonnull(strstr(r.err, "it has no code for 'sm_90a'"));
}
END_TEST

/* The file was compiled by another process, so that whatever is mapped here was needed to open and
 * run it. */
START_TEST(no_compiler)
{
    static const char *const compilers[] = {"libLLVM", "nvrtc", "libclang"};
    compile_it();
    fp8c_context *ctx;
    fp8c_program *p;
    ck_assert_int_eq(fp8c_context_create(NULL, &ctx), FP8C_OK);
    ck_assert_msg(fp8c_program_open(ctx, path, NULL, &p) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "micro_step")), FP8C_OK);
    char *line = NULL;
    size_t room = 0;
    bool dnnl = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    ck_assert_ptr_nonnull(maps);
    while (getline(&line, &room, maps) > 0) {
        dnnl = dnnl || strstr(line, "libdnnl");
        for (size_t i = 0; i < sizeof compilers / sizeof *compilers; i++)
            ck_assert_msg(!strstr(line, compilers[i]), "mapped: %s", line);
    }
    ck_assert_msg(dnnl, "even oneDNN is not to be seen");
    fclose(maps);
    free(line);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* In a process of its own: compile a small model over `path`, and end. */
static void compile_and_exit(const char *recipe)
{
    static const char text[] =
        "module small\n"
        "param w: f32[16, 16] normal(0.1)\n"
        "func forward(%x: f32[8, 16]) -> (%loss: f32[]) {\n"
        "  return reshape(reduce_sum(reshape(linear(%x, w)) {shape = [128]})) "
        "{shape = []}\n"
        "}\n";
    const fp8c_context_options no_cache = {.struct_size = sizeof no_cache, .cache_dir = ""};
    const fp8c_compile_options o = {.struct_size = sizeof o, .recipe = recipe};
    fp8c_context *ctx;
    fp8c_module *m;
    const bool ok =
        fp8c_context_create(&no_cache, &ctx) == FP8C_OK &&
        fp8c_module_parse(ctx, text, strlen(text), "small.f8", NULL, 0, &m) == FP8C_OK &&
        fp8c_compile_file(m, &o, 1, path) == FP8C_OK;
    _exit(ok ? 0 : 1);
}

/* Start that; after `us` microseconds (0: when it is done) it is killed. Whether it came to its
 * end. */
static bool compile_for(const char *recipe, uint32_t us)
{
    int status;
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        compile_and_exit(recipe);
    if (us) {
        usleep(us);
        kill(child, SIGKILL);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFEXITED(status);
}

/* Whenever it is killed, the file is all of the old one or all of the new one. */
START_TEST(killed)
{
    static const char *const recipes[] = {"bf16", "f32"};
    const int rounds = f8_cli_sanitized() ? 10 : 100;
    char *whole[2];
    size_t n[2], now;
    uint32_t seed = 3;
    int done = 0, old = 0;
    for (int i = 0; i < 2; i++) {
        ck_assert(compile_for(recipes[i], 0));
        whole[i] = f8_cli_read(path, &n[i]);
    }
    ck_assert(n[0] != n[1] || memcmp(whole[0], whole[1], n[0]) != 0);
    const double start = f8_seconds_now();
    ck_assert(compile_for(recipes[1], 0));
    const uint32_t most = (uint32_t)(1.3e6 * (f8_seconds_now() - start));
    printf("seed %u, up to %u us\n", seed, most);
    for (int k = 0, is = 1; k < rounds; k++) {
        done += compile_for(recipes[!is], 1 + test_random(&seed) % most);
        char *bytes = f8_cli_read(path, &now);
        const bool changed = now == n[!is] && !memcmp(bytes, whole[!is], now);
        ck_assert_msg(changed || (now == n[is] && !memcmp(bytes, whole[is], now)),
                      "%zu bytes of neither", now);
        old += !changed;
        is = changed ? !is : is;
        free(bytes);
    }
    printf("%d of %d were done, %d left the old one\n", done, rounds, old);
    free(whole[0]);
    free(whole[1]);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("compile file");
    TCase *t = tcase_create("compile file");
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, round_trip);
    tcase_add_test(t, same_bytes);
    tcase_add_test(t, refused);
    tcase_add_test(t, no_compiler);
    tcase_add_test(t, killed);
    suite_add_tcase(s, t);
    return s;
}

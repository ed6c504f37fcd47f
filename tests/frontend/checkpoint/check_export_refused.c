/* What `fp8c export` and the readers of its files refuse: files that contradict their metadata,
 * weights that FP8 cannot hold, wrong usage, a full disk. */
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/shared/api/export_case.h"
#include "tests/shared/suite.h"

/* ---- files that are not what they say ---- */

static void bad_file(copy *c, const char *why)
{
    write_copy(c, "bad", false);
    REFUSED(run_eval("bf16", "bad"), why);
}

START_TEST(wrong_files)
{
    train("block", "weights");
    ok(run_export("block", "weights", "out"));
    copy *e = read_copy("out");
    copy *c = read_copy("out");
    drop(c, at(c, "up.weight_scale_inv"));
    bad_file(c, "under bf16:\n  missing     up.weight_scale_inv  F32 [2, 3]\n");
    free_copy(c);
    c = read_copy("out");
    add(c, "norm_scale", F8_ST_F32, 0, NULL);
    bad_file(c, "\n  unexpected  norm_scale  F32 []\n");
    free_copy(c);
    c = read_copy("out");
    c->tensor[at(c, "up.weight_scale_inv")].dim[0] = 3;
    c->tensor[at(c, "up.weight_scale_inv")].dim[1] = 2;
    bad_file(c, "\n  different   up.weight_scale_inv  F32 [3, 2], not F32 [2, 3]\n");
    c->tensor[at(c, "up.weight_scale_inv")].dim[0] = 2;
    c->tensor[at(c, "up.weight_scale_inv")].dim[1] = 3;
    c->tensor[at(c, "down.weight_scale_inv")].dtype = F8_ST_I32;
    c->tensor[at(c, "up.weight")].dtype = F8_ST_F8_E5M2;
    bad_file(
        c,
        "\n  different   up.weight  F8_E5M2 [144, 272] can't become F8_E4M3 [144, 272] exactly\n");
    bad_file(c,
             "\n  different   down.weight_scale_inv  I32 [2, 3] can't become F32 [2, 3] exactly\n");
    free_copy(c);
    static const char *const stored[][2] = {
        {"{\"up.weight\":\"fp4\",\"down.weight\":\"block\"}",
         "bad: error: the metadata 'fp8c.stored' of 'up.weight': \nerror: no recipe 'fp4'"},
        {"{\"up.weight\":8,\"down.weight\":\"block\"}",
         "bad: error: the metadata 'fp8c.stored' of 'up.weight': it has no recipe\n"},
        {"{\"up.weight\":\"block\"",
         "bad: error: the metadata 'fp8c.stored' is not a JSON object of weights and recipes"},
        {"[\"block\"]", "'fp8c.stored' is not a JSON object of weights and recipes"},
        {"{}", "'fp8c.stored' is not a JSON object of weights and recipes"},
        {"{\"up.weight\":\"block\"}",
         "  different   down.weight  F8_E4M3 [144, 272] can't become F32 [144, 272] exactly\n"},
        {"{\"up.weight\":\"block\",\"down.weight\":\"current\"}",
         "  missing     down.weight_scale  F32 []\n"},
        {"{\"up.weight\":\"block\",\"down.weight\":\"block\",\"wte\":\"block\"}",
         "error: 'wte' can't be stored under block"},
        {"{\"up.weight\":\"block\",\"down.weight\":\"bf16\"}",
         "error: 'down.weight' can't be stored under bf16"},
        {"{\"up.weight\":\"block\",\"else\":\"block\"}",
         "error: 'else' can't be stored under block"},
    };
    for (size_t i = 0; i < sizeof stored / sizeof *stored; i++) {
        set_metadata(e, "fp8c.stored", stored[i][0]);
        bad_file(e, stored[i][1]);
    }
    for (size_t i = 0; i < e->n_metadata; i++) /* a file that does not say how, without scales */
        if (!strcmp(e->metadata[i].key, "fp8c.stored"))
            memcpy((char *)e->metadata[i].key, "else", 5);
    drop(e, at(e, "up.weight_scale_inv"));
    bad_file(e,
             "  different   up.weight  F8_E4M3 [144, 272] can't become F32 [144, 272] exactly\n");
    free_copy(e);
}
END_TEST

/* ---- exports that are refused ---- */

/* No file is left at the place or in its folder, and what was there stays. */
static void not_exported(f8_cli_result r, const char *why)
{
    size_t n;
    REFUSED(r, why);
    char *before = f8_cli_read(f8_cli_temp("kept"), &n);
    ck_assert_str_eq(before, "as it was");
    free(before);
    ck_assert(access(f8_cli_temp("out"), F_OK));
}

/* Export to a new place, and over a file that must stay. */
static void refuses(const char *recipe, const char *from, const char *why)
{
    not_exported(run_export(recipe, from, "out"), why);
    not_exported(run_export(recipe, from, "kept"), why);
}

START_TEST(wrong_weights)
{
    static const struct {
        const char *tensor;
        int element;
        float value;
        const char *why;
    } bad[] = {
        {"up.weight", 7, NAN,
         "bad: error: tensor 'up.weight': element 7 is NaN: fp8c does not export such weights\n"},
        {"down.weight", 0, -INFINITY,
         "bad: error: tensor 'down.weight': element 0 is infinite: fp8c does not export such "
         "weights"},
        {"norm", 143, NAN, "bad: error: tensor 'norm': element 143 is NaN"},
    };
    f8_cli_write("kept", "as it was", 9);
    train("bf16", "weights");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        copy *c = read_copy("weights");
        ((float *)c->bytes[at(c, bad[i].tensor)])[bad[i].element] = bad[i].value;
        write_copy(c, "bad", true);
        refuses("block", "bad", bad[i].why);
    }
    copy *c = read_copy("weights");
    ((float *)c->bytes[at(c, "norm")])[5] = INFINITY; /* not scaled: as it is */
    write_copy(c, "infinite", false);
    ok(run_export("block", "infinite", "fine"));
    drop(c, at(c, "down.weight"));
    write_copy(c, "bad", true);
    refuses("block", "bad", "bad: error: the file does not hold the weights of ");
    refuses("block", "bad", " under block:\n  missing     down.weight  F32 [144, 272]\n");
    refuses("delayed", "weights", "under delayed:\n  missing     up.w  in fp8.scale\n");
    refuses("delayed", "weights",
            "and the file was trained under bf16: give --data FILE to calibrate them, or give a "
            "recipe that needs none, such as current\n");
    refuses("bf16", "weights",
            "error: no weight is stored in FP8: the recipe and its rules keep all linears in high");
    refuses("f32", "weights", "error: no weight is stored in FP8");
    refuses("fp4", "weights", "--recipe 'fp4': error: no recipe 'fp4'");
    not_exported(RUN("export", model, "--recipe", "block", "--rule", "\"*\" = bf16", "--weights",
                     f8_cli_temp("weights"), "-o", f8_cli_temp("out")),
                 "error: no weight is stored in FP8");
    refuses("block", "nothing", "nothing: error: No such file or directory\n");
    refuses("block", "fine",
            "fine: error: the weights are already FP8: export the checkpoint they came from\n");
}
END_TEST

START_TEST(wrong_usage)
{
    static const char *const usage[][12] = {
        {"export", model, "--recipe", "block", "-o", "x", NULL,
         "fp8c export: --weights FILE is needed"},
        {"export", model, "--recipe", "block", "--weights", "x", NULL,
         "fp8c export: -o FILE is needed"},
        {"export", model, "-o", "x", "--weights", "x", NULL,
         "fp8c export: --recipe RECIPE is needed"},
        {"export", model, "-o", "x", "--weights", "x", "--recipe", "auto", NULL,
         "only train and explain take recipe auto"},
        {"export", model, "-o", "x", "--weights", "x", "--recipe", "block", "--dtype", "f64", NULL,
         "--dtype takes f32 or bf16"},
        {"export", model, "--target", "cpu", NULL, "fp8c export: no such option '--target'"},
    };
    for (size_t i = 0; i < sizeof usage / sizeof *usage; i++) {
        int n = 0;
        while (usage[i][n])
            n++;
        const f8_cli_result r = f8_cli_run(usage[i]);
        ck_assert_int_eq(r.code, 2);
        ck_assert_msg(strstr(r.err, usage[i][n + 1]) != NULL, "%s", r.err);
        ck_assert_str_eq(r.out, "");
    }
    train("bf16", "weights");
    REFUSED(run_export("block", "weights", "no/such/folder"),
            "no/such/folder: error: No such file or directory\n");
    REFUSED(RUN("export", model, "--recipe", "block", "--weights", f8_cli_temp("weights"), "-o",
                "/dev/full"),
            "/dev/full: error: not a regular file\n");
    REFUSED(
        RUN("export", model, "--recipe", "block", "--weights", f8_cli_temp("weights"), "-o", "/"),
        "Is a directory");
}
END_TEST

/* The same export writes the same bytes, over itself too; a full disk leaves the old file and
 * nothing else. */
START_TEST(whole_or_not)
{
    size_t n, m;
    train("mxfp8", "weights");
    ok(run_export("mxfp8", "weights", "out"));
    char *first = f8_cli_read(f8_cli_temp("out"), &n);
    ok(run_export("mxfp8", "weights", "out"));
    char *again = f8_cli_read(f8_cli_temp("out"), &m);
    ck_assert(n == m && !memcmp(first, again, n));
    free(again);
    struct rlimit none, limit;
    ck_assert(!getrlimit(RLIMIT_FSIZE, &none));
    limit = (struct rlimit){n / 2, none.rlim_max};
    signal(SIGXFSZ, SIG_IGN); /* a full disk, as far as the command can tell */
    ck_assert(!setrlimit(RLIMIT_FSIZE, &limit));
    const f8_cli_result r = run_export("block", "weights", "out");
    ck_assert(!setrlimit(RLIMIT_FSIZE, &none));
    REFUSED(r, "out: error: File too large\n");
    again = f8_cli_read(f8_cli_temp("out"), &m);
    ck_assert(n == m && !memcmp(first, again, n));
    free(again);
    free(first);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("export_refused");
    TCase *t = tcase_create("export");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_test(t, wrong_files);
    tcase_add_test(t, wrong_weights);
    tcase_add_test(t, wrong_usage);
    tcase_add_test(t, whole_or_not);
    suite_add_tcase(s, t);
    return s;
}

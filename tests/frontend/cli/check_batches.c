/* Rows of tensors as the data of `fp8c train`, for a classifier: the same values in every kind of
 * file train to the same bits; an epoch takes each row once; held-out rows; what is wrong with a
 * file is said before the first step. */
#include "tests/shared/api/data_case.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

static const char classifier[] = "module classifier\n"
                                 "dim B = 4\n"
                                 "param w: f32[6, 16] normal(0.5)\n"
                                 "param v: f32[16, 3] normal(0.5)\n"
                                 "func forward(%x: f32[B, 6], %label: i32[B]) -> f32[] {\n"
                                 "  return cross_entropy(linear(tanh(linear(%x, w)), v), %label)\n"
                                 "}\n"
                                 "optimizer adamw {lr = 0.05}\n";

enum { TIMEOUT = 300, ROWS = 50, COLUMNS = 6 };

/* The first `rows` rows of x: in each, one of three pairs of columns is large. Its bits as ids. */
static const char *write_x(const char *name, int rows)
{
    int64_t bits[ROWS * COLUMNS];
    char shape[32];
    uint32_t random = 7;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const float x = (float)test_random(&random) * 0x1p-24f +
                        (i % COLUMNS / 2 == i / COLUMNS % 3 ? 2.0f : 0.0f);
        uint32_t b;
        memcpy(&b, &x, sizeof b);
        bits[i] = b;
    }
    snprintf(shape, sizeof shape, "%d, %d", rows, COLUMNS);
    return write_npy(name, "<f4", shape, bits, (size_t)(rows * COLUMNS), 4);
}

static const char *write_labels(const char *name, const char *descr, int width, int rows)
{
    int64_t label[ROWS];
    char shape[16];
    for (int i = 0; i < ROWS; i++)
        label[i] = i % 3;
    snprintf(shape, sizeof shape, "%d,", rows);
    return write_npy(name, descr, shape, label, (size_t)rows, (size_t)width);
}

/* NAME=FILE of --batch. */
static const char *pair(const char *name, const char *file)
{
    char both[512];
    snprintf(both, sizeof both, "%s=%s", name, file);
    return keep(both);
}

static void setup(void)
{
    f8_cli_setup();
    model = keep(f8_cli_write("classifier.f8", classifier, strlen(classifier)));
    state = keep(f8_cli_temp("state"));
}

/* ---- training ---- */

START_TEST(trains_a_classifier)
{
    const char *x = pair("x", write_x("x.npy", ROWS));
    const char *label = pair("label", write_labels("l.npy", "<i4", 4, ROWS));
    const f8_cli_result r =
        F8_CLI("train", model, "--batch", x, "--batch", label, "--steps", "60", "--recipe", "f32");
    double final_loss, held_out;
    const char *row = strstr(r.out, "\nf32 ");
    ck_assert_msg(r.code == 0 && row && sscanf(row, " f32 %lf %lf", &final_loss, &held_out) == 2,
                  "%s%s", r.out, r.err);
    ck_assert_double_lt(final_loss, 0.3); /* untrained: about ln 3 */
    ck_assert_double_lt(held_out, 0.4);
    ck_assert_msg(strstr(r.out, "rows/s") && strstr(r.out, "losses are means over batches; final"),
                  "%s", r.out);
}
END_TEST

/* Other dtypes of the same values, and a safetensors file, train to the same
 * bits. */
START_TEST(kinds_of_rows)
{
    const char *x = pair("x", write_x("x.npy", ROWS));
    bytes want =
        TRAIN("--batch", x, "--batch", pair("label", write_labels("i4.npy", "<i4", 4, ROWS)));
    ck_assert(same(&want, TRAIN("--batch", pair("label", write_labels("i8.npy", "<i8", 8, ROWS)),
                                "--batch", x)));
    ck_assert(same(&want, TRAIN("--batch", x, "--batch",
                                pair("label", write_labels("u1.npy", "|u1", 1, ROWS)))));
    size_t n;
    char *npy = f8_cli_read(keep(f8_cli_temp("x.npy")), &n), *file = calloc(1, n + 256);
    const char head[] = "{\"x\":{\"dtype\":\"F32\",\"shape\":[50,6],\"data_offsets\":[0,1200]}}";
    const uint64_t length = (sizeof head - 1 + 7) / 8 * 8;
    memcpy(file, &length, 8);
    memset(file + 8, ' ', length);
    memcpy(file + 8, head, sizeof head - 1);
    memcpy(file + 8 + length, npy + 128, 1200);
    const char *st = keep(f8_cli_write("x.safetensors", file, 8 + length + 1200));
    free(npy);
    free(file);
    const char *label = pair("label", write_labels("i4.npy", "<i4", 4, ROWS));
    ck_assert(same(&want, TRAIN("--batch", pair("x", st), "--batch", label)));
    char named[600];
    snprintf(named, sizeof named, "x=%s:x", st);
    ck_assert(same(&want, TRAIN("--batch", named, "--batch", label)));
    free(want.at);
}
END_TEST

/* The last tenth is held out, or the rows of --validation. */
START_TEST(rows_held_out)
{
    const char *json = keep(f8_cli_temp("j"));
    const char *x = pair("x", write_x("x.npy", ROWS)), *v = pair("x", write_x("v.npy", ROWS));
    const char *label = pair("label", write_labels("l.npy", "<i4", 4, ROWS));
    bytes want = TRAIN("--batch", x, "--batch", label, "--steps", "40");
    ck_assert(same(&want, TRAIN("--batch", x, "--batch", label, "--eval-every", "8", "--json", json,
                                "--steps", "40")));
    ck_assert(!same(&want, TRAIN("--batch", x, "--batch", label, "--validation", v, "--validation",
                                 label, "--steps", "40")));
    const char *x45 = pair("x", write_x("x45.npy", 45));
    const char *label45 = pair("label", write_labels("l45.npy", "<i4", 4, 45));
    ck_assert(same(&want, TRAIN("--batch", x45, "--batch", label45, "--validation", v,
                                "--validation", label, "--steps", "40")));
    free(want.at);
}
END_TEST

/* An epoch takes each row once: with the parameters fixed, the mean loss of an epoch's batches is
 * that of all rows, in every epoch. */
START_TEST(epochs)
{
    const char *x = pair("x", write_x("x.npy", 48));
    const char *label = pair("label", write_labels("l.npy", "<i4", 4, 48));
    const char *const data[] = {"--batch",      x,     "--batch", label, "--validation", x,
                                "--validation", label, NULL};
    double loss[36], mean[3] = {0};
    losses(model, 36, data, loss);
    for (int i = 0; i < 36; i++)
        mean[i / 12] += loss[i] / 12;
    ck_assert_double_eq_tol(mean[0], mean[1], 1e-5);
    ck_assert_double_eq_tol(mean[0], mean[2], 1e-5);
    ck_assert(loss[0] != loss[12] && loss[12] != loss[24]);
    char two[sizeof classifier + 40];
    snprintf(two, sizeof two, "%saccumulate 2\n", classifier);
    numbered(model, keep(f8_cli_write("two.f8", two, strlen(two))), data);
}
END_TEST

START_TEST(bad_rows)
{
    const char *x = pair("x", write_x("x.npy", ROWS));
    const char *label = pair("label", write_labels("l.npy", "<i4", 4, ROWS));
    REFUSED(1, "classifier.f8: error: no file for the inputs: label; --batch NAME=FILE gives one",
            "--batch", x);
    REFUSED(1, "classifier.f8: error: forward has no input 'y'", "--batch", x, "--batch", label,
            "--batch", pair("y", write_x("y.npy", ROWS)));
    REFUSED(1, "l49.npy: error: 'label' has 49 rows here, but 'x' has 50 in ", "--batch", x,
            "--batch", pair("label", write_labels("l49.npy", "<i4", 4, 49)));
    REFUSED(1, "f.npy: error: it is F32 [50], but 'label' needs I32 [50]", "--batch", x, "--batch",
            pair("label", write_labels("f.npy", "<f4", 4, ROWS)));
    REFUSED(1, "l.npy: error: it is I32 [50], but 'x' needs F32 [50, 6]", "--batch",
            pair("x", keep(f8_cli_temp("l.npy"))), "--batch", label);
    REFUSED(1, "x9.npy: error: it has only 9 rows: a tenth of them is held out, so at least 10",
            "--batch", pair("x", write_x("x9.npy", 9)), "--batch",
            pair("label", write_labels("l9.npy", "<i4", 4, 9)));
    REFUSED(1, "x0.npy: error: it has no rows", "--batch", pair("x", write_x("x0.npy", 0)),
            "--batch", pair("label", write_labels("l0.npy", "<i4", 4, 0)));
    REFUSED(1, "error: 'x' is given twice", "--batch", x, "--batch", x);
    REFUSED(2, "bad value for --batch: 'x'", "--batch", "x");
    REFUSED(2, "bad value for --batch: 'x=y.bin'", "--batch", "x=y.bin");
    REFUSED(1, "--validation 'x.npy': error: not NAME=FILE.npy or NAME=FILE.safetensors[:TENSOR]",
            "--batch", x, "--validation", "x.npy");
    REFUSED(1, "classifier.f8: error: no file for the inputs: label; --validation NAME=FILE",
            "--batch", x, "--batch", label, "--validation", x);
    REFUSED(2, "with --batch, it does not use '--data'", "--batch", x, "--data", "x");
    int64_t big[ROWS] = {0};
    big[49] = (int64_t)1 << 31;
    REFUSED(1, "big.npy: error: for 'label': element 49 does not fit into i32", "--batch", x,
            "--batch", pair("label", write_npy("big.npy", "<i8", "50,", big, ROWS, 8)));
}
END_TEST

/* A run that stopped within an epoch goes on with the rows that come next. */
START_TEST(goes_on)
{
    size_t n[2];
    char *bytes[2];
    const char *x = pair("x", write_x("x.npy", ROWS)), *folder = keep(f8_cli_temp("run"));
    const char *label = pair("label", write_labels("l.npy", "<i4", 4, ROWS));
    f8_cli_ok(F8_CLI("train", model, "--batch", x, "--batch", label, "--steps", "30", "--recipe",
                     "f32", "--save-state", state));
    bytes[0] = f8_cli_read(state, &n[0]);
    f8_cli_ok(F8_CLI("train", model, "--batch", x, "--batch", label, "--steps", "30", "--recipe",
                     "f32", "--run", folder, "--stop-at", "17"));
    f8_cli_ok(F8_CLI("train", "--resume", folder, "--save-state", state));
    bytes[1] = f8_cli_read(state, &n[1]);
    ck_assert(n[0] == n[1] && !memcmp(bytes[0], bytes[1], n[0]));
    free(bytes[0]);
    free(bytes[1]);
    char *labels = f8_cli_read(label + strlen("label="), &n[0]); /* two of them change places */
    const char kept = labels[n[0] - 4];
    labels[n[0] - 4] = labels[n[0] - 8];
    labels[n[0] - 8] = kept;
    ck_assert_int_ne(kept, labels[n[0] - 4]);
    f8_cli_write("l.npy", labels, n[0]);
    free(labels);
    f8_cli_fails(F8_CLI("train", "--resume", folder), 1, "the data is {\"rows\":50,");
    write_labels("l.npy", "<i8", 8, ROWS); /* the same labels, of another type */
    const f8_cli_result r = F8_CLI("train", "--resume", folder, "--steps", "31");
    ck_assert_msg(r.code == 0, "%s", r.err);
    write_labels("l.npy", "<i4", 4, ROWS - 1);
    write_x("x.npy", ROWS - 1);
    f8_cli_fails(F8_CLI("train", "--resume", folder), 1, "the data is {\"rows\":49,");
    f8_cli_forget(folder);
}
END_TEST

/* Of large files blocks are compared: a change of the first or the last value is seen. */
START_TEST(large)
{
    enum { MANY = 3000000 };
    static const int64_t zeros[2];
    const char *file = write_npy("x.npy", "<f4", "3000000, 6", zeros, 2, 4),
               *folder = keep(f8_cli_temp("run")), *x = pair("x", file),
               *label = write_npy("l.npy", "<i4", "3000000,", zeros, 2, 4);
    size_t head, unused;
    free(f8_cli_read(file, &head));
    free(f8_cli_read(label, &unused));
    head -= 8;
    ck_assert_int_eq(truncate(file, (off_t)head + (off_t)MANY * COLUMNS * 4), 0);
    ck_assert_int_eq(truncate(label, (off_t)unused - 8 + (off_t)MANY * 4), 0);
    f8_cli_ok(F8_CLI("train", model, "--batch", x, "--batch", pair("label", label), "--steps", "2",
                     "--recipe", "f32", "--run", folder, "--stop-at", "1"));
    for (int last = 0; last < 2; last++) {
        const off_t at = (off_t)head + (last ? (off_t)MANY * COLUMNS * 4 - 1 : 0);
        FILE *to = fopen(file, "r+b");
        ck_assert(to && !fseeko(to, at, SEEK_SET) && fputc(1, to) == 1 && !fclose(to));
        f8_cli_fails(F8_CLI("train", "--resume", folder), 1, "the data is {\"rows\":3000000,");
        to = fopen(file, "r+b");
        ck_assert(to && !fseeko(to, at, SEEK_SET) && fputc(0, to) == 0 && !fclose(to));
    }
    f8_cli_ok(F8_CLI("train", "--resume", folder));
    f8_cli_forget(folder);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("batches");
    TCase *t = tcase_create("batches");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_test(t, trains_a_classifier);
    tcase_add_test(t, goes_on);
    tcase_add_test(t, large);
    tcase_add_test(t, kinds_of_rows);
    tcase_add_test(t, rows_held_out);
    tcase_add_test(t, epochs);
    tcase_add_test(t, bad_rows);
    suite_add_tcase(s, t);
    return s;
}

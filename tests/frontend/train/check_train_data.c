/* The data of a training without the command: several files as one stream, windows, batches as a
 * function of the seed and their number, the order of held-out data, rows of tensors, what each of
 * several ranks gets, the words of a failure, and a caller who asks to stop. */
#include <math.h>

#include "frontend/train/data/data.h"
#include "tests/shared/api/data_case.h"
#include "tests/shared/suite.h"

enum { IDS = 400, ROWS = 43, T = 4 };

static const char net[] =
    "module net\n"
    "dim B = 2, T = 4, V = 256\n"
    "param wte: f32[V, 8] normal(0.5)\n"
    "func forward(%tokens: i32[B, T], %targets: i32[B, T]) -> (%loss: f32[]) {\n"
    "  return cross_entropy(linear(embedding(wte, %tokens), wte) {transpose_b = "
    "true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.05}\n";
static const char classes[] = "module classes\n"
                              "dim B = 2\n"
                              "param w: f32[2, 4] normal(0.5)\n"
                              "func forward(%x: f32[B, 2], %y: i32[B]) -> (%loss: f32[]) {\n"
                              "  return cross_entropy(linear(%x, w), %y)\n"
                              "}\n"
                              "optimizer adamw {lr = 0.05}\n";

static int64_t ids[IDS];
static fp8c_context *ctx;
static fp8c_module *module;
static fp8c_program *program;
static int step, eval;
static f8_diag diag; /* of the last failure */

/* Compiles for batches of B rows: the programs of a test follow each other. */
static void use(const char *text, int64_t B)
{
    const fp8c_dim dim = {"B", B};
    const fp8c_compile_options options = {
        .struct_size = sizeof options, .recipe = "f32", .target = "reference"};
    fp8c_program_destroy(program);
    fp8c_module_destroy(module);
    ck_assert_msg(fp8c_module_parse(ctx, text, strlen(text), "net.f8", &dim, 1, &module) ==
                          FP8C_OK &&
                      fp8c_compile(module, &options, &program) == FP8C_OK &&
                      fp8c_program_initialize(program, 1) == FP8C_OK,
                  "%s", fp8c_context_message(ctx));
    step = fp8c_program_function(program, "micro_step");
    eval = fp8c_program_function(program, "eval");
}

static void setup(void)
{
    f8_cli_setup();
    for (int i = 0; i < IDS; i++)
        ids[i] = (i * i + i / 7) % 251;
    ck_assert_int_eq(fp8c_context_create(NULL, &ctx), FP8C_OK);
    program = NULL;
    module = NULL;
    diag = (f8_diag){0};
}

static void teardown(void)
{
    fp8c_program_destroy(program);
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    f8_cli_teardown();
}

static const void *input(const char *name)
{
    return fp8c_program_buffer(program, step, FP8C_INPUT,
                               fp8c_program_find_port(program, step, FP8C_INPUT, name));
}

static const f8_data_options words = {.model = "net.f8",
                                      .needs = "the test",
                                      .batches_name = "rows",
                                      .validation_name = "held",
                                      .tokens_name = "as"};

/* Options for the tokens of these files. */
static f8_data_options of_files(const char *const *files, size_t n)
{
    f8_data_options o = words;
    o.files = files;
    o.n_files = n;
    return o;
}

static f8_data_options of_rows(const char *const *batches, size_t n)
{
    f8_data_options o = words;
    o.batches = batches;
    o.n_batches = n;
    return o;
}

static void open_data(f8_data *d, const f8_data_options *o)
{
    ck_assert_msg(f8_data_open(d, o, &diag) == F8_OK &&
                      f8_data_fit(d, module, program, step, &diag) == F8_OK,
                  "%s: %s", diag.file ? diag.file : "", diag.text);
}

/* ---- tokens ---- */

/* A text, a file of nanoGPT and a .npy: one stream, read across their borders. */
START_TEST(stream)
{
    const char *const files[] = {write_ids("a", NULL, 0, ids, 101, 1, 0),
                                 write_ids("b.bin", NULL, 0, ids + 101, 7, 2, 0),
                                 write_npy("c.npy", "<i8", "292,", ids + 108, IDS - 108, 8)};
    const f8_data_options o = of_files(files, 3);
    f8_tokens t;
    int32_t got[IDS];
    char shown[600];
    ck_assert_int_eq(f8_tokens_open(&t, files, 3, &o, &diag), F8_OK);
    ck_assert(t.n == IDS && t.n_shards == 3 && !t.text);
    snprintf(shown, sizeof shown, "%s and 2 more", files[0]);
    ck_assert_str_eq(t.shown, shown);
    for (uint64_t at = 95; at < 115; at++) {
        ck_assert_int_eq(f8_tokens_get(&t, at, got, 20, &diag), F8_OK);
        for (int i = 0; i < 20; i++)
            ck_assert_int_eq(got[i], ids[at + (uint64_t)i]);
    }
    f8_tokens_close(&t);
    f8_tokens_close(&t);
}
END_TEST

static uint64_t splitmix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The rows of the batch that was filled begin at these tokens. */
static void begins_at(int64_t row, uint64_t at)
{
    const int32_t *tokens = input("tokens"), *targets = input("targets");
    for (int64_t i = 0; i < T; i++) {
        ck_assert_int_eq(tokens[row * T + i], ids[at + (uint64_t)i]);
        ck_assert_int_eq(targets[row * T + i], ids[at + (uint64_t)i + 1]);
    }
}

/* A batch depends on the seed and its number alone, whatever was drawn before. */
START_TEST(windows)
{
    const char *const files[] = {write_ids("t.bin", NULL, 0, ids, IDS, 2, 0)};
    const f8_data_options o = of_files(files, 1);
    static const uint64_t batches[] = {0, 7, 3, 1000003, 7};
    f8_data d;
    use(net, 2);
    open_data(&d, &o);
    for (uint64_t seed = 1; seed < 4; seed++)
        for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
            ck_assert_int_eq(f8_data_fill(&d, program, step, seed, batches[i], &diag), F8_OK);
            for (int64_t row = 0; row < 2; row++) {
                const uint64_t draw = batches[i] * 2 + (uint64_t)row,
                               at = splitmix64(splitmix64(seed) + draw) % (IDS - IDS / 10 - T);
                ck_assert_uint_eq(f8_data_place(&d, seed, batches[i], row), at);
                begins_at(row, at);
            }
        }
    ck_assert_int_eq(f8_data_put(&d, program, step, 17, 1, &diag), F8_OK);
    begins_at(1, 17);
    ck_assert_int_eq(f8_data_items(&d), 2 * T);
    ck_assert_str_eq(f8_data_items_name(&d), "tokens");
    ck_assert(!d.failed && isfinite(f8_data_unigram(&d)));
    f8_data_close(&d);
}
END_TEST

/* Held-out windows follow each other from the last tenth's first token on, and begin again. */
START_TEST(held_out_tokens)
{
    enum { FROM = IDS - IDS / 10, WINDOWS = (IDS / 10 - 1) / T };
    const char *const files[] = {write_ids("t.bin", NULL, 0, ids, IDS, 2, 0)};
    const f8_data_options o = of_files(files, 1);
    f8_data d;
    use(net, 2);
    open_data(&d, &o);
    for (uint64_t batch = 0; batch < 9; batch++) {
        ck_assert_int_eq(f8_data_fill_held_out(&d, program, step, batch, &diag), F8_OK);
        for (int64_t row = 0; row < 2; row++)
            begins_at(row, FROM + (batch * 2 + (uint64_t)row) % WINDOWS * T);
    }
    f8_data_close(&d);
}
END_TEST

/* ---- rows ---- */

/* x has two f32 a row, 2 i and 2 i + 1; y has i % 4. */
static void write_rows(const char *batches[2])
{
    static char text[2][600];
    int64_t x[2 * ROWS], y[ROWS];
    for (int i = 0; i < 2 * ROWS; i++) {
        const float value = (float)i;
        x[i] = 0;
        memcpy(&x[i], &value, sizeof value);
    }
    for (int i = 0; i < ROWS; i++)
        y[i] = i % 4;
    snprintf(text[0], sizeof *text, "x=%s", write_npy("x.npy", "<f4", "43, 2", x, 2 * ROWS, 4));
    snprintf(text[1], sizeof *text, "y=%s", write_npy("y.npy", "<i8", "43,", y, ROWS, 8));
    batches[0] = text[0];
    batches[1] = text[1];
}

static void has_row(int64_t row, uint64_t from)
{
    const float *x = input("x");
    const int32_t *y = input("y");
    ck_assert_float_eq(x[2 * row], (float)(2 * from));
    ck_assert_float_eq(x[2 * row + 1], (float)(2 * from + 1));
    ck_assert_int_eq(y[row], (int)(from % 4));
}

/* An epoch takes each row once, in another order than the one before. */
START_TEST(epochs)
{
    enum { TRAIN = ROWS - ROWS / 10 };
    const char *batches[2];
    int taken[3][TRAIN] = {0}, same = 0;
    uint64_t order[3 * TRAIN + 2];
    f8_data d;
    use(classes, 2);
    write_rows(batches);
    const f8_data_options o = of_rows(batches, 2);
    open_data(&d, &o);
    for (uint64_t i = 0; i < 3 * TRAIN; i++) {
        order[i] = f8_data_place(&d, 5, i / 2, (int64_t)(i % 2));
        ck_assert_uint_lt(order[i], TRAIN);
        taken[i / TRAIN][order[i]]++;
        same += i >= TRAIN && order[i] == order[i - TRAIN];
    }
    for (int i = 0; i < 3 * TRAIN; i++)
        ck_assert_int_eq(taken[i / TRAIN][i % TRAIN], 1);
    ck_assert_int_lt(same, TRAIN / 2);
    for (uint64_t batch = 40; batch-- > 0;) {
        ck_assert_int_eq(f8_data_fill(&d, program, step, 5, batch, &diag), F8_OK);
        has_row(0, order[2 * batch]);
        has_row(1, order[2 * batch + 1]);
    }
    for (uint64_t batch = 0; batch < 5; batch++) {
        ck_assert_int_eq(f8_data_fill_held_out(&d, program, step, batch, &diag), F8_OK);
        has_row(0, TRAIN + 2 * batch % (ROWS - TRAIN));
        has_row(1, TRAIN + (2 * batch + 1) % (ROWS - TRAIN));
    }
    ck_assert_str_eq(f8_data_unit(&d), "rows");
    f8_data_close(&d);
}
END_TEST

/* Hashes tell data apart: of rows if they are asked for, of tokens always. */
START_TEST(hashes)
{
    const char *batches[2];
    f8_data d;
    use(classes, 2);
    write_rows(batches);
    char *facts[3];
    for (int i = 0; i < 3; i++) {
        f8_data_options o = of_rows(batches, 2);
        o.hashes = i > 0;
        open_data(&d, &o);
        json_t *all = f8_data_facts(&d);
        facts[i] = json_dumps(all, JSON_SORT_KEYS);
        json_decref(all);
        f8_data_close(&d);
    }
    ck_assert_str_ne(facts[0], facts[1]);
    ck_assert_str_eq(facts[1], facts[2]);
    for (int i = 0; i < 3; i++)
        free(facts[i]);
}
END_TEST

/* ---- ranks ---- */

/* Two ranks with B rows each have together, in their order, the batch of one process with 2 B. */
static void divided(const char *text, f8_data_options o)
{
    enum { B = 2, BATCHES = 9 };
    uint64_t whole[BATCHES][2 * B];
    f8_data d;
    o.one = (f8_share){0};
    use(text, 2 * B);
    open_data(&d, &o);
    ck_assert_int_eq(f8_data_rows(&d), 2 * B);
    for (uint64_t batch = 0; batch < BATCHES; batch++)
        for (int64_t row = 0; row < 2 * B; row++)
            whole[batch][row] = f8_data_place(&d, 3, batch, row);
    const int64_t items = f8_data_items(&d);
    f8_data_close(&d);
    use(text, B);
    for (uint64_t rank = 0; rank < 2; rank++) {
        o.one = (f8_share){2, rank};
        open_data(&d, &o);
        ck_assert_int_eq(f8_data_rows(&d), B);
        ck_assert_int_eq(f8_data_items(&d), items);
        for (uint64_t batch = 0; batch < BATCHES; batch++)
            for (int64_t row = 0; row < B; row++)
                ck_assert_uint_eq(f8_data_place(&d, 3, batch, row),
                                  whole[batch][(int64_t)rank * B + row]);
        f8_data_close(&d);
    }
}

START_TEST(shares)
{
    const char *const files[] = {write_ids("t.bin", NULL, 0, ids, IDS, 2, 0)};
    const char *batches[2];
    write_rows(batches);
    divided(net, of_files(files, 1));
    divided(classes, of_rows(batches, 2));
}
END_TEST

/* ---- failures ---- */

/* Opening these data, or fitting them, fails so. `file` may be the end of a path. */
static void fails(const f8_data_options *o, f8_status status, const char *file, const char *text)
{
    f8_data d;
    diag = (f8_diag){0};
    f8_status got = f8_data_open(&d, o, &diag);
    if (got == F8_OK)
        got = f8_data_fit(&d, module, program, step, &diag);
    ck_assert_msg(got == status && diag.status == status, "%d, %d: %s", got, diag.status,
                  diag.text);
    ck_assert_str_eq(diag.text, text);
    const size_t n = diag.file ? strlen(diag.file) : 0, k = strlen(file);
    ck_assert_msg(n >= k && !strcmp(diag.file + n - k, file), "%s", diag.file);
    f8_data_close(&d);
}

START_TEST(words_of_tokens)
{
    int64_t large[200] = {0};
    large[60] = 300;
    const char *files[] = {"no/file"}, *const v[] = {write_ids("v", NULL, 0, ids, 3, 1, 0)};
    f8_data_options o = of_files(files, 1);
    use(net, 2);
    fails(&o, F8_ERR_IO, "no/file", "No such file or directory");
    files[0] = "no/*";
    fails(&o, F8_ERR_INPUT, "no/*", "no file matches this pattern");
    files[0] = write_ids("odd.bin", NULL, 0, ids, 1, 1, 0);
    fails(&o, F8_ERR_INPUT, "/odd.bin",
          "the last token is not whole: 1 bytes of tokens, of which each takes 2");
    files[0] = write_ids("few.bin", NULL, 0, ids, 12, 2, 0);
    fails(&o, F8_ERR_INPUT, "/few.bin",
          "the files have only 12 tokens: a sequence takes 5, and a tenth of the text is held out, "
          "so at least 50 are needed");
    files[0] = write_ids("large.bin", NULL, 0, large, 200, 2, 0);
    fails(&o, F8_ERR_INPUT, "/large.bin",
          "token 300 at offset 120 is outside the model's vocabulary of 256");
    files[0] = write_npy("t.npy", "<u2", "400,", ids, IDS, 2);
    o.tokens = "u32";
    fails(&o, F8_ERR_INPUT, "/t.npy", "as u32, but its header says u16");
    o.tokens = NULL;
    o.validation = v;
    o.n_validation = 1;
    fails(&o, F8_ERR_INPUT, "/v",
          "the text has only 3 bytes: a sequence takes 5, so at least 5 are needed");
    use(classes, 2);
    o.n_validation = 0;
    fails(&o, F8_ERR_INPUT, "net.f8",
          "the test needs a function forward(%tokens, %targets) with two inputs i32[B, T], whose "
          "first result is the loss, f32[]");
}
END_TEST

START_TEST(words_of_rows)
{
    const char *given[2], *batches[3];
    use(classes, 2);
    write_rows(given);
    batches[0] = given[0];
    batches[1] = batches[2] = given[1];
    f8_data_options o = of_rows(batches, 1);
    fails(&o, F8_ERR_INPUT, "net.f8", "no file for the inputs: y; rows NAME=FILE gives one");
    o.n_batches = 3;
    fails(&o, F8_ERR_INPUT, "'", "'y' is given twice");
    batches[1] = "y:y.npy";
    fails(&o, F8_ERR_INPUT, "rows 'y:y.npy'",
          "not NAME=FILE.npy or NAME=FILE.safetensors[:TENSOR]");
    batches[1] = given[1];
    o.n_batches = 2;
    o.validation = given;
    o.n_validation = 1;
    fails(&o, F8_ERR_INPUT, "net.f8", "no file for the inputs: y; held NAME=FILE gives one");
    o.n_validation = 0;
    char text[600];
    int64_t y[ROWS] = {0};
    y[20] = (int64_t)1 << 31;
    snprintf(text, sizeof text, "y=%s", write_npy("far.npy", "<i8", "43,", y, ROWS, 8));
    batches[1] = text;
    fails(&o, F8_ERR_INPUT, "/far.npy", "for 'y': element 20 does not fit into i32");
    snprintf(text, sizeof text, "y=%s", write_npy("half.npy", "<i4", "20,", y, 20, 4));
    diag = (f8_diag){0};
    f8_data d;
    ck_assert_int_eq(f8_data_open(&d, &o, &diag), F8_ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(diag.text, "'y' has 20 rows here, but 'x' has 43 in "));
    f8_data_close(&d);
}
END_TEST

/* A file that becomes shorter: what was open says so, and d.failed. */
START_TEST(cut_short)
{
    const char *const files[] = {write_ids("t.bin", NULL, 0, ids, IDS, 2, 0)};
    const f8_data_options o = of_files(files, 1);
    f8_data d;
    use(net, 2);
    open_data(&d, &o);
    ck_assert_int_eq(truncate(files[0], 100), 0);
    ck_assert(!d.failed);
    ck_assert_int_eq(f8_data_fill(&d, program, step, 1, 1, &diag), F8_ERR_IO);
    ck_assert(d.failed);
    ck_assert_str_eq(diag.text, "the file became shorter while it was read");
    ck_assert_str_eq(diag.file, files[0]);
    f8_data_close(&d);
}
END_TEST

/* ---- a caller who stops ---- */

static bool after(void *user)
{
    int *left = user;
    return (*left)-- == 0;
}

/* Data that were not looked at to their end are looked at again. */
static void stopped_while_fitting(const f8_data_options *given)
{
    int left = 0;
    f8_data_options o = *given;
    f8_data d;
    o.stop = (f8_stop){after, &left};
    diag = (f8_diag){0};
    ck_assert_int_eq(f8_data_open(&d, &o, &diag), F8_OK);
    ck_assert_int_eq(f8_data_fit(&d, module, program, step, &diag), F8_ERR_CANCELLED);
    ck_assert_int_eq(diag.status, F8_ERR_CANCELLED);
    left = -1;
    ck_assert_int_eq(f8_data_fit(&d, module, program, step, &diag), F8_OK);
    ck_assert_int_lt(left, -1); /* asked again */
    ck_assert_int_eq(f8_data_fit(&d, module, program, step, &diag), F8_OK);
    f8_data_close(&d);
}

START_TEST(stops)
{
    const char *const files[] = {write_ids("t.bin", NULL, 0, ids, IDS, 2, 0)};
    const char *batches[2];
    f8_data_options o = of_files(files, 1);
    use(net, 2);
    stopped_while_fitting(&o);
    int left = 2;
    int64_t n = 0;
    double loss = 0;
    f8_data d;
    o.stop_together = (f8_stop){after, &left};
    open_data(&d, &o);
    ck_assert_int_eq(f8_data_held_out(&d, program, eval, &loss, &n, &diag), FP8C_ERR_CANCELLED);
    ck_assert(!d.failed && left == -1 && n == 0);
    left = -1;
    ck_assert_int_eq(f8_data_held_out(&d, program, eval, &loss, &n, &diag), FP8C_OK);
    ck_assert(n == (IDS / 10 - 1) / T / 2 && left == -1 - (int)n && isfinite(loss));
    f8_data_close(&d);
    use(classes, 2);
    write_rows(batches);
    o = of_rows(batches, 2);
    stopped_while_fitting(&o);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("train_data");
    TCase *t = tcase_create("train_data");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, stream);
    tcase_add_test(t, windows);
    tcase_add_test(t, held_out_tokens);
    tcase_add_test(t, epochs);
    tcase_add_test(t, hashes);
    tcase_add_test(t, shares);
    tcase_add_test(t, words_of_tokens);
    tcase_add_test(t, words_of_rows);
    tcase_add_test(t, cut_short);
    tcase_add_test(t, stops);
    suite_add_tcase(s, t);
    return s;
}

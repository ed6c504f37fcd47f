/* Tokens as the data of `fp8c train`: the same tokens in every kind of file train to the same bits;
 * several files are one stream; held-out files and losses; a batch depends on its number alone;
 * what is wrong with a file is said before the first step. */
#include <math.h>

#include "tests/shared/api/data_case.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 300, IDS = 3000 };

static const char net[] =
    "module net\n"
    "dim B = 2, T = 16, V = 256\n"
    "param wte: f32[V, 16] normal(0.5)\n"
    "param fc: f32[16, 16] normal(0.2)\n"
    "func forward(%tokens: i32[B, T], %targets: i32[B, T]) -> (%loss: f32[]) {\n"
    "  %x = linear(embedding(wte, %tokens), fc)\n"
    "  return cross_entropy(linear(%x, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.05, clip = 1}\n";

static const char *text; /* the ids as bytes */
static int64_t ids[IDS];

static void setup(void)
{
    f8_cli_setup();
    model = keep(f8_cli_write("net.f8", net, strlen(net)));
    state = keep(f8_cli_temp("state"));
    text = keep(f8_cli_write_words("text", IDS));
    size_t n;
    char *bytes = f8_cli_read(text, &n);
    ck_assert_uint_eq(n, IDS);
    for (int i = 0; i < IDS; i++)
        ids[i] = (unsigned char)bytes[i];
    free(bytes);
}

/* ---- kinds of files ---- */

START_TEST(kinds)
{
    bytes want = TRAIN("--data", text);
    const char *const files[] = {
        write_ids("nanogpt.bin", NULL, 0, ids, IDS, 2, 0),
        write_llmc("gpt2.bin", 20240520, 1, IDS, ids, IDS, 2),
        write_llmc("llama3.bin", 20240801, 7, IDS, ids, IDS, 4),
        write_llmc("no_suffix", 20240520, 1, IDS, ids, IDS, 2),
        write_npy("u1.npy", "|u1", "3000,", ids, IDS, 1),
        write_npy("u2.npy", "<u2", "3000,", ids, IDS, 2),
        write_npy("u4.npy", "<u4", "3000,", ids, IDS, 4),
        write_npy("i4.npy", "<i4", "30, 100", ids, IDS, 4),
        write_npy("i8.npy", "<i8", "3000,", ids, IDS, 8),
        write_npy("i8_npy", "<i8", "3000,", ids, IDS, 8),
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ck_assert_msg(same(&want, TRAIN("--data", files[i])), "%s", files[i]);
    }
    free(want.at);
}
END_TEST

/* --tokens goes before the name. A header must agree, and bytes are bytes whatever the file is. */
START_TEST(type_given)
{
    bytes want = TRAIN("--data", text);
    const char *raw = write_ids("raw", NULL, 0, ids, IDS, 4, 0);
    ck_assert(same(&want, TRAIN("--data", raw, "--tokens", "u32")));
    raw = write_ids("raw", NULL, 0, ids, IDS, 2, 0);
    ck_assert(same(&want, TRAIN("--data", raw, "--tokens", "u16")));
    const char *npy = write_npy("t.npy", "<u2", "3000,", ids, IDS, 2);
    ck_assert(same(&want, TRAIN("--data", npy, "--tokens", "u16")));
    REFUSED(1, "--tokens u32, but its header says u16", "--data", npy, "--tokens", "u32");
    const char *llmc = write_llmc("t.bin", 20240801, 7, IDS, ids, IDS, 4);
    REFUSED(1, "--tokens u16, but its header says u32", "--data", llmc, "--tokens", "u16");
    REFUSED(2, "bad value for --tokens: 'u8'", "--data", text, "--tokens", "u8");
    const char *bin = write_ids("text.bin", NULL, 0, ids, IDS, 1, 0);
    ck_assert(same(&want, TRAIN("--data", bin, "--tokens", "bytes")));
    ck_assert(!same(&want, TRAIN("--data", npy, "--tokens", "bytes")));
    free(want.at);
}
END_TEST

/* ---- streams ---- */

/* Files make one stream, in which windows cross their borders. */
START_TEST(shards)
{
    bytes want = TRAIN("--data", text);
    const char *first = write_ids("part_1.bin", NULL, 0, ids, 1001, 2, 0);
    const char *second = write_llmc("part_2.bin", 20240801, 7, 7, ids + 1001, 7, 4);
    const char *third = write_ids("part_3.bin", NULL, 0, ids + 1008, IDS - 1008, 2, 0);
    ck_assert(same(&want, TRAIN("--data", first, "--data", second, "--data", third)));
    ck_assert(!same(&want, TRAIN("--data", third, "--data", second, "--data", first)));
    ck_assert(same(&want, TRAIN("--data", f8_cli_temp("part_*.bin"))));
    ck_assert(!same(&want, TRAIN("--data", f8_cli_temp("part_*.bin"), "--data", first)));
    REFUSED(1, "no_*.bin: error: no file matches this pattern", "--data", f8_cli_temp("no_*.bin"));
    const char *star = write_ids("a*.bin", NULL, 0, ids, IDS, 2, 0);
    write_ids("ab.bin", NULL, 0, ids, 1, 2, 0);
    ck_assert(same(&want, TRAIN("--data", star)));
    free(want.at);
}
END_TEST

/* The unit of losses is a token unless all files are texts. */
START_TEST(units)
{
    const char *bin = write_ids("t.bin", NULL, 0, ids, IDS, 2, 0);
    f8_cli_result r = F8_CLI("train", model, "--data", bin, "--steps", "2");
    ck_assert_msg(r.code == 0 && strstr(r.out, "losses in nats per token;"), "%s", r.out);
    ck_assert_ptr_nonnull(strstr(r.out, "the tokens' unigram entropy is "));
    r = F8_CLI("train", model, "--data", text, "--steps", "2");
    ck_assert_msg(r.code == 0 && strstr(r.out, "losses in nats per byte;"), "%s", r.out);
    ck_assert_ptr_nonnull(strstr(r.out, "the text's unigram entropy is "));
}
END_TEST

/* eval holds out what train does, of any kind of file. */
START_TEST(eval_of_tokens)
{
    const char *bin = write_ids("t.bin", NULL, 0, ids, IDS, 2, 0);
    const char *weights = keep(f8_cli_temp("weights.safetensors"));
    f8_cli_ok(F8_CLI("train", model, "--data", bin, "--steps", "2", "--save", weights));
    f8_cli_result r = F8_CLI("eval", model, "--data", bin, "--weights", weights);
    ck_assert_msg(r.code == 0 && strstr(r.out, "losses in nats per token, of 288 held-out tokens"),
                  "%s%s", r.out, r.err);
    ck_assert_ptr_nonnull(strstr(r.out, "t.bin; the tokens' unigram entropy"));
    const char *v = write_ids("v.bin", NULL, 0, ids, 100, 2, 0);
    r = F8_CLI("eval", model, "--data", bin, "--weights", weights, "--validation", v);
    ck_assert_msg(r.code == 0 && strstr(r.out, ", of 96 held-out tokens of ") &&
                      strstr(r.out, "v.bin; the tokens' unigram entropy"),
                  "%s%s", r.out, r.err);
}
END_TEST

/* ---- bad files ---- */

START_TEST(outside_the_vocabulary)
{
    int64_t wrong[IDS];
    memcpy(wrong, ids, sizeof wrong);
    wrong[2500] = 256;
    const char *first = write_ids("ok.bin", NULL, 0, ids, 100, 2, 0);
    REFUSED(1, "bad.bin: error: token 256 at offset 5000 is outside the model's vocabulary of 256",
            "--data", first, "--data", write_ids("bad.bin", NULL, 0, wrong, IDS, 2, 0));
    REFUSED(1, "bad.bin: error: token 256 at offset 11024 is outside", "--data",
            write_llmc("bad.bin", 20240801, 7, IDS, wrong, IDS, 4));
    REFUSED(1, "bad.bin: error: token 256 at offset 5000 is outside", "--data", text,
            "--validation", write_ids("bad.bin", NULL, 0, wrong, IDS, 2, 0));
    wrong[2500] = -1;
    REFUSED(1, "bad.npy: error: token -1 at offset 10128 is outside", "--data",
            write_npy("bad.npy", "<i4", "3000,", wrong, IDS, 4));
    wrong[2500] = (int64_t)1 << 40;
    REFUSED(1, "bad.npy: error: token 1099511627776 at offset 20128 is outside", "--data",
            write_npy("bad.npy", "<i8", "3000,", wrong, IDS, 8));
    wrong[2500] = 0xffffffff;
    REFUSED(1, "raw: error: token 4294967295 at offset 10000 is outside", "--data",
            write_ids("raw", NULL, 0, wrong, IDS, 4, 0), "--tokens", "u32");
}
END_TEST

START_TEST(bad_files)
{
    const char *good = write_ids("good.bin", NULL, 0, ids, IDS, 2, 0);
    REFUSED(1, "none.bin: error: No such file or directory", "--data", f8_cli_temp("none.bin"));
    REFUSED(1, "frontend: error: Is a directory", "--data", "frontend");
    REFUSED(1,
            "half.bin: error: the last token is not whole: 201 bytes of tokens, of which each "
            "takes 2",
            "--data", write_ids("half.bin", NULL, 0, ids, 100, 2, 1));
    REFUSED(1, "empty.bin: error: it has no tokens", "--data", good, "--data",
            write_ids("empty.bin", NULL, 0, ids, 0, 2, 0));
    REFUSED(1, "empty.bin: error: the files have only 0 tokens: a sequence takes 17, and a tenth",
            "--data", write_ids("empty.bin", NULL, 0, ids, 0, 2, 0));
    REFUSED(1, "empty.bin: error: it has no tokens", "--data", good, "--data",
            write_llmc("empty.bin", 20240520, 1, 0, ids, 0, 2));
    REFUSED(1, "v.bin: error: the files have only 16 tokens: a sequence takes 17, so at least 17",
            "--data", good, "--validation", write_ids("v.bin", NULL, 0, ids, 16, 2, 0));
    REFUSED(1, "short.bin: error: the files have only 169 tokens", "--data",
            write_ids("short.bin", NULL, 0, ids, 169, 2, 0));
    REFUSED(1, "cut.bin: error: its header counts 3000 tokens, but 2999 follow it", "--data",
            write_llmc("cut.bin", 20240520, 1, IDS, ids, IDS - 1, 2));
    REFUSED(1, "new.bin: error: its llm.c header has version 2; version 1 can be read", "--data",
            write_llmc("new.bin", 20240520, 2, IDS, ids, IDS, 2));
    REFUSED(1, "f.npy: error: its elements are no tokens: u1, u2, u4, i4 or i8 are needed",
            "--data", write_npy("f.npy", "<f4", "3000,", ids, IDS, 4));
    REFUSED(1, "v.npy: error: its elements are no tokens", "--data",
            write_npy("v.npy", "|V2", "3000,", ids, IDS, 2));
    REFUSED(1, "t.npy: error: it does not begin like a .npy file", "--data",
            write_ids("t.npy", NULL, 0, ids, IDS, 2, 0));
    REFUSED(1, "c.npy: error: its shape takes 6002 bytes, but 6000 follow the header", "--data",
            write_npy("c.npy", "<u2", "3001,", ids, IDS, 2));
}
END_TEST

/* ---- held-out data ---- */

typedef struct evals {
    double loss[8], summary; /* of steps 1, 2, ...; NaN: no record */
    int n, batches;
} evals;

static evals records(const char *path)
{
    evals e = {.loss = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN}};
    size_t n;
    char *all = f8_cli_read(path, &n);
    for (char *save, *line = strtok_r(all, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *r = json_loads(line, 0, NULL);
        ck_assert_msg(r != NULL, "no JSON: %s", line);
        const char *event = json_string_value(json_object_get(r, "event"));
        if (!strcmp(event, "eval")) {
            const json_int_t step = json_integer_value(json_object_get(r, "step"));
            ck_assert_int_ge(step, 1);
            ck_assert_int_le(step, 8);
            ck_assert_str_eq(json_string_value(json_object_get(r, "recipe")), "delayed");
            ck_assert_int_eq(json_integer_value(json_object_get(r, "seed")), 1);
            e.loss[step - 1] = json_real_value(json_object_get(r, "loss"));
            e.batches = (int)json_integer_value(json_object_get(r, "batches"));
            e.n++;
        } else if (!strcmp(event, "summary")) {
            e.summary = json_real_value(json_object_get(r, "heldout_loss"));
        }
        json_decref(r);
    }
    free(all);
    return e;
}

/* Evaluations change no bit of the training, and are those of a run that ends there. */
START_TEST(eval_every)
{
    const char *json = keep(f8_cli_temp("json"));
    const char *v = write_ids("v.bin", NULL, 0, ids + 100, 400, 2, 0);
    bytes want = TRAIN("--data", text, "--validation", v, "--recipe", "delayed", "--steps", "5");
    ck_assert(same(&want, TRAIN("--data", text, "--validation", v, "--recipe", "delayed", "--steps",
                                "5", "--eval-every", "2", "--json", json)));
    const evals e = records(json);
    ck_assert_int_eq(e.n, 2);
    ck_assert_int_eq(e.batches, 12); /* (400 - 1) / 16 windows, 2 a batch */
    ck_assert(isfinite(e.loss[1]) && isfinite(e.loss[3]) && e.loss[1] != e.loss[3]);
    ck_assert(!same(&want, TRAIN("--data", text, "--validation", v, "--recipe", "delayed",
                                 "--steps", "4", "--eval-every", "4", "--json", json)));
    const evals shorter = records(json);
    ck_assert_int_eq(shorter.n, 1);
    ck_assert_double_eq(shorter.loss[3], e.loss[3]);
    ck_assert_double_eq(shorter.loss[3], shorter.summary);
    free(want.at);
}
END_TEST

/* Held-out tokens are not trained on: all of --data is, with --validation. At most 16 batches. */
START_TEST(validation)
{
    const char *v = write_ids("v.bin", NULL, 0, ids, IDS, 2, 0), *json = keep(f8_cli_temp("j"));
    const char *head = write_ids("head.bin", NULL, 0, ids, IDS - IDS / 10, 2, 0);
    const char *tail = write_ids("tail.bin", NULL, 0, ids + IDS - IDS / 10, IDS / 10, 2, 0);
    bytes want = TRAIN("--data", text, "--recipe", "delayed", "--json", json, "--eval-every", "3");
    const evals split = records(json);
    ck_assert(same(&want, TRAIN("--data", head, "--validation", tail, "--recipe", "delayed",
                                "--json", json, "--eval-every", "3")));
    const evals given = records(json);
    ck_assert_double_eq(given.summary, split.summary);
    ck_assert_int_eq(given.batches, 9);
    ck_assert(!same(&want, TRAIN("--data", text, "--validation", v, "--recipe", "delayed", "--json",
                                 json, "--eval-every", "3")));
    ck_assert_int_eq(records(json).batches, 16);
    free(want.at);
}
END_TEST

START_TEST(shown_on_a_terminal)
{
    const char *const args[] = {"train", model,          "--data", text, "--steps",
                                "4",     "--eval-every", "2",      NULL};
    const f8_cli_result r = f8_cli_run_on_terminal(args);
    ck_assert_msg(r.code == 0 && strstr(r.err, "bf16  step 2  held out ") &&
                      strstr(r.err, "bf16  step 4  held out "),
                  "%s", r.err);
}
END_TEST

/* ---- the order of data ---- */

static void write_accumulating(const char *name, int n)
{
    char text_of[sizeof net + 40];
    snprintf(text_of, sizeof text_of, "%saccumulate %d\n", net, n);
    f8_cli_write(name, text_of, strlen(text_of));
}

START_TEST(batches_by_number)
{
    write_accumulating("two.f8", 2);
    const char *two = keep(f8_cli_temp("two.f8"));
    numbered(model, two, (const char *const[]){"--data", text, NULL});
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("data");
    TCase *t = tcase_create("data");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_test(t, kinds);
    tcase_add_test(t, type_given);
    tcase_add_test(t, shards);
    tcase_add_test(t, units);
    tcase_add_test(t, eval_of_tokens);
    tcase_add_test(t, outside_the_vocabulary);
    tcase_add_test(t, bad_files);
    tcase_add_test(t, eval_every);
    tcase_add_test(t, validation);
    tcase_add_test(t, shown_on_a_terminal);
    tcase_add_test(t, batches_by_number);
    suite_add_tcase(s, t);
    return s;
}
